"""Which signs a reading shows, where a story would be long."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster_agent.core.findings import Sign
from muster_agent.core.signs import fault_signs, gpu_signs
from muster_agent.core.tallies import Tally
from muster_shared.wire import Fabric, MemoryHealth
from tests.support.sensing import GPU, WELL, Node, with_gpu

FABRIC = Fabric(state="completed", health="healthy")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.journal.close()


def causes(**fields: object) -> list[str]:
    return [sign.cause for sign in gpu_signs(with_gpu(WELL, 0, **fields).gpus[0])]


def struck(place: str, code: int, **fields: object) -> Sign:
    tally = Tally(place, code, None, "boot-1", 0, nvml=1, **fields)  # type: ignore[arg-type]  # names of fields
    [sign] = fault_signs([tally], "boot-1")
    return sign


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        (FABRIC, []),
        (FABRIC.model_copy(update={"faults": ["degradedBandwidth"]}), ["fabricUnhealthy"]),
        (FABRIC.model_copy(update={"health": "limitedCapacity"}), ["fabricUnhealthy"]),
        (FABRIC.model_copy(update={"health": "notApplicable"}), []),
    ],
)
def test_a06_either_the_summary_or_the_mask_is_sign_enough(fabric: Fabric, told: list[str]) -> None:
    assert causes(fabric=fabric) == told


def test_eight_remapped_rows_are_many() -> None:
    assert [causes(memory_health=MemoryHealth(remapped_rows=rows)) for rows in (7, 8)] == [[], ["manyRemaps"]]


def test_a_fatal_fault_of_a_switch_goes_before_one_that_is_not() -> None:
    fatal, other = (struck("0000:c1:00", 20_034, kind="sxid", fatal=severe) for severe in (True, False))

    assert fatal.rank < other.rank
    assert ("SXid 20034, fatal" in fatal.message, "SXid 20034, not fatal" in other.message) == (True, True)


def test_a_fault_of_a_gpu_that_nobody_can_name_is_told_by_its_place() -> None:
    named, placed = struck(GPU, 79), struck("0000:0a:00", 79)

    assert (named.device, named.message) == (GPU, "GPU fell off the bus, once in this boot")
    assert (placed.device, placed.message) == (None, "GPU fell off the bus, once in this boot (GPU at 0000:0a:00)")
    assert list(fault_signs([Tally(GPU, 79, None, "boot-0", 0, nvml=1)], "boot-1")) == []


def test_a_gpu_that_is_lost_shows_nothing_but_its_loss(node: Node) -> None:
    lost = with_gpu(WELL, 0, lost=True, links=18, peers_cut=("0000:0b:00",))

    assert node.look(lost).causes == []
