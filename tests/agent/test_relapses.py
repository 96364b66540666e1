"""What repeats: programs' faults that follow a GPU from tenant to tenant, and faults that come back after a repair."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.marks import PROBE_MS
from muster_agent.core.records import Instance
from muster_agent.core.suspects import WINDOW_MS
from muster_shared.wire import Clearance
from tests.support.sensing import GPU, OTHER, WELL, Node, bound

ABSENT = replace(WELL, gpus=WELL.gpus[1:])
DAY_MS = 86_400_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path).look()
    yield made
    made.journal.close()


def test_a27_a_gpu_on_which_three_assignments_of_two_tenants_failed_within_a_day_is_suspect(node: Node) -> None:
    for number, tenant in enumerate(("acme", "acme", "umbrella")):
        assert node.held == []
        node.records = (bound(f"alloc_{number}", tenant, GPU), bound("alloc_x", "other", OTHER))
        node.nvml(31).wait(WINDOW_MS // 3)

    assert node.held == [(GPU, "suspect", 31)]
    assert node.restart().look().held == [(GPU, "suspect", 31)]
    [hold] = node.senses.holds
    node.senses.obey([Clearance(device=GPU, cause="suspect", code=31, since_ms=hold.since_ms)])
    assert node.nvml(31).look().held == []  # acquitted of what was before


def test_a27_one_tenants_bug_makes_no_gpu_suspect_and_is_wondered_at(node: Node) -> None:
    """Else a tenant could take every GPU out of service, job by job."""
    for number in range(3):
        assert "suspect" not in node.look().causes
        node.records = (bound(f"alloc_{number}", "acme", GPU),)
        node.nvml(31)
    node.look()

    assert node.held == []
    assert (node.finding("suspect").device, node.finding("suspect").count) == (GPU, 3)
    assert "suspect" not in node.wait(WINDOW_MS).look().causes  # a day without another one


def test_a27_faults_a_day_apart_and_faults_that_several_could_have_had_count_for_nobody(node: Node) -> None:
    for number, tenant in enumerate(("acme", "umbrella", "stark")):
        node.records = (bound(f"alloc_{number}", tenant, GPU),)
        node.nvml(31).wait(WINDOW_MS // 2 + 1)
    for number, tenant in enumerate(("a", "b", "c")):
        node.records = (bound(f"alloc_s{number}", tenant, GPU), bound("alloc_t", "t", GPU, shared=True))
        node.nvml(31)

    assert node.held == []


def test_a27_a_fault_of_a_mig_instance_is_its_tenants(node: Node) -> None:
    parts = [Instance(f"MIG-000{number}", GPU, number, 0) for number in (1, 2)]
    for number, tenant in enumerate(("acme", "umbrella", "stark")):
        node.records = (
            bound(f"alloc_{number}", tenant, parts[0].uuid, instances=(parts[0],)),
            bound("alloc_n", "neighbour", parts[1].uuid, instances=(parts[1],)),
        )
        node.line(31, instance="1/").nvml(13, instance="2/0").line(13, gpu=1)  # the kernel may name no part of it

    assert node.held == [(GPU, "suspect", 31)]


def again(node: Node, code: int) -> str:
    """The fault strikes; answer what ends its hold."""
    [hold] = node.nvml(code).senses.holds
    return hold.clears_by


def test_a_fault_that_comes_back_within_its_time_asks_for_more_each_time(node: Node) -> None:
    """First a reset, then a reboot, then a person: the same code on the same GPU."""
    assert again(node, 119) == "gpuResetVerified"
    node.look(ABSENT).look().wait(6 * DAY_MS)
    assert again(node, 119) == "nodeRebootVerified"
    assert node.look(ABSENT).look().held == [(GPU, "xid", 119)]
    node.restart("boot-2").look().wait(29 * DAY_MS)
    assert again(node, 119) == "operator"
    [hold] = node.senses.holds
    assert hold.message == "GSP firmware RPC timeout (again)"

    node.senses.obey([Clearance(device=GPU, cause="xid", code=119, since_ms=hold.since_ms)])
    node.look().wait(31 * DAY_MS)
    assert again(node, 119) == "gpuResetVerified"  # long ago


def test_a_fault_that_comes_back_after_its_time_or_elsewhere_is_a_first_one(node: Node) -> None:
    node.nvml(119).look(ABSENT).look()
    node.nvml(119, OTHER)
    assert [hold.clears_by for hold in node.senses.holds] == ["gpuResetVerified"]
    node.look(replace(WELL, gpus=(WELL.gpus[0], *WELL.gpus[2:]))).look().wait(7 * DAY_MS + 1)

    assert again(node, 119) == "gpuResetVerified"


def test_a_contained_memory_error_twice_in_a_day_asks_for_a_reset(node: Node) -> None:
    node.nvml(94).look().wait(PROBE_MS).look()
    assert node.held == []

    assert again(node, 94) == "gpuResetVerified"


def test_a_gpu_that_fell_off_the_bus_twice_asks_for_a_person(node: Node) -> None:
    node.nvml(79).restart("boot-2").look()

    assert again(node, 79) == "operator"


def test_a27_the_wall_clock_counts_only_over_a_reboot(node: Node) -> None:
    def hit(number: int, tenant: str, gpu: str = GPU) -> None:
        node.records = (bound(f"alloc_{number}", tenant, gpu),)
        node.nvml(31, gpu)

    for number, tenant in enumerate(("acme", "umbrella", "stark")):
        hit(number, tenant, OTHER)
        node.clock.wall_ms += 10 * DAY_MS  # steps, and no days
    assert node.held == [(OTHER, "suspect", 31)]
    node.senses.obey([Clearance(device=OTHER, cause="suspect", code=31, since_ms=node.clock.wall_ms)])

    hit(1, "acme")
    hit(2, "umbrella")
    node.clock.wall_ms += 10 * DAY_MS
    node.restart("boot-2").look()
    hit(3, "stark")  # the boot was really that long
    assert node.held == []

    hit(4, "acme")
    hit(5, "umbrella")
    assert node.held == [(GPU, "suspect", 31)]
