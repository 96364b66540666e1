"""Simulated tenants: they reserve, extend, shrink, cancel and release, and repeat a call until it is answered."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from muster_coordinator.service.bodies import ReservationRequest, ReservationView
from muster_coordinator.service.changes.bodies import ExtendRequest, ShrinkRequest
from muster_shared.errors import Code, Problem
from muster_shared.wire import FABRIC_DOMAIN
from tests.support.sim_coordinator import Answer, SimCoordinator
from tests.support.sim_kernel import Kernel
from tests.support.sim_network import Network

TIMEOUT_MS = 6_000
TRIES_MAX = 6
REPEATS = 0.1  # of answered calls that are sent once more


class Tenants:
    """All tenants together.

    Args:
        kernel: Of the run.
        network: Between them and the coordinators.
        coordinators: Any of them answers any call.
        pause_ms: Between two calls, on average.
    """

    def __init__(self, kernel: Kernel, network: Network, coordinators: list[SimCoordinator], pause_ms: int) -> None:
        self._kernel = kernel
        self._network = network
        self._coordinators = coordinators
        self._pause_ms = pause_ms
        self._chance = kernel.chance("tenants")
        self._calls = 0
        self._answers: dict[str, str] = {}  # idempotency key -> reservation
        self._open: list[str] = []
        self._wishes = kernel.chance("changes")
        self._next()
        self._next_change()

    def _next(self) -> None:
        if self._kernel.calm:
            return
        if self._open and self._chance.random() < 0.4:
            reservation_id = self._open.pop(self._chance.randrange(len(self._open)))
            kind = self._chance.choice(("cancel", "release"))
            self._call(kind, reservation_id, None, lambda answer: self._changed(reservation_id, answer), TRIES_MAX)
        else:
            for _ in range(self._chance.choice((1, 1, 3))):  # three at one instant race for the same nodes
                self._reserve()
        self._kernel.after(self._chance.randrange(2 * self._pause_ms), self._next)

    def _next_change(self) -> None:
        if self._kernel.calm:
            return
        if self._open:
            wishes = self._wishes
            reservation_id = wishes.choice(self._open)
            seconds = f"{wishes.randrange(5, 300)}s"
            body = ExtendRequest(by=seconds) if wishes.random() < 0.6 else ShrinkRequest(to=wishes.randrange(1, 4))
            kind = "extend" if isinstance(body, ExtendRequest) else "shrink"
            self._call(kind, reservation_id, body, lambda answer: self._wished(reservation_id, answer), TRIES_MAX)
        self._kernel.after(self._wishes.randrange(2 * self._pause_ms), self._next_change)

    def _wished(self, reservation_id: str, answer: Answer) -> None:
        if isinstance(answer, Problem) and answer.code not in {Code.CONFLICT, Code.INVALID_INPUT}:
            self._kernel.violations.append(f"I27 {reservation_id}: {answer.detail}")

    def _reserve(self) -> None:
        self._calls += 1
        chance = self._chance
        key = f"key-{self._calls}"
        size = chance.choice((1, 1, 2, 3, 4))
        wanted: dict[str, Any] = {
            "tenantId": f"tenant-{chance.randrange(4)}",
            "devices": [{"count": chance.choice((1, 2, 4)), "topology": chance.choice(("any", "nvlink-all"))}],
            "gang": {"size": size} | ({"topologyKey": FABRIC_DOMAIN} if size > 1 and chance.random() < 0.8 else {}),
            "duration": f"{chance.randrange(30, 600)}s",
            "idempotencyKey": key,
        }
        if chance.random() < 0.4:
            wanted["start"] = self._kernel.now_ms + chance.randrange(20_000, 900_000)
        if chance.random() < 0.2:
            wanted["latestStart"] = (wanted.get("start") or self._kernel.now_ms) + chance.randrange(30_000, 300_000)
        request = ReservationRequest.model_validate(wanted)
        self._call("reserve", "", request, lambda answer: self._reserved(key, request, answer), TRIES_MAX)

    def _reserved(self, key: str, request: ReservationRequest, answer: Answer) -> None:
        if isinstance(answer, Problem):
            # A start that passed while the network was down is refused; everything else would be news.
            if answer.code is not Code.INVALID_INPUT:
                self._kernel.violations.append(f"I27 {key} was answered {answer.code}: {answer.detail}")
            return
        assert isinstance(answer, ReservationView)
        if self._answers.setdefault(key, answer.id) != answer.id:
            self._kernel.violations.append(f"I27 {key} made {self._answers[key]} and {answer.id}")
        if answer.id not in self._open:
            self._open.append(answer.id)
        if self._chance.random() < REPEATS:
            self._kernel.seen["replay"] += 1
            self._call("reserve", "", request, lambda again: self._same(key, again), 1)
        elif self._chance.random() < REPEATS:
            other = request.model_copy(update={"duration": "601s"})
            self._call("reserve", "", other, self._mismatched, 1)

    def _same(self, key: str, answer: Answer) -> None:
        if not isinstance(answer, ReservationView) or answer.id != self._answers[key]:
            self._kernel.violations.append(f"I27 {key} repeated was answered {answer!r}")

    def _mismatched(self, answer: Answer) -> None:
        if not isinstance(answer, Problem) or answer.code is not Code.IDEMPOTENCY_MISMATCH:
            self._kernel.violations.append(f"I27 a used key with another body was answered {answer!r}")

    def _changed(self, reservation_id: str, answer: Answer) -> None:
        if isinstance(answer, Problem):
            if answer.code is not Code.CONFLICT:
                self._kernel.violations.append(f"I27 {reservation_id}: {answer.detail}")
            else:
                self._open.append(reservation_id)

    def _call(
        self,
        kind: str,
        path_id: str,
        body: BaseModel | None,
        on_answer: Callable[[Answer], None],
        tries: int,
    ) -> None:
        coordinator = self._chance.choice(self._coordinators)
        is_answered = False

        def answered(answer: Answer) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                on_answer(answer)

        def again() -> None:
            if not is_answered and tries > 1:
                self._kernel.seen["clientRetry"] += 1
                self._call(kind, path_id, body, on_answer, tries - 1)

        def reply(answer: Answer) -> None:
            self._network.carry(coordinator.name, "tenants", lambda: answered(answer))

        self._network.carry("tenants", coordinator.name, lambda: coordinator.serve(kind, path_id, body, reply))
        self._kernel.after(TIMEOUT_MS, again)
