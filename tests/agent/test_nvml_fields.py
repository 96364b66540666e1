"""The NVML process on a stub library: every further field of a GPU, and what each costs where it is missing."""

from dataclasses import replace

from muster_agent.core.mig import profile_name
from muster_agent.core.readings import GpuReading
from muster_agent.drivers.nvml_process import NvmlProcess
from muster_shared.wire import MemoryHealth
from tests.support.nvml_host import children, read, soon
from tests.support.stub import StubHost

NO_FUNCTION = 13
FIELDS = {
    "nvmlDeviceGetEccMode": {"memory_health": MemoryHealth()},
    "nvmlDeviceGetTotalEccErrors": {"memory_health": MemoryHealth(ecc=True)},
    "nvmlDeviceGetSramEccErrorStatus": {"memory_health": MemoryHealth(ecc=True)},
    "nvmlDeviceGetRemappedRows": {},
    "nvmlDeviceGetPersistenceMode": {"persistence": None},
    "nvmlDeviceGetMigMode": {},
    "nvmlDeviceGetCurrentClocksEventReasons": {},
    "nvmlDeviceGetNvLinkState": {"links": 0, "island": 0xA00},
    "nvmlDeviceGetNvLinkRemoteDeviceType": {"island": 0xA00},
    "nvmlDeviceGetP2PStatus": {},
    "nvmlDeviceGetMemoryInfo": {"memory_mib": 0},
    "nvmlDeviceGetMemoryAffinity": {"numa": None},
    "nvmlDeviceGetName": {"model": ""},
    "nvmlDeviceGetFieldValues": {"recovery_action": None},
    "nvmlDeviceGetComputeRunningProcesses_v3": {},
}
"""Function -> what a reading lacks of a driver that does not have it."""


async def first(gpus: NvmlProcess) -> GpuReading:
    return (await read(gpus)).gpus[0]


async def test_a13_each_function_that_a_driver_lacks_costs_its_own_field(host: StubHost, gpus: NvmlProcess) -> None:
    """Drivers of 535 lack some, and those of 2022 more: none of them may cost the scan."""
    whole = await first(gpus)
    for function, lacking in FIELDS.items():
        host.rule(function, code=NO_FUNCTION)
        assert await first(gpus) == replace(whole, **lacking), function  # type: ignore[arg-type]  # names of fields
        host.unrule(function)


async def test_a13_a_driver_of_535_is_read_without_a_single_error(host: StubHost, gpus: NvmlProcess) -> None:
    """Before 12.560: only the first fabric call, no recovery action, the old name of the clock reasons."""
    host.set_system(driver="535.54.03", fabric_max=1)
    host.set_all(fi_230=None)
    host.set(0, clocks=0x40)
    host.rule("nvmlDeviceGetCurrentClocksEventReasons", code=NO_FUNCTION)
    reading = await read(gpus)

    assert reading.gpus[0].slowdowns == ("hwThermal",)
    assert [(gpu.error, gpu.lost, gpu.fabric and gpu.fabric.clique) for gpu in reading.gpus] == [(None, False, 1)] * 4


async def test_a54_mig_instances_are_read_with_gaps_between_their_indexes(host: StubHost, gpus: NvmlProcess) -> None:
    uuids = host.split(1, 3, 2, 1, first=1, step=2)
    reading = await read(gpus)

    split = reading.gpus[1]
    assert (split.mig_mode, split.mig_slices_max, split.error) == (True, 7, None)
    assert [(one.uuid, one.profile, one.slices, one.memory_mib, one.gpu_instance) for one in split.mig] == [
        (uuids[0], "3g.30gb", 3, 29_184, 3),
        (uuids[1], "2g.20gb", 2, 19_456, 4),
        (uuids[2], "1g.10gb", 1, 9_728, 5),
    ]
    assert [(gpu.mig_mode, gpu.mig) for gpu in reading.gpus if gpu is not split] == [(False, ())] * 3


async def test_a54_a_mig_layout_that_changes_is_told_at_once_and_read_anew(host: StubHost, gpus: NvmlProcess) -> None:
    old = host.split(0, 7)
    assert [one.uuid for one in (await first(gpus)).mig] == old
    new = host.split(0, 3, 3)
    host.event(0, 0x100, 0)

    event = await soon(anext(gpus.events()))
    assert (event.kind, event.uuid, event.text) == ("changed", host.uuid(0), "MIG configuration")
    assert [one.uuid for one in (await first(gpus)).mig] == new


async def test_mig_that_is_only_pending_is_not_on(host: StubHost, gpus: NvmlProcess) -> None:
    host.set(0, mig=0, mig_pending=1)

    assert (await first(gpus)).mig_mode is False


async def test_a_mig_instance_whose_name_says_nothing_is_named_by_its_size(host: StubHost, gpus: NvmlProcess) -> None:
    host.split(0, 3)
    host.migs[0].update(profile=None, ci_slices=1, memory=40_192)
    host.write()

    [instance] = (await first(gpus)).mig
    assert (instance.profile, instance.slices) == ("1c.3g.40gb", 1)


def test_profiles_are_named_as_people_name_them() -> None:
    """Each GPU's memory in MiB, then instances as its maker lists them."""
    told = {
        (slices, memory_mib): profile_name(slices, slices, memory_mib, whole_mib)
        for whole_mib, slices, memory_mib in (
            (40_536, 1, 4_864),
            (40_536, 7, 40_192),
            (81_559, 1, 9_728),
            (81_559, 3, 40_192),
            (143_771, 1, 16_384),
            (0, 2, 20_000),
        )
    }

    assert list(told.values()) == ["1g.5gb", "7g.40gb", "1g.10gb", "3g.40gb", "1g.18gb", "2g.20gb"]


async def test_memory_errors_are_read_where_ecc_is_on(host: StubHost, gpus: NvmlProcess) -> None:
    host.set_all(ecc_00=70, ecc_10=2, ecc_11=5)
    host.set(0, sram_exceeded=1)
    host.set(1, ecc=0)
    host.set(2, ecc=None)
    host.set(3, remap=None, retired=1, retired_single=2, retired_double=3)
    told = [gpu.memory_health for gpu in (await read(gpus)).gpus]

    assert told == [
        MemoryHealth(ecc=True, corrected=70, uncorrected=2, uncorrected_ever=5, sram_exceeded=True),
        MemoryHealth(ecc=False),
        MemoryHealth(),
        MemoryHealth(ecc=True, corrected=70, uncorrected=2, uncorrected_ever=5, retired_pages=5),
    ]


async def test_a47_links_are_counted_as_the_card_has_them(host: StubHost, gpus: NvmlProcess) -> None:
    """Some cards leave numbers out, and none has as many as can be asked for."""
    host.set(0, links=12, links_gap="2,3", links_down="1,7")
    host.set(1, links=18, fi_91=6)
    host.set(2, links=0)
    reading = await read(gpus)

    assert [(gpu.links, gpu.links_down, gpu.error) for gpu in reading.gpus] == [
        (10, (1, 7), None),
        (6, (), None),
        (0, (), None),
        (18, (), None),
    ]


async def test_a12_a_gpu_whose_links_carry_nothing_is_an_island_of_its_own(host: StubHost, gpus: NvmlProcess) -> None:
    """Every link of it is up; the others still reach each other."""
    host.set(2, p2p=5)
    reading = await read(gpus)

    assert [gpu.island for gpu in reading.gpus] == [0, 0, 0xC00, 0]
    others = tuple(host.pci(number) for number in (0, 1, 3))
    assert [gpu.peers_cut for gpu in reading.gpus] == [(host.pci(2),), (host.pci(2),), others, (host.pci(2),)]


async def test_gpus_in_mig_mode_reach_nobody_by_design(host: StubHost, gpus: NvmlProcess) -> None:
    host.split(2, 7)
    host.set(2, p2p=5)

    assert [gpu.peers_cut for gpu in (await read(gpus)).gpus] == [()] * 4


async def test_slowdowns_and_persistence_are_read(host: StubHost, gpus: NvmlProcess) -> None:
    host.set(0, clocks=0x8 | 0x40 | 0x4, persistence=0)  # a power cap is no slowdown
    host.set(1, clocks=0x80 | 0x20)
    reading = await read(gpus)

    assert [gpu.slowdowns for gpu in reading.gpus] == [("hwSlowdown", "hwThermal"), ("powerBrake", "swThermal"), (), ()]
    assert [gpu.persistence for gpu in reading.gpus] == [False, True, True, True]


async def test_a_text_that_is_none_costs_its_field_alone(host: StubHost, gpus: NvmlProcess) -> None:
    host.set(0, name_broken=1)
    broken = await first(gpus)

    assert (broken.uuid, broken.model, broken.lost) == (host.uuid(0), "", False)
    assert "nvmlDeviceGetName" in str(broken.error)


async def test_events_that_say_only_that_something_changed_are_told_as_such(host: StubHost, gpus: NvmlProcess) -> None:
    await read(gpus)
    for kind in (0x2, 0x4000):
        host.event(1, kind, 0)
    events = gpus.events()
    told = [await soon(anext(events)) for _ in range(2)]

    assert [(event.kind, event.text, event.code) for event in told] == [
        ("changed", "double-bit ECC error", 0),
        ("changed", "GPU unavailable", 0),
    ]


async def test_for_a_reset_the_agent_lets_go_of_the_gpus_and_finds_them_again(
    host: StubHost, gpus: NvmlProcess
) -> None:
    await read(gpus)
    [process] = children()
    assert await soon(gpus.let_go())
    assert children() == []

    host.find(0)
    assert (await read(gpus)).nvml == "ok"
    assert [child.pid for child in children()] != [process.pid]
    host.xid(0, 79)
    assert (await soon(anext(gpus.events()))).code == 79


async def test_letting_go_before_the_first_reading_is_no_trouble(gpus: NvmlProcess) -> None:
    assert await soon(gpus.let_go())
