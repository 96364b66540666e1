"""What a node says of its NVLink fabric, case by case, as the coordinator and the operator are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.readings import NodeReading
from muster_agent.core.signs import FABRIC_WAIT_MS
from muster_agent.drivers.fake import fake_host
from tests.support.sensing import CLUSTER, GPU, OTHER, SCAN_MS, WELL, Node, with_fabric, with_gpu

IN_PROGRESS = with_fabric(WELL, state="inProgress")
MOVED = with_fabric(WELL, clique=9)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.journal.close()


def test_a01_a_fabric_that_comes_up_after_the_agent_names_its_domain_within_ten_seconds(node: Node) -> None:
    node.look(IN_PROGRESS)
    assert (node.domain, node.reason, node.held, node.causes) == (None, "inProgress", [], [])
    assert node.senses.facts is not None
    assert GPU in node.senses.facts.devices  # single GPUs can be had meanwhile

    completed_ms = node.clock.up_ms
    node.look(WELL, times=2)
    assert node.domain == f"{CLUSTER}.5"
    assert node.clock.up_ms - SCAN_MS - completed_ms <= 10_000


def test_a02_a_fabric_in_progress_for_ever_is_a_finding_and_no_hold(node: Node) -> None:
    node.look(with_fabric(WELL, 2, 3, state="inProgress"), times=FABRIC_WAIT_MS // SCAN_MS)
    assert node.causes == []

    node.look(with_fabric(WELL, 2, 3, state="inProgress"), times=120)
    assert node.causes == ["fabricInProgress"]
    assert "2 GPUs" in node.finding("fabricInProgress").message
    assert (node.domain, node.reason, node.held) == (None, "inProgress", [])
    assert node.look(WELL).causes == []


def test_a04_a_fabric_that_never_begins_is_a_finding_of_the_node(node: Node) -> None:
    node.look(with_fabric(WELL, state="notStarted"), times=FABRIC_WAIT_MS // SCAN_MS + 1)

    assert node.finding("fabricNotStarted").device is None
    assert node.reason == "inProgress"


def test_a04_a_fabric_manager_that_does_not_run_is_named(node: Node) -> None:
    dead = replace(WELL, daemons_down=("fabricManager", "imex"))
    assert node.look(dead, times=6).causes == []  # one that is restarted is no news

    assert node.look(dead).causes == ["fabricManagerDown", "imexDown"]
    assert node.held == []


def test_a05_h100_hosts_with_a_zero_cluster_are_healthy_and_in_no_domain(node: Node) -> None:
    node.look(with_fabric(WELL, cluster="00000000-0000-0000-0000-000000000000"), times=3)

    assert (node.domain, node.reason, node.held, node.causes) == (None, "zeroUuid", [], [])


def test_a06_a_fabric_that_is_unhealthy_is_no_domain_and_its_mask_is_told_in_words(node: Node) -> None:
    sick = with_fabric(WELL, 3, health="unhealthy", health_mask=0x10, faults=["routeUnhealthy"])
    node.look(WELL, times=2).look(sick)

    assert (node.domain, node.reason) == (None, "unhealthy")
    told = node.finding("fabricUnhealthy")
    assert (told.device, told.code) == (WELL.gpus[3].uuid, 0x10)
    assert "routeUnhealthy" in told.message
    assert node.inventory.gpus[3].fabric is not None
    assert node.inventory.gpus[3].fabric.faults == ["routeUnhealthy"]


def test_a07_a_gpu_that_knows_no_fabric_is_well(node: Node) -> None:
    node.look(with_gpu(fake_host("gh", gpus=1), 0, model="NVIDIA GH200 480GB"), times=200)

    assert (node.reason, node.held, node.causes) == ("notSupported", [], [])


def test_a09_a_clique_that_changes_is_told_at_once_with_both_values_and_settles_later(node: Node) -> None:
    node.look(WELL, times=2).look(MOVED)
    told = node.finding("fabricChanged")
    assert (told.former, told.now) == (f"{CLUSTER}.5", f"{CLUSTER}.9")
    assert (node.domain, node.reason) == (None, "settling")

    node.look(MOVED)
    assert node.domain == f"{CLUSTER}.9"
    assert node.finding("fabricChanged") == told  # for a day, whoever looks


def test_a09_a_change_over_a_restart_or_a_bad_reading_is_a_change_too(node: Node) -> None:
    node.look(WELL, times=2).restart().look(MOVED)
    assert node.finding("fabricChanged").now == f"{CLUSTER}.9"

    node.look(MOVED).look(IN_PROGRESS).restart("boot-2").look(WELL)
    told = node.finding("fabricChanged")
    assert (told.former, told.now) == (f"{CLUSTER}.9", f"{CLUSTER}.5")


def test_a_fabric_that_comes_back_as_it_was_has_not_changed(node: Node) -> None:
    assert node.look(WELL, times=2).look(IN_PROGRESS).look(WELL, times=2).causes == []


def test_a12_links_that_are_up_and_carry_nothing_keep_a_node_out_of_gangs(node: Node) -> None:
    pcis = [gpu.pci for gpu in WELL.gpus]
    dead = with_gpu(with_gpu(WELL, 0, peers_cut=(pcis[1],)), 1, peers_cut=(pcis[0],))
    node.look(WELL, times=2).look(dead)

    assert (node.domain, node.reason) == (None, "unhealthy")
    assert [(finding.cause, finding.device) for finding in node.inventory.findings] == [
        ("p2pCut", uuid) for uuid in sorted((GPU, OTHER))
    ]


@pytest.mark.parametrize("bad", [IN_PROGRESS, with_gpu(WELL, 7, lost=True), NodeReading("hung")])
def test_the_domain_is_gone_with_the_first_bad_reading(node: Node, bad: NodeReading) -> None:
    node.look(WELL, times=2)
    assert node.domain is not None

    assert node.look(bad).domain is None
