"""What goes wrong in a simulated system, and how each of it is mended again."""

from collections.abc import Callable
from functools import partial

from muster_coordinator.service.bodies import Reason
from muster_shared.wire import Hold
from tests.support.sim_coordinator import Answer, SimCoordinator
from tests.support.sim_host import SimHost
from tests.support.sim_kernel import Kernel
from tests.support.sim_network import Network


class Faults:
    """Draws faults one after the other until the run is calm, then mends everything.

    Args:
        kernel: Of the run.
        network: To be cut.
        coordinators: To crash and freeze.
        hosts: To kill, reboot, cut off, hold and cordon.
        pause_ms: Between two faults, on average.
        without: Kinds that are left out, to shrink a failure.
    """

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        coordinators: list[SimCoordinator],
        hosts: list[SimHost],
        pause_ms: int,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._coordinators = coordinators
        self._hosts = hosts
        self._pause_ms = pause_ms
        self._chance = kernel.chance("faults")
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill": (4, self._kill),
            "reboot": (3, self._reboot),
            "part": (4, self._part),
            "partMany": (1, self._part_many),
            "hold": (4, self._hold),
            "fabric": (2, self._move_fabric),
            "cordon": (2, self._cordon),
            "crash": (3, self._crash),
            "freeze": (4, self._freeze),
        }
        self._kinds = {name: kind for name, kind in kinds.items() if name not in without}
        kernel.after(pause_ms, self._next)

    def _next(self) -> None:
        if self._kernel.calm or not self._kinds:
            return
        names = list(self._kinds)
        name = self._chance.choices(names, [self._kinds[one][0] for one in names])[0]
        self._kernel.seen[name] += 1
        self._kinds[name][1]()
        self._kernel.after(self._chance.randrange(2 * self._pause_ms), self._next)

    def mend(self) -> None:
        """End every fault. From here on the system has to come to rest."""
        self._kernel.calm = True
        self._network.cut.clear()
        for coordinator in self._coordinators:
            coordinator.disarm()
            if not coordinator.is_up:
                coordinator.start()
        for host in self._hosts:
            host.hardware.holds.clear()
            host.hardware.domain = host.hardware.home
            if not host.is_up:
                host.power_on()
            elif not host.is_alive:
                host.start()
            host.changed()
            self._order("open", host)

    def _later(self, least_ms: int, most_ms: int, act: Callable[[], None]) -> None:
        self._kernel.after(self._chance.randrange(least_ms, most_ms), act)

    def _host(self) -> SimHost:
        return self._chance.choice(self._hosts)

    def _kill(self) -> None:
        host = self._host()
        if host.is_alive:
            host.die()
            self._later(1_000, 120_000, host.restart)

    def _reboot(self) -> None:
        host = self._host()
        if not host.is_up:
            return
        host.power_off()
        self._later(20_000, 240_000, lambda: None if host.is_up else host.power_on())
        if self._chance.random() < 0.5:
            # An operator sees it dark and attests, which is true until it boots again.
            self._later(90_000, 150_000, lambda: None if host.is_up else self._order("fence", host))

    def _part(self) -> None:
        host = self._host()
        coordinators = self._chance.choice((self._coordinators, [self._chance.choice(self._coordinators)]))
        one_way = self._chance.random() < 0.3
        for coordinator in coordinators:
            self._network.part(host.name, coordinator.name, one_way=one_way)
            self._later(5_000, 180_000, partial(self._network.join, host.name, coordinator.name))

    def _part_many(self) -> None:
        """Cut a whole fabric off."""
        domain = self._host().hardware.home
        pause_ms = self._chance.randrange(10_000, 150_000)
        for host in self._hosts:
            if host.hardware.home == domain:
                for coordinator in self._coordinators:
                    self._network.part(host.name, coordinator.name)
                    self._kernel.after(pause_ms, partial(self._network.join, host.name, coordinator.name))

    def _hold(self) -> None:
        host = self._host()
        device = self._chance.choice((*host.hardware.gpus, None))
        hold = Hold(device=device, cause="xid", code=79, since_ms=host.wall_ms + 4_000_000, clears_by="operator")
        host.hardware.holds.append(hold)
        host.changed()

        def clear() -> None:
            if hold in host.hardware.holds:
                host.hardware.holds.remove(hold)
                host.changed()

        self._later(5_000, 200_000, clear)

    def _move_fabric(self) -> None:
        host = self._host()
        host.hardware.domain = self._chance.choice((None, *sorted({one.hardware.home for one in self._hosts})))
        host.changed()

        def back() -> None:
            host.hardware.domain = host.hardware.home
            host.changed()

        self._later(10_000, 200_000, back)

    def _cordon(self) -> None:
        host = self._host()
        self._order(self._chance.choice(("cordon", "drain")), host)
        self._later(10_000, 200_000, lambda: self._order("open", host))

    def _crash(self) -> None:
        coordinator = self._chance.choice(self._coordinators)
        if coordinator.is_up:
            coordinator.arm(self._chance.randrange(12), coordinator.crash)
            self._later(6_000, 60_000, lambda: None if coordinator.is_up else coordinator.start())

    def _freeze(self) -> None:
        coordinator = self._chance.choice(self._coordinators)
        if coordinator.is_up:
            ms = self._chance.randrange(2_000, 60_000)
            coordinator.arm(self._chance.randrange(8), lambda: coordinator.freeze(ms), in_pass=True)

    def _order(self, kind: str, host: SimHost) -> None:
        """Let an operator order something; a coordinator that is down is asked for in vain."""
        coordinator = self._chance.choice([one for one in self._coordinators if one.is_up] or self._coordinators)

        def reply(_answer: Answer) -> None:
            self._kernel.seen[f"ordered {kind}"] += 1

        coordinator.serve(kind, host.name, Reason(reason="the simulation"), reply)
