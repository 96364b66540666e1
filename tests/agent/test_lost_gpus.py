"""GPUs that are lost, split, or others than before, case by case."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.readings import GpuReading, KernelLogReading
from muster_agent.drivers.fake import fake_host, with_mig
from tests.support.sensing import GPU, WELL, Node, with_gpu

ABSENT = replace(WELL, gpus=WELL.gpus[1:])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path).look()
    yield made
    made.journal.close()


def test_a14_a_gpu_without_a_handle_is_told_by_its_place_and_the_others_are_inventoried(tmp_path: Path) -> None:
    node = Node(tmp_path / "new").look(replace(ABSENT, gpus=(*ABSENT.gpus, GpuReading(None, "0000:0a:00", lost=True))))

    assert len(node.inventory.gpus) == 7
    assert node.inventory.monitoring.message == "lost and never identified: GPU at 0000:0a:00"
    node.journal.close()


def test_a15_a_gpu_that_is_lost_in_the_middle_of_a_scan_is_held_and_the_others_are_not(node: Node) -> None:
    node.look(with_gpu(WELL, 2, lost=True, error="nvmlDeviceGetComputeRunningProcesses: GPU is lost"))

    assert node.held == [(WELL.gpus[2].uuid, "deviceLost", None)]
    assert [gpu.seen for gpu in node.inventory.gpus] == [number != 2 for number in range(8)]


def test_a16_a_gpu_that_is_missing_stays_listed_under_its_last_uuid(node: Node) -> None:
    node.look(ABSENT).restart().look(ABSENT)

    assert [gpu.uuid for gpu in node.inventory.gpus if not gpu.seen] == [GPU]
    assert node.held == [(GPU, "deviceLost", None)]
    assert node.reason == "gpuMissing"


def test_a18_a_host_that_was_swapped_has_the_new_gpus_only_and_says_so(node: Node) -> None:
    """Also where the new ones sit at other places; what the old ones were held for went with them."""
    other = fake_host("another", gpus=4)
    moved = replace(
        other, gpus=tuple(replace(gpu, pci=f"0009:{number:02x}:00") for number, gpu in enumerate(other.gpus))
    )
    node.nvml(64).look().restart("boot-2").look(moved)

    assert [gpu.uuid for gpu in node.inventory.gpus] == [gpu.uuid for gpu in moved.gpus]
    assert node.held == []
    assert node.finding("hardwareReplaced").count == 8
    assert node.look(moved, times=3).causes == ["hardwareReplaced"]  # for a day


def test_a21_a_node_that_would_not_see_a_fault_takes_no_new_work(node: Node) -> None:
    node.log = KernelLogReading("down", "no permission")
    node.look(replace(WELL, events="down"))

    assert node.held == [(None, "monitoringDown", None)]
    assert (node.inventory.monitoring.events, node.inventory.monitoring.kernel_log) == ("down", "down")


def test_a54_mig_instances_are_inventoried_and_are_the_devices_in_place_of_their_gpu(node: Node) -> None:
    split = with_mig(WELL, 0, 3, 3)
    node.look(split)
    told = node.inventory.gpus[0]

    assert (told.mig_mode, told.mig_slices_max) == (True, 7)
    assert [(one.profile, one.slices) for one in told.mig] == [("3g.30gb", 3)] * 2
    assert node.senses.facts is not None
    assert {one.uuid for one in told.mig} < node.senses.facts.devices
    assert GPU not in node.senses.facts.devices

    before = node.senses.inventory_hash
    assert node.look(with_mig(WELL, 0, 3)).senses.inventory_hash != before
