"""The NVML process on a stub library: what C can do to a reading."""

import ctypes
import os

import pynvml
import pytest

from muster_agent.drivers.nvml_process import NvmlProcess
from muster_shared.wire import Clique, Fabric
from tests.support.nvml_host import read, soon
from tests.support.stub import StubHost
from tests.support.virtual_clock import VirtualClock

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"
CLIQUES = [Clique(kind=1, id=77), Clique(kind=0, id=1)]  # as the newest driver lists them


# Layouts


@pytest.mark.parametrize(
    ("struct", "size"),
    [
        ("c_nvmlGpuFabricInfo_t", 28),
        ("c_nvmlGpuFabricInfo_v2_t", 36),
        ("c_nvmlGpuFabricInfo_v3_t", 40),
        ("c_nvmlGpuFabricInfo_v4_t", 548),
        ("c_nvmlEventData_t", 32),
        ("nvmlPciInfo_t", 68),
        ("c_nvmlProcessInfo_v3_t", 24),
        ("c_nvmlFieldValue_t", 40),
    ],
)
def test_the_binding_lays_structs_out_as_the_stub_does(struct: str, size: int) -> None:
    """The stub asserts the same sizes when it is built."""
    assert ctypes.sizeof(getattr(pynvml, struct)) == size


# Readings


async def test_a_healthy_host_is_read_whole(host: StubHost, gpus: NvmlProcess) -> None:
    reading = await read(gpus)

    assert (reading.nvml, reading.events, reading.driver_version, reading.message) == ("ok", "ok", "580.95.05", None)
    assert [gpu.uuid for gpu in reading.gpus] == [host.uuid(number) for number in range(4)]
    first = reading.gpus[0]
    assert (first.pci, first.model, first.memory_mib, first.numa) == ("0000:0a:00", "NVIDIA H100 80GB HBM3", 81_559, 0)
    assert (first.recovery_action, first.remap_pending, first.remap_failed, first.lost) == (0, False, False, False)
    assert first.fabric == Fabric(state="completed", cluster=CLUSTER, clique=1, health="healthy", cliques=CLIQUES)
    assert {gpu.island for gpu in reading.gpus} == {0}


async def test_an_older_driver_costs_only_what_it_does_not_know(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A13: the fabric call steps down; the state is one byte, whatever lies beside it (versions 2 and 3)."""
    host.set_all(health_mask=0b10_01_10_10, health=2, cluster="0a" * 16)
    host.rule("nvmlDeviceGetFieldValues", code=13)
    told = list[Fabric | None]()
    for newest in (4, 3, 2, 1):
        host.set_system(fabric_max=newest)
        told.append((await read(gpus)).gpus[3].fabric)

    whole = Fabric(
        state="completed",
        cluster="0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a",
        clique=1,
        health="unhealthy",  # A06; version 2 has only the mask to say so
        health_mask=0b10_01_10_10,
        faults=["routeUnhealthy"],
    )
    assert told == [
        whole.model_copy(update={"cliques": CLIQUES}),
        whole,
        whole,
        whole.model_copy(update={"health": "notApplicable", "health_mask": 0, "faults": []}),
    ]


async def test_fabric_states_are_told_apart(host: StubHost, gpus: NvmlProcess) -> None:
    """Cases A01, A07: no state is a failure of the reading."""
    for gpu, fields in enumerate(({"fabric_state": 0}, {"fabric_state": 1}, {"fabric_state": 2})):
        host.set(gpu, **fields)
    host.set(3, fabric_status=999)
    host.rule("nvmlDeviceGetGpuFabricInfo_v4", 0, code=3)
    reading = await read(gpus)

    told = [gpu.fabric for gpu in reading.gpus]
    assert [fabric and fabric.state for fabric in told] == ["notSupported", "notStarted", "inProgress", "completed"]
    assert told[3] is not None
    assert told[3].status == 999


async def test_a_call_that_a_card_does_not_offer_costs_its_field_alone(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A46: a card that supports nearly nothing is listed all the same, and so is one with odd errors."""
    host.set(0, memory=None, numa=None, cluster=None, fabric_state=0, fi_230=None, remap=None, links=None, events=0)
    host.rule("nvmlDeviceGetPciInfo_v3", 1, code=999)
    host.rule("nvmlDeviceGetGpuFabricInfo_v4", 1, code=999)
    plain, odd, *_ = reading = (await read(gpus)).gpus

    assert len(reading) == 4
    assert (plain.uuid, plain.memory_mib, plain.numa, plain.recovery_action, plain.error, plain.lost) == (
        host.uuid(0),
        0,
        None,
        None,
        None,
        False,
    )
    assert (odd.uuid, odd.pci, odd.lost, odd.error) == (host.uuid(1), "", False, "nvmlDeviceGetPciInfo: Unknown Error")
    assert odd.fabric == Fabric(state="unknown", status=999)


async def test_links_that_a_card_does_not_have_are_no_fault(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A47. GPUs 0 and 1 are linked to each other, 2 has no link up, 3 has no NVLink."""
    host.set(0, links=12, peer=1)
    host.set(1, links=12, peer=0)
    host.set(2, links=4, links_up=0)
    host.set(3, links=0)
    reading = await read(gpus)

    assert [gpu.island for gpu in reading.gpus] == [0xA00, 0xA00, 0xC00, 0xD00]
    assert [gpu.error for gpu in reading.gpus] == [None] * 4


async def test_row_remaps_and_retired_pages_are_read(host: StubHost, gpus: NvmlProcess) -> None:
    host.set(0, remap=1)
    host.set(1, remap=2)
    host.set(2, remap=None, retired=1)
    reading = await read(gpus)

    assert [(gpu.remap_pending, gpu.remap_failed) for gpu in reading.gpus] == [
        (True, False),
        (False, True),
        (True, False),
        (False, False),
    ]


async def test_only_processes_that_exist_are_told(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A44."""
    host.set(0, compute=f"0,4294967295,{os.getpid()}", graphics=f"{os.getpid()}", mps="1")
    reading = await read(gpus)

    assert [gpu.pids for gpu in reading.gpus] == [(1, os.getpid()), (), (), ()]


# GPUs that are lost


async def test_a_lost_gpu_does_not_stop_the_scan_of_the_others(host: StubHost, gpus: NvmlProcess) -> None:
    """Cases A15, A16: it is known by its handle, so even its name is told."""
    await read(gpus)
    host.lose(1)
    host.rule("nvmlDeviceGetComputeRunningProcesses_v3", 2, code=15)
    reading = await read(gpus)

    assert [(gpu.uuid, gpu.lost) for gpu in reading.gpus] == [
        (host.uuid(number), number in {1, 2}) for number in range(4)
    ]
    assert (reading.gpus[1].pci, reading.gpus[1].error) == ("0000:0b:00", "nvmlDeviceGetUUID: GPU is lost")


async def test_a_gpu_without_even_a_handle_is_told_without_a_name(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A14."""
    host.rule("nvmlDeviceGetHandleByIndex_v2", 1, code=999)
    reading = await read(gpus)

    assert [gpu.uuid for gpu in reading.gpus] == [host.uuid(0), host.uuid(2), host.uuid(3), None]
    assert reading.gpus[3].lost


async def test_events_of_the_other_gpus_come_while_one_is_lost_and_of_all_after_its_reset(
    host: StubHost, gpus: NvmlProcess
) -> None:
    events = gpus.events()
    await read(gpus)
    host.lose(1)
    assert (await read(gpus)).events == "ok"  # of those that answer
    host.xid(2, 31)
    assert (await soon(anext(events))).uuid == host.uuid(2)

    host.find(1)
    assert (await read(gpus)).events == "ok"
    host.xid(1, 48)
    event = await soon(anext(events))
    assert (event.uuid, event.code) == (host.uuid(1), 48)


async def test_a_fault_that_falls_between_two_event_sets_is_told_once(host: StubHost, gpus: NvmlProcess) -> None:
    """The new set is registered before the old one is left: both have it."""
    await read(gpus)
    events = gpus.events()
    host.find(0)
    await read(gpus)  # makes a new set; the thread waits on the old one for up to a second
    for code in (31, 31, 13):
        host.xid(2, code)
    host.xid(0, 48)

    assert [(await soon(anext(events))).code for _ in range(4)] == [31, 31, 13, 48]
    host.xid(2, 31)
    assert (await soon(anext(events))).code == 31


# Events


async def test_faults_arrive_at_once_with_their_mig_instance(
    host: StubHost, gpus: NvmlProcess, clock: VirtualClock
) -> None:
    host.xid(0, 13)  # before anybody listened
    await read(gpus)
    events = gpus.events()
    host.xid(1, 79)
    host.xid(2, 94, (1, 0))
    told = [await soon(anext(events)) for _ in range(2)]

    assert [(event.uuid, event.code, event.instance) for event in told] == [
        (host.uuid(1), 79, None),
        (host.uuid(2), 94, "1/0"),
    ]
    assert {(event.source, event.boot_ms, event.fatal) for event in told} == {("nvml", clock.boot_ms(), None)}


async def test_a_changed_recovery_action_is_told_with_its_value(host: StubHost, gpus: NvmlProcess) -> None:
    """By the event of its own, and by the XID that says the same."""
    await read(gpus)
    host.set(3, fi_230=2)
    host.event(3, 0x8000, 0)
    host.xid(3, 154)
    events = gpus.events()
    told = [await soon(anext(events)) for _ in range(2)]

    assert [(event.code, event.uuid, event.recovery_action) for event in told] == [(154, host.uuid(3), 2)] * 2


async def test_it_is_said_of_how_many_gpus_faults_are_told(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A21 among them: no event set at all."""
    host.rule("nvmlEventSetCreate", code=999)
    assert (await read(gpus)).events == "down"
    host.unrule("nvmlEventSetCreate")
    assert (await read(gpus)).events == "ok"
    host.set(0, events=0)
    host.find(0)
    assert (await read(gpus)).events == "partial"
    host.set_all(events=0)
    host.find(0)
    assert (await read(gpus)).events == "down"


async def test_a_wait_that_always_fails_is_said_to_hear_nothing(host: StubHost, gpus: NvmlProcess) -> None:
    """Case A21: registered is not heard."""
    await read(gpus)
    host.rule("nvmlEventSetWait_v2", code=999)
    while (await read(gpus)).events != "down":
        pass
    host.unrule("nvmlEventSetWait_v2")
    await read(gpus)  # makes a new set
    host.xid(0, 31)
    assert (await soon(anext(gpus.events()))).code == 31
    assert (await read(gpus)).events == "ok"
