"""A simulated coordinator: the real pass, handlers and services, with tasks that can be held up, frozen and killed."""

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from muster_coordinator.api.handlers import agents, changes, nodes, reservations
from muster_coordinator.api.services import Made, Services
from muster_coordinator.api.turns import Turns
from muster_coordinator.clock import Moment
from muster_coordinator.loops.pools import PoolPass
from muster_coordinator.loops.revs import Revs
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.access.caller import LOCAL
from muster_coordinator.service.access.guard import Guard
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.nodes.desired import desired, desired_rev
from muster_coordinator.service.sweep import FencedError
from muster_coordinator.service.together import Asking
from muster_shared.errors import Problem
from muster_shared.wire import ReportAnswer
from tests.support.sim_book import Book, SimDatabase
from tests.support.sim_kernel import Kernel, Task

if TYPE_CHECKING:
    from muster_coordinator.api.operation import Call

T = TypeVar("T")
Answer = BaseModel | Problem | None
Reply = Callable[[Answer], None]
Serve = Callable[[list[Asking]], Awaitable[list[Made | Exception]]]

TICK_MS = 10_000  # between two passes with nothing to do
HASTE_MS = 2_000  # between two passes when there is always something to do
WAKE_MS = 200  # from a new revision to the polls that wait for it
POLL_MS = 50_000
HELD_UP = 0.1  # transactions that others overtake ...
OUTDATED = 0.5  # ... and those between a plan and its commit
HANDLERS: dict[str, Callable[[Any], Coroutine[Any, Any, Answer]]] = {
    "report": agents.reported,
    "reserve": reservations.create,
    "extend": changes.extended,
    "shrink": changes.shrunk,
    "cancel": reservations.cancelled,
    "release": reservations.released,
    "open": nodes.opened,
    "cordon": nodes.cordoned,
    "drain": nodes.drained,
    "fence": nodes.fenced,
}


class NoTurns(Turns[Asking, Made | Exception]):
    """Let everybody meet: the simulation holds tasks up in the middle, and no loop is there to wait in."""

    async def ask(self, pool: str, question: Asking, serve: Serve) -> Made | Exception:  # noqa: ARG002 - as of `Turns`
        (answer,) = await serve([question])
        return answer


class SimClock:
    """The coordinator's clock is true time; its chance is the run's."""

    def __init__(self, kernel: Kernel, chance: Random) -> None:
        self._kernel = kernel
        self._chance = chance

    def moment(self) -> Moment:
        return Moment(self._kernel.now_ms, self._chance)

    def new_secret(self) -> str:
        return f"{self._chance.getrandbits(256):064x}"


class SimCoordinator:
    """One replica.

    Args:
        kernel: Of the run.
        book: The database that all replicas share.
        name: Of the replica; each of its processes holds leases under a name of its own.
    """

    def __init__(self, kernel: Kernel, book: Book, name: str) -> None:
        self.name = name
        self._kernel = kernel
        self._book = book
        self._chance = kernel.chance(name)
        self._database = SimDatabase(book)
        self._clock = SimClock(kernel, self._chance)
        self.process = 0
        self.is_up = False
        self._frozen_until_ms = 0
        self._armed: tuple[int, Callable[[], None], bool] | None = None
        self._tasks: list[Task] = []
        self._polls: list[tuple[str, int, Reply]] = []
        self._passing: Task | None = None
        self.start()

    def start(self) -> None:
        """Begin a new process: it knows what is stored, and nothing else."""
        self.process += 1
        self.is_up = True
        self._armed = None
        changed = Notifier()
        index = PoolIndex()
        self.services = Services(
            self._database, self._clock, changed, Notifier(), Notifier(), Revs(self._database), index, NoTurns(), None
        )
        self._pass = PoolPass(self._database, self._clock, changed, index, f"{self.name}-{self.process}")
        self._seen = changed.beats
        self._every(self.process, TICK_MS, self._tick)

    def crash(self) -> None:
        """Die at once: between transactions, since those under way are undone."""
        self._kernel.seen["crash"] += 1
        self.is_up = False
        self._polls.clear()
        tasks, self._tasks = self._tasks, []
        running = self._kernel.task
        for task in tasks:
            if task is not running:
                task.end()
        if running is not None and running in tasks:
            running.end_here()

    def stop(self) -> None:
        """End for good, once the run is over."""
        self.is_up = False
        for task in self._tasks:
            task.end()

    def freeze(self, ms: int) -> None:
        """Stop for so long without knowing it."""
        self._kernel.seen["freeze"] += 1
        self._frozen_until_ms = self._kernel.now_ms + ms
        if self._kernel.task in self._tasks:
            self._pause(ms)

    def arm(self, begins: int, act: Callable[[], None], *, in_pass: bool = False) -> None:
        """Do something just before a transaction so many transactions from now; with `in_pass`, of the pass alone."""
        self._armed = (begins, act, in_pass)

    def disarm(self) -> None:
        """Let nothing more go wrong by appointment: a crash that comes after everything is mended is never mended."""
        self._armed = None

    def at_begin(self) -> None:
        """A task of ours is about to begin a transaction: the moment for everything that can go wrong."""
        if self._armed is not None:
            begins, act, in_pass = self._armed
            if in_pass and self._kernel.task is not self._passing:
                return
            self._armed = (begins - 1, act, in_pass) if begins else None
            if not begins:
                act()
        elif not self._kernel.calm and self._chance.random() < self._held_up():
            self._pause(self._chance.choice((1, 5, 20, 100, 1_000)))

    def _held_up(self) -> float:
        return OUTDATED if self._kernel.task is not None and self._kernel.task.is_flow else HELD_UP

    def owns(self, task: Task | None) -> bool:
        """Is it one of this process's tasks?"""
        return task in self._tasks

    def serve(self, kind: str, path_id: str, body: BaseModel | None, reply: Reply) -> None:
        """Serve one call. A dead process answers nothing; a frozen one answers late."""
        if not self.is_up:
            return
        action = f"compute:reservation:{'create' if kind == 'reserve' else kind}"
        call = SimpleNamespace(
            services=self.services,
            guard=Guard(LOCAL, self.services.book, action, self._clock.moment().ms),
            path={"id": path_id},
            body=body,
            idempotency_key=None,
        )

        def work() -> None:
            try:
                if kind == "reserve" and self._kernel.task is not None:
                    self._kernel.task.is_flow = True
                answer = ran(HANDLERS[kind](cast("Call[Services, Any, None]", call)))
            except Problem as problem:
                answer = problem
            if isinstance(answer, ReportAnswer) and not answer.accepted:
                self._kernel.seen["staleReport"] += 1
            reply(answer)

        self._spawn(work)

    def poll(self, node_id: str, rev: int, reply: Reply) -> None:
        """Answer the desired state once it is above `rev`, or None after the wait."""
        if not self.is_up:
            return
        process = self.process

        def work() -> None:
            if ran(self._database.read(desired_rev, node_id)) > rev:
                reply(ran(self._database.write(desired, self._clock.moment(), node_id)))
            else:
                self._polls.append((node_id, rev, reply))
                self._kernel.after(POLL_MS, give_up)

        def give_up() -> None:
            if self.process == process and (node_id, rev, reply) in self._polls:
                self._polls.remove((node_id, rev, reply))
                reply(None)

        self._spawn(work)

    def revs_rose(self) -> None:
        """Some node's revision is being raised: look at the waiting polls soon."""
        self._every(self.process, WAKE_MS, self._wake)

    def _wake(self) -> None:
        polls, self._polls = self._polls, []
        for node_id, rev, reply in polls:
            self.poll(node_id, rev, reply)

    def _tick(self) -> None:
        is_due = self._passing is None or self._passing.done
        is_tick = self._kernel.now_ms // HASTE_MS % (TICK_MS // HASTE_MS) == 0
        if is_due and (is_tick or self.services.changed.beats > self._seen):
            self._seen = self.services.changed.beats
            self._spawn(self._run_pass, is_pass=True)
        self._every(self.process, HASTE_MS, self._tick)

    def _run_pass(self) -> None:
        try:
            ran(self._pass.run_once())
        except FencedError:
            self._kernel.seen["fencedWrite"] += 1

    def _every(self, process: int, ms: int, act: Callable[[], None]) -> None:
        def due() -> None:
            if self.is_up and self.process == process:
                act()

        self._kernel.after(ms, due)

    def _spawn(self, work: Callable[[], None], *, is_pass: bool = False) -> None:
        process = self.process

        def may_run_ms() -> int:
            if not self.is_up or self.process != process:
                return -1
            return max(0, self._frozen_until_ms - self._kernel.now_ms)

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is found
                self._kernel.violations.append(f"a task of {self.name} failed: {error!r}")

        task = Task(self._kernel, guarded, may_run_ms)
        self._tasks = [one for one in self._tasks if not one.done]
        self._tasks.append(task)
        if is_pass:
            self._passing = task
        task.go_on()

    def _pause(self, ms: int) -> None:
        if self._kernel.task is not None:
            self._kernel.task.pause(ms)


def ran(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: its transactions are held up inside, if at all."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    raise AssertionError("it waited for something")
