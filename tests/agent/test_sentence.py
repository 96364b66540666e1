"""What `systemctl status` shows of the senses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core import machine
from muster_agent.core.desired import Fence
from muster_agent.core.readings import KernelLogReading, NodeReading
from muster_agent.core.sentence import sentence
from tests.support.sensing import WELL, Node, with_gpu


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.journal.close()


def said(node: Node) -> str:
    return sentence(machine.awake("boot-1", {}, Fence()), node.inventory, node.senses.holds, [], heard=True)


def test_a_healthy_node_has_nothing_to_say_of_its_senses(node: Node) -> None:
    assert said(node.look()) == "8 of 8 GPUs seen; nothing bound; revision 0"


def test_a39_half_the_monitoring_is_said(node: Node) -> None:
    node.log = KernelLogReading("down", "no permission")
    assert "faults may be missed: kernel log not heard in full" in said(node.look())

    assert "NVML events and kernel log not heard in full; 1 holds (monitoringDown)" in said(
        node.look(replace(WELL, events="partial")).look(replace(WELL, events="down"))
    )


def test_nvml_that_is_down_is_said_once(node: Node) -> None:
    assert said(node.look(NodeReading("hung"))) == "NVML: hung; 1 holds (nvmlDown); nothing bound; revision 0"


def test_holds_and_findings_are_counted_by_cause(node: Node) -> None:
    node.look().nvml(79).nvml(31).look(with_gpu(WELL, 1, peers_cut=("0000:0a:00",)))

    assert said(node) == "8 of 8 GPUs seen; 3 findings (p2pCut, xid); 1 holds (xid); nothing bound; revision 0"
