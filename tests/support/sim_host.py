"""A simulated GPU host: the agent's own core and reporter, a disk and a bind driver in memory, deaths at any act."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from muster_agent.core import machine
from muster_agent.core.desired import timed
from muster_agent.core.outcomes import after
from muster_agent.core.records import Act, Grant, Outcome, Revoke, State
from muster_agent.loop.reporter import Reporter
from muster_shared.wire import Credential, DesiredState, Report, ReportAnswer
from tests.support.agent_world import World
from tests.support.sim_coordinator import Answer, SimCoordinator
from tests.support.sim_hardware import Hardware
from tests.support.sim_kernel import START_MS, Kernel
from tests.support.sim_network import Network
from tests.support.truth import Exposure, Truth

if TYPE_CHECKING:
    from muster_agent.clock import Clock
    from muster_agent.loop.senses import Senses

REPORT_TIMEOUT_MS = 5_000
POLL_TIMEOUT_MS = 60_000
BLUR_MS = 1_000  # as the agent's loop: an answer under way for longer is asked for once more
LOOK_MS_MAX = 10_000  # the longest time without a look at what is due
DIES = 0.004  # of acts, each before it and after it
FAILS = 0.02  # of grants and revokes
DAWDLES = 0.25  # of revokes: a tenant's process that does not want to go


class SimHost(World):
    """One host and the agent on it.

    Args:
        kernel: Of the run.
        network: Between it and the coordinators.
        truth: Where its driver's deeds are logged.
        name: Of the node.
        hardware: What it is.
    """

    def __init__(self, kernel: Kernel, network: Network, truth: Truth, name: str, hardware: Hardware) -> None:
        self.chance = kernel.chance(name)
        self.name = name
        self.kernel = kernel
        self.network = network
        self.truth = truth
        self.hardware = hardware
        self.wall_ms = self.chance.randrange(-3_600_000, 3_600_000)  # how wrong its wall clock is
        self.coordinators: list[SimCoordinator] = []
        self.credential: Credential | None = None
        self.process = 0
        self.boots = 0
        self.is_up = self.is_alive = False
        self._polls = 0
        super().__init__()

    # The host.

    def power_on(self) -> None:
        """Boot: a new boot id, a boot clock from zero, nothing exposed."""
        self.boots += 1
        self.is_up = True
        self._booted_ms = self.kernel.now_ms - self.chance.randrange(5_000, 30_000)
        self.reboot(f"{self.name}-boot-{self.boots}")
        self.start()

    def power_off(self) -> None:
        """Go down with everything that runs on it."""
        self.kernel.seen["reboot"] += 1
        self.is_up = False
        self.die()
        self.truth.rebooted(self.name_in_truth, self.kernel.now_ms)

    @property
    def name_in_truth(self) -> str:
        assert self.credential is not None
        return self.credential.node_id

    # Time and chance, as the agent's clock port.

    def now_boot_ms(self) -> int:
        return self.kernel.now_ms - self._booted_ms

    def random(self) -> float:
        return self.chance.random()

    # The process.

    def start(self) -> None:
        """Begin a process: it knows its disk, and reads the GPUs a moment later."""
        self.process += 1
        self.is_alive = True
        self.live = None
        self.facts = None
        self.truth.awake_since_ms[self.name_in_truth] = self.kernel.now_ms
        self.boot_ms = self.now_boot_ms()
        self._turn = self._acts = 0
        self._is_reporting = self._is_dawdling = False
        self.reporter = Reporter(cast("Senses", self.hardware), cast("Clock", _Clock(self)), "sim")
        self.soon(0, self.act)
        self.soon(self.chance.randrange(200, 2_000), self._look_around)

    def die(self) -> None:
        """End the process; disk and artefacts stay."""
        self.kernel.seen["agentDied"] += 1
        self.is_alive = False
        self.kill()
        self.truth.awake_since_ms.pop(self.name_in_truth, None)

    def soon(self, ms: int, act: Callable[[], None]) -> None:
        """Do something later, if this process is still the one that runs."""
        process = self.process

        def due() -> None:
            if self.is_alive and self.process == process:
                act()

        self.kernel.after(ms, due)

    def _look_around(self) -> None:
        self.facts = self.hardware.facts
        self.act()
        self.report()
        self.poll()

    def changed(self) -> None:
        """The senses found something new."""
        if self.is_alive and self.facts is not None:
            self.facts = self.hardware.facts
            self.act()

    # Acts.

    @property
    def state(self) -> State:
        if self.live is None:
            assert self.credential is not None
            awake = machine.awake(self.boot_id, self.records, self.fence)
            joined = machine.joined(awake, self.credential.cluster_id, self.credential.node_id)
            assert isinstance(joined, State)
            self.live = joined
        return self.live

    def act(self) -> None:
        """Do what is due, until nothing is, or the process dies, or an act takes its time."""
        if self._is_dawdling:
            return
        while act := self._next():
            if self._dies():
                return
            if isinstance(act, Revoke) and not self.kernel.calm and self.chance.random() < DAWDLES:
                self.kernel.seen["slowUnbind"] += 1
                self._is_dawdling = True
                self.truth.awake_since_ms.pop(self.name_in_truth, None)  # it can end nothing else meanwhile
                self.soon(self.chance.randrange(1_000, 30_000), partial(self._dawdled, act))
                return
            self._do(act)
            if not self.is_alive or self._dies():
                return
        if self.facts is not None and not self._is_reporting and self.reporter.is_news(self.state):
            self.soon(20, self.report)
        self._acts += 1
        turn = self._acts
        self.soon(self._pause_ms(), lambda: self.act() if turn == self._acts else None)

    def _dawdled(self, act: Act) -> None:
        self._is_dawdling = False
        self.truth.awake_since_ms[self.name_in_truth] = self.kernel.now_ms
        self._do(act)
        self.act()

    def _next(self) -> Act | None:
        self.boot_ms = self.now_boot_ms()
        return machine.next_act(self.state, self.facts, self.boot_ms)

    def _do(self, act: Act) -> None:
        trouble = self._trouble(act)
        if trouble is None or self.chance.random() < 0.5:  # a driver may fail before its deed or after it
            self.perform(act)
            self._log(act)
        self.boot_ms = self.now_boot_ms()
        self.live = after(self.state, act, Outcome(self.boot_ms, trouble or self._look(act)))

    def _trouble(self, act: Act) -> str | None:
        if self.kernel.calm or not isinstance(act, Grant | Revoke) or self.chance.random() >= FAILS:
            return None
        self.kernel.seen["actFailed"] += 1
        return "the driver is in trouble"

    def _dies(self) -> bool:
        if self.kernel.calm or self.chance.random() >= DIES:
            return False
        self.kernel.seen["diedAtAct"] += 1
        self.die()
        self.kernel.after(self.chance.randrange(1_000, 40_000), self.restart)
        return True

    def restart(self) -> None:
        """Let systemd start the agent again, where the host is up and it does not run."""
        if self.is_up and not self.is_alive:
            self.start()

    def _log(self, act: Act) -> None:
        now_ms, node_id = self.kernel.now_ms, self.name_in_truth
        if isinstance(act, Grant):
            record = act.record
            devices = frozenset(record.devices)
            self.truth.exposed(
                Exposure(node_id, self.boot_id, record.allocation_id, record.reservation_id, devices, now_ms)
            )
        elif isinstance(act, Revoke):
            self.truth.withdrawn(node_id, act.record.allocation_id, now_ms)

    def _pause_ms(self) -> int:
        """Return when something will be due, and a little: the agent looks once a second."""
        state, now = self.state, self.boot_ms
        hours = [now + LOOK_MS_MAX]
        for record in state.records.values():
            order = state.order_for(record)
            hours += [record.end_boot_ms if order is None else order.end_boot_ms, record.retry_boot_ms]
            hours.append(state.memory_of(record.allocation_id).retry_boot_ms)
        if state.desired:
            hours += [order.start_boot_ms for order in state.desired.orders.values()]
        return min(hour for hour in hours if hour > now) - now + self.chance.randrange(50, 950)

    # Talk.

    def report(self) -> None:
        """Send a report to either coordinator, and again at the next heartbeat."""
        if self._is_reporting:
            return
        self._is_reporting = True
        self._turn += 1
        turn = self._turn
        sent = self.reporter.compose(self.state)
        self._call("report", sent, lambda answer: self._reported(turn, answer))
        self.soon(REPORT_TIMEOUT_MS, lambda: self._reported(turn, None))

    def _reported(self, turn: int, answer: Answer) -> None:
        if turn != self._turn or not self._is_reporting:
            return
        self._is_reporting = False
        is_urgent = False
        if isinstance(answer, ReportAnswer):
            is_urgent = self.reporter.take_answer(answer)
        urgent = is_urgent or self.reporter.is_news(self.state)
        self.soon(20 if urgent else self.reporter.pause_ms(), lambda: self.report() if turn == self._turn else None)

    def poll(self, rev: int | None = None) -> None:
        """Ask for the desired state, and again when that is answered."""
        self._polls += 1
        turn, sent_boot_ms = self._polls, self.now_boot_ms()
        before = self.state.desired
        known = (before.fence.rev if before else 0) if rev is None else rev

        def answered(answer: Answer) -> None:
            waited = self.now_boot_ms() - sent_boot_ms > BLUR_MS
            if isinstance(answer, DesiredState):
                self._take(answer, sent_boot_ms)
            if turn == self._polls and waited and (answer is not None or (before and before.orders)):
                self.poll(0)  # grants roll on, and an answer that was long under way ends them too early
            elif turn == self._polls:
                self.soon(1_000 if rev == 0 else 50, self.poll)

        self._call("desired", known, answered)
        self.soon(POLL_TIMEOUT_MS, lambda: self.poll() if turn == self._polls else None)

    def _take(self, answer: DesiredState, sent_boot_ms: int) -> None:
        wanted = timed(answer, sent_boot_ms=sent_boot_ms, received_boot_ms=self.now_boot_ms())
        taken = machine.take(self.state, wanted)
        if isinstance(taken, str):
            self.kernel.seen["oldReplyIgnored"] += taken.startswith("old")
            return
        self.live = taken
        self.act()

    def _call(self, kind: str, body: Report | int, on_answer: Callable[[Answer], None]) -> None:
        coordinator = self.chance.choice(self.coordinators)
        process = self.process

        def answered(answer: Answer) -> None:
            if self.is_alive and self.process == process:
                on_answer(answer)

        def reply(answer: Answer) -> None:
            self.network.carry(coordinator.name, self.name, lambda: answered(answer))

        def deliver() -> None:
            if isinstance(body, Report):
                coordinator.serve(kind, self.name_in_truth, body, reply)
            else:
                coordinator.poll(self.name_in_truth, body, reply)

        self.network.carry(self.name, coordinator.name, deliver)


class _Clock:
    """The agent's clock port on simulated time; only the reporter asks it."""

    def __init__(self, host: SimHost) -> None:
        self._host = host

    def boot_ms(self) -> int:
        return self._host.now_boot_ms()

    def unix_ms(self) -> int:
        return START_MS + self._host.kernel.now_ms + self._host.wall_ms

    def random(self) -> float:
        return self._host.random()

    async def sleep(self, ms: int) -> None:
        raise AssertionError(f"the reporter never sleeps, not even {ms} ms")
