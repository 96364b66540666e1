"""Every cut point of bind and unbind with the real drivers: killed at each effect, started again, the same end."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from muster_agent.core import machine
from muster_agent.core.desired import Desired
from muster_agent.core.outcomes import after
from muster_agent.core.records import EXPOSED, Evict, Facts, State
from muster_agent.drivers import commands
from muster_agent.drivers.bind import BindError, artefact
from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.bind.hooks import Hooks
from muster_agent.drivers.bind.imex import Imex
from muster_agent.drivers.bind.systemd import SystemdDevices
from muster_agent.drivers.leavings import Leavings
from muster_agent.drivers.sentry import Sentry
from muster_agent.holders.processes import Allowed, ProcessTable
from muster_agent.journal import Journal
from muster_agent.loop.hands import Hands
from tests.support.agent_world import HOUR_MS, desired, order
from tests.support.hardware import HostFiles
from tests.support.programs import script
from tests.support.virtual_clock import VirtualClock

GANG = order("alloc_a", "GPU-0", imex_channel=3, imex_peers=("a", "b"), preempt_boot_ms=900_000, kill_grace_ms=2_000)
NEXT = order("alloc_b", "GPU-0", generation=2, end_boot_ms=20 * HOUR_MS, kill_grace_ms=2_000)


WHEN = re.compile(r'"(since|retry)_boot_ms":\d+')
"""A life that was cut gives its tenant another grace, so its dates are later. Nothing else may differ."""


class Killed(BaseException):
    """The process died here. No `except` of the agent's sees it."""


async def inline(work: Callable[[], None]) -> None:
    work()


class World:
    """The host: files in a folder, systemd, hooks and tenants in memory. It outlives every process of the agent."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cut: tuple[int, str] | None) -> None:
        self.folder = folder
        self.cut = cut
        self.effects: list[str] = []
        self.units: dict[str, list[str]] = {}
        self.timers: set[str] = set()
        self.hooked: set[str] = set()
        self.tenants: set[str] = set()
        self.clock = VirtualClock(boot_ms=600_000)
        self.journal: Journal | None = None  # of the process that lives now
        self.host = HostFiles(folder)
        self.host.gpu("GPU-0", 0)
        (folder / "systemd").mkdir()
        for phase in ("bind", "unbind", "preempt"):
            script(folder / "etc" / f"{phase}.d" / "site", "")
        monkeypatch.setattr(commands, "run", self.run)
        for name in ("write", "remove"):
            monkeypatch.setattr(artefact, name, self._counted(name, getattr(artefact, name)))
        for name in ("save", "forget", "save_fence"):
            monkeypatch.setattr(Journal, name, self._counted(name, getattr(Journal, name)))

    def effect(self, name: str, act: Callable[[], Any]) -> Any:
        """Do something that lasts, and die before or after it where the test says so."""
        self.effects.append(name)
        number, how = self.cut or (0, "")
        if number == len(self.effects) and how == "before":
            raise Killed
        done = act()
        if number == len(self.effects) and how == "after":
            raise Killed
        return done

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **more: self.effect(f"{name} {Path(str(args[0])).name}", lambda: real(*args, **more))

    def run(self, words: Sequence[str], _limit_ms: int, variables: Mapping[str, str] | None = None) -> commands.Ended:
        said: str = self.effect(" ".join(words[:2]), lambda: self._ran([*words], variables or {}))
        return commands.Ended(0, said)

    def _ran(self, words: list[str], variables: Mapping[str, str]) -> str:
        match words:
            case ["systemctl", "set-property", _, _, unit, _, *allowed]:
                self.units[unit] = [word.partition("=")[2] for word in allowed if word != "DeviceAllow="]
            case ["systemctl", "show", *_, unit]:
                allowed = self.units.get(unit, [])
                return "\n".join(["DevicePolicy=closed", *(f"DeviceAllow={entry}" for entry in allowed)])
            case ["systemctl", "list-units", *_, pattern]:
                return "\n".join(timer for timer in sorted(self.timers) if timer.startswith(pattern.partition("*")[0]))
            case ["systemctl", "stop", *timers]:
                self.timers -= set(timers)
            case [*_, "nvidia-modprobe", "-c", channel]:
                self.host.node(f"nvidia-caps-imex-channels/channel{channel}")
            case ["systemd-run", *_]:
                unit = next(word for word in words if word.startswith("--unit=")).partition("=")[2]
                self.timers.add(f"{unit}.timer")
            case ["nvidia-imex-ctl", "-q"]:
                return "READY"
            case [_, "bind", _]:
                self.hooked.add(variables["MUSTER_ALLOCATION"])
            case [_, "unbind", _]:
                self.hooked.discard(variables["MUSTER_ALLOCATION"])
            case _:
                pass
        return ""

    def outcome(self) -> object:
        files = {
            str(path.relative_to(self.folder)): WHEN.sub("when", path.read_text(errors="replace"))
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name not in {"alive", "lock"}
        }
        return files, self.units, self.timers, self.hooked, self.tenants


class Tenants(Leavings):
    """Ends what the world says runs on a device; the first TERM is not enough for it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.host.nodes, ProcessTable(world.folder))
        self._world = world

    def evict(self, act: Evict) -> None:
        left = self._world.tenants & {act.record.allocation_id}
        if act.force:
            self._world.effect("kill", lambda: self._world.tenants.discard(act.record.allocation_id))
        elif left:
            raise BindError("ending: pid 7")


class Process:
    """One life of the agent on the world's disk."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.journal = world.journal = Journal.open(world.folder / "state")
        folder, nodes = world.folder, world.host.nodes
        drivers = (
            Imex(nodes, folder / "nodes_config.cfg"),
            EnvFile(folder / "run"),
            Cdi(folder / "cdi", nodes),
            SystemdDevices("muster-{allocation}.slice", nodes),
            Hooks(folder / "etc", folder / "state" / "hooks", 1_000),
        )
        sentry = Sentry(folder / "run", nodes, drivers, Allowed(), "boot-1", world.clock.boot_ms, folder / "systemd")
        records = self.journal.records()
        for driver in drivers:
            driver.sweep(records)
        sentry.sweep({key for key, record in records.items() if record.state in EXPOSED})
        joined = machine.joined(machine.awake("boot-1", records, self.journal.fence()), "cluster_1", "node_1")
        assert isinstance(joined, State)
        self.state = joined
        self.hands = Hands(self.journal, drivers, world.clock, leavings=Tenants(world), sentry=sentry, aside=inline)

    async def settle(self, wanted: Desired) -> None:
        taken = machine.take(self.state, wanted)
        assert isinstance(taken, State), taken
        self.state = taken
        facts = Facts(frozenset({"GPU-0"}))
        for _ in range(400):
            act = machine.next_act(self.state, facts, self.world.clock.boot_ms())
            if act is None:
                if not any(record.state in {"unbinding", "binding"} for record in self.state.records.values()):
                    return
                await self.world.clock.advance(1_000)
                continue
            self.state = after(self.state, act, await self.hands.perform(act))
        raise AssertionError(f"no rest: {self.state}")


async def play(world: World) -> None:
    """A bind, its notice, a hand-over to the next one, and that one's end."""
    process: Process | None = None
    for wanted in (desired(1, [GANG]), desired(2, [NEXT]), desired(3)):
        while True:
            try:
                process = process or Process(world)
                await process.settle(wanted)
                break
            except Killed:
                process, world.cut = None, None
                if world.journal:
                    world.journal.close()
        world.tenants |= {key for key, record in process.journal.records().items() if record.state == "bound"}
    assert process
    process.journal.close()


def played(folder: Path, monkeypatch: pytest.MonkeyPatch, cut: tuple[int, str] | None) -> World:
    with monkeypatch.context() as patch:
        folder.mkdir()
        world = World(folder, patch, cut)
        asyncio.run(play(world))
    return world


def test_killed_at_any_effect_and_started_again_the_host_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = played(tmp_path / "calm", monkeypatch, None)
    assert {name.split()[0] for name in calm.effects} >= {"save", "write", "remove", "systemctl", "systemd-run", "kill"}
    expected = calm.outcome()

    for number in range(1, len(calm.effects) + 1):
        for how in ("before", "after"):
            world = played(tmp_path / f"{number}-{how}", monkeypatch, (number, how))
            assert world.outcome() == expected, (number, how, calm.effects[number - 1])
