"""A reset between tenants: NVML is let go of, the helper runs, and the GPU must come back as it was."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.facts import facts_of
from muster_agent.core.health import Health
from muster_agent.core.inventory import InventoryFold
from muster_agent.core.readings import GpuEvent, HostReading, KernelLogReading, MigReading, NodeReading
from muster_agent.core.records import Evict, Instance, Reset, Save
from muster_agent.drivers.bind import BindError
from muster_agent.drivers.commands import run
from muster_agent.drivers.fake import fake_host
from muster_agent.journal import Journal
from muster_agent.loop.hands import Hands
from muster_agent.loop.resetting import BACK_MS_MAX, Quietened, Resetting
from muster_shared.wire import Hold
from tests.agent.test_journal import RECORD
from tests.support.programs import script
from tests.support.virtual_clock import VirtualClock

CLUSTER = "0c2f1a3b-0000-4000-8000-000000000001"
WELL = fake_host("gpu-01", gpus=2, cluster=CLUSTER)
UUIDS = tuple(gpu.uuid for gpu in WELL.gpus if gpu.uuid)
SICK = replace(WELL, gpus=(replace(WELL.gpus[0], recovery_action=1), WELL.gpus[1]))
MOVED = fake_host("gpu-01", gpus=2, cluster=CLUSTER, clique=9)
OK = KernelLogReading("ok")


class Gpus:
    """A driver that says one reading until it is reset, then others, the last for ever."""

    def __init__(self, *after: NodeReading, lets_go: bool = True) -> None:
        self.after = list(after)
        self.lets_go = lets_go
        self.story: list[str] = []

    async def read(self) -> NodeReading:
        self.story.append("read")
        if "reset" not in " ".join(self.story):
            return SICK
        return self.after.pop(0) if len(self.after) > 1 else self.after[0]

    async def events(self) -> AsyncIterator[GpuEvent]:
        await asyncio.get_running_loop().create_future()
        yield GpuEvent("nvml", 0, None, None, 0)

    async def let_go(self) -> bool:
        self.story.append("let go")
        return self.lets_go

    async def close(self) -> None: ...

    async def helper(self, gpu: str) -> None:
        self.story.append(f"reset {gpu}")


def resetting(gpus: Gpus, clock: VirtualClock, noted: list[str]) -> Resetting:
    return Resetting(Quietened(gpus), noted.extend, clock, gpus.helper)


async def test_nvml_is_let_go_of_before_the_helper_and_taken_up_after_it() -> None:
    gpus, noted = Gpus(WELL), list[str]()

    await resetting(gpus, VirtualClock(), noted).reset(UUIDS[:1])

    assert gpus.story == ["read", "let go", f"reset {UUIDS[0]}", "read"]
    assert noted == [UUIDS[0]]


async def test_a_fabric_that_is_not_complete_yet_is_waited_for() -> None:
    rising = replace(WELL, gpus=(replace(WELL.gpus[0], fabric=None), WELL.gpus[1]))
    gpus, clock, noted = Gpus(NodeReading("driverNotLoaded"), rising, WELL), VirtualClock(), list[str]()

    reset = asyncio.create_task(resetting(gpus, clock, noted).reset(UUIDS[:1]))
    await clock.advance(10_000)
    await reset

    assert gpus.story[-3:] == ["read", "read", "read"]


@pytest.mark.parametrize("reading", [MOVED, SICK, replace(WELL, gpus=WELL.gpus[1:])])
async def test_a_gpu_that_comes_back_elsewhere_or_sick_or_not_at_all_is_told_and_noted_as_nothing(
    reading: NodeReading,
) -> None:
    clock, noted = VirtualClock(), list[str]()

    reset = asyncio.create_task(resetting(Gpus(reading), clock, noted).reset(UUIDS[:1]))
    await clock.advance(BACK_MS_MAX + 5_000)

    with pytest.raises(BindError, match="has not come back as it was"):
        await reset
    assert noted == []


async def test_a_call_into_nvml_that_hangs_forbids_the_reset() -> None:
    gpus = Gpus(WELL, lets_go=False)

    with pytest.raises(BindError, match="hangs"):
        await resetting(gpus, VirtualClock(), []).reset(UUIDS[:1])
    assert gpus.story == ["read", "let go"]


async def test_whoever_reads_during_a_reset_gets_the_last_reading_at_once_and_touches_no_gpu() -> None:
    gpus = Gpus(WELL)
    quietened = Quietened(gpus)
    before = await quietened.read()
    async with quietened.quiet():
        assert await quietened.read() is before
    assert gpus.story == ["read"]

    await quietened.read()
    assert gpus.story == ["read", "read"]


async def test_the_hands_reset_and_a_failed_reset_is_trouble_not_an_end(tmp_path: Path) -> None:
    journal, clock = Journal.open(tmp_path), VirtualClock()
    hands = Hands(journal, [], clock, resetting=resetting(Gpus(WELL, lets_go=False), clock, []))

    outcome = await hands.perform(Reset(RECORD, UUIDS[:1]))

    assert outcome.trouble
    assert (await Hands(journal, [], clock).perform(Reset(RECORD, UUIDS[:1]))).trouble is None
    journal.close()


async def test_acts_that_touch_the_world_run_aside_and_writing_does_not(tmp_path: Path) -> None:
    journal, aside = Journal.open(tmp_path), list[str]()

    async def note(_work: object) -> None:
        aside.append("aside")

    hands = Hands(journal, [], VirtualClock(), aside=note)
    await hands.perform(Save(RECORD))
    assert aside == []
    await hands.perform(Evict(RECORD, (), (), 0, force=False))
    assert aside == ["aside"]
    journal.close()


def test_a_hold_that_waits_for_a_reset_ends_with_the_first_good_reading_after_ours() -> None:
    fault = GpuEvent("nvml", 95, UUIDS[0], None, 1_000)
    held = Health().after_reading(WELL, 0, "boot-1", 500, OK).after_event(fault, 0, "boot-1")
    assert [hold.clears_by for hold in held.holds if hold.device == UUIDS[0]] == ["gpuResetVerified"]

    assert held.after_reading(WELL, 0, "boot-1", 2_000, OK).holds
    assert held.after_reset(UUIDS[1:]).after_reading(WELL, 0, "boot-1", 3_000, OK).holds
    assert not held.after_reset(UUIDS[:1]).after_reading(WELL, 0, "boot-1", 4_000, OK).holds


@pytest.mark.parametrize("mode", ["Enabled", "Disabled"])
@pytest.mark.parametrize("status", [0, 15])
def test_the_helper_leaves_persistence_mode_as_it_was_also_where_the_reset_fails(
    tmp_path: Path, mode: str, status: int
) -> None:
    script(
        tmp_path / "nvidia-smi",
        f'echo "$1" >> {tmp_path}/log\ncase $1 in --query*) echo {mode};; --gpu-reset) exit {status};; esac\n',
    )
    helper = Path(__file__).parents[2] / "systemd" / "muster-reset"

    ended = run([str(helper), "GPU-1"], 20_000, {"PATH": f"{tmp_path}:/usr/bin:/bin"})

    asked, *done = (tmp_path / "log").read_text().splitlines()
    assert (asked, ended.status) == ("--query-gpu=persistence_mode", status)
    kept_off = ["--persistence-mode=0", "--gpu-reset", "--persistence-mode=1"]
    assert done == (kept_off if mode == "Enabled" else ["--gpu-reset"])


def test_binding_asks_for_instances_where_a_gpu_is_split_and_for_whom_nvml_saw() -> None:
    mig = (MigReading("MIG-a", "1g.10gb", 1, 9_728, 7, 0), MigReading("MIG-b", "1g.10gb", 1, 9_728, 8, 0))
    split = replace(WELL.gpus[0], mig_mode=True, mig_slices_max=7, mig=mig)
    reading = replace(WELL, gpus=(split, replace(WELL.gpus[1], pids=(7, 9))))
    host = HostReading("gpu-01", "0123456789abcdef", "boot-1", 4, 1_024)
    inventory = InventoryFold().after(reading, host, 1_000, OK).inventory
    assert inventory
    hold = Hold(device=UUIDS[0], cause="xid", code=79, since_ms=0, clears_by="operator")

    facts = facts_of(inventory, [hold], reading, 1_000)

    assert facts.devices == {"MIG-a", "MIG-b", UUIDS[1]}
    assert facts.instances == (Instance("MIG-a", UUIDS[0], 7, 0), Instance("MIG-b", UUIDS[0], 8, 0))
    assert (facts.pids, facts.read_boot_ms, facts.holds) == ({UUIDS[1]: (7, 9)}, 1_000, (hold,))
    assert facts.computing([UUIDS[1], "MIG-a"]) == (7, 9)
