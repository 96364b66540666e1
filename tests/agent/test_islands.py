"""What NVLink joins: GPUs to islands within a node, nodes to a fabric."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.fabric import Domain, domain_of, faults_of_mask, health_of_mask
from muster_agent.core.islands import Links, islands
from muster_shared.wire import Fabric
from tests.support.sensing import CLUSTER


@pytest.mark.parametrize(
    ("mask", "health"),
    [
        (0, "notApplicable"),
        (0b10_10_10_10 | 1 << 8, "healthy"),
        (0b10_10_10_01 | 1 << 8, "limitedCapacity"),
        (0b10_01_10_10 | 1 << 8, "unhealthy"),  # route unhealthy
        (0b10_10_10_10 | 5 << 8, "unhealthy"),  # too few NVLinks
    ],
)
def test_a_health_mask_is_summed_up_where_the_driver_does_not(mask: int, health: str) -> None:
    assert health_of_mask(mask) == health


@pytest.mark.parametrize(
    ("mask", "faults"),
    [
        (0, []),
        (0b10_10_10_10 | 1 << 8, []),
        (0b01_01_01_01, ["degradedBandwidth", "routeRecovery", "routeUnhealthy", "accessTimeout"]),
        (4 << 8, ["noPartition"]),
        (8 << 8 | 1 << 14, ["gpuState"]),
        (15 << 8 | 2 << 14, ["managerDisconnected", "incorrectConfiguration"]),
    ],
)
def test_a_health_mask_is_told_in_words(mask: int, faults: list[str]) -> None:
    """Case A06."""
    assert faults_of_mask(mask) == faults


def test_a_fabric_without_its_manager_still_carries_traffic() -> None:
    assert health_of_mask(2 << 14) == "healthy"


def test_a_completed_fabric_needs_a_clique() -> None:
    fabric = Fabric(state="completed", cluster=CLUSTER, clique=0, health="notApplicable")

    assert domain_of([fabric]) == Domain(f"{CLUSTER}.0")
    assert domain_of([fabric.model_copy(update={"clique": None})]) == "error"


def test_gpus_on_a_switch_are_one_island_and_the_others_are_joined_by_their_links() -> None:
    links = {
        "0000:01:00": Links(to_switch=True),
        "0000:02:00": Links(to_switch=True),
        "0000:03:00": Links(peers=frozenset({"0000:04:00"})),
        "0000:04:00": Links(peers=frozenset({"0000:05:00"})),
        "0000:05:00": Links(),
        "0000:06:00": Links(peers=frozenset({"0000:ff:00"})),
    }

    assert list(islands(links).values()) == [0, 0, 0x300, 0x300, 0x300, 0x600]


@pytest.mark.parametrize(
    ("cuts", "alone"),
    [
        ([], []),
        ([(1, 2)], [1]),  # one of the two has to go; always the same
        ([(3, 1), (3, 2), (3, 4)], [3]),
        ([(1, 2), (3, 4)], [1, 3]),
        ([(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)], [1, 2, 3]),  # nobody reaches anybody
        ([(1, 9)], []),  # of a GPU that is not there
    ],
)
@pytest.mark.parametrize("switched", [True, False])
def test_as_few_gpus_as_will_do_leave_an_island_whose_links_carry_nothing(
    cuts: list[tuple[int, int]], alone: list[int], switched: object
) -> None:
    """Case A12, on a switch and with direct links."""

    def pci(gpu: int) -> str:
        return f"0000:{gpu:02x}:00"

    both = {*cuts, *((b, a) for a, b in cuts)}
    links = {
        pci(gpu): Links(
            to_switch=switched is True,
            peers=frozenset(() if switched is True else (pci(other) for other in range(1, 5) if other != gpu)),
            cut=frozenset(pci(b) for a, b in both if a == gpu),
        )
        for gpu in range(1, 5)
    }
    numbers = islands(links)

    together = {numbers[pci(gpu)] for gpu in range(1, 5) if gpu not in alone}
    assert len(together) == 1
    assert [numbers[pci(gpu)] for gpu in alone] == [gpu << 8 for gpu in alone]


@given(st.sets(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12), st.sets(st.integers(1, 9)))
def test_island_numbers_never_move_to_other_gpus_when_some_drop_out(
    pairs: set[tuple[int, int]], lost: set[int]
) -> None:
    def numbered(present: set[int]) -> dict[str, int]:
        return islands(
            {
                f"0000:{gpu:02x}:00": Links(
                    peers=frozenset(f"0000:{b:02x}:00" for a, b in pairs | {(b, a) for a, b in pairs} if a == gpu)
                )
                for gpu in present
            }
        )

    whole, part = numbered(set(range(1, 10))), numbered(set(range(1, 10)) - lost)

    for one in part:
        for other in whole:
            if part[one] == whole[other]:
                assert whole[one] == whole[other]
