from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.desired import Fence, refusal, timed
from muster_shared.wire import Assignment, DesiredState
from tests.support.agent_world import desired, order

SEEN = Fence("cluster_1", "node_1", epoch=3, rev=7)


def answer(*, starts_in_ms: int, ends_in_ms: int, grant_for_ms: int) -> DesiredState:
    item = Assignment(
        allocation_id="alloc_a",
        reservation_id="rsv_a",
        generation=1,
        tenant_id="acme",
        devices=["GPU-0"],
        starts_in_ms=starts_in_ms,
        ends_in_ms=ends_in_ms,
        grant_for_ms=grant_for_ms,
    )
    return DesiredState(cluster_id="cluster_1", node_id="node_1", epoch=1, rev=1, now_ms=50_000, assignments=[item])


@given(
    sent=st.integers(0, 10**9),
    there=st.integers(0, 60_000),
    back=st.integers(0, 60_000),
    start=st.integers(-(10**9), 10**9),
    grant=st.integers(-1_000, 10**9),
)
def test_a_start_is_never_early_and_an_end_never_late_whatever_the_network_took(
    sent: int, there: int, back: int, start: int, grant: int
) -> None:
    written = sent + there  # boot clock when the coordinator wrote the answer

    wanted = timed(
        answer(starts_in_ms=start, ends_in_ms=grant + 5, grant_for_ms=grant),
        sent_boot_ms=sent,
        received_boot_ms=written + back,
    ).orders["alloc_a"]

    assert wanted.start_boot_ms >= written + start
    assert wanted.end_boot_ms <= written + grant
    assert wanted.start_boot_ms - (written + start) <= back
    assert (written + grant) - wanted.end_boot_ms <= there


def test_a_grant_that_outlives_the_window_ends_with_the_window() -> None:
    wanted = timed(answer(starts_in_ms=0, ends_in_ms=10, grant_for_ms=99), sent_boot_ms=100, received_boot_ms=100)

    assert wanted.orders["alloc_a"].end_boot_ms == 110


def test_the_tenant_is_told_the_end_on_the_coordinators_clock() -> None:
    wanted = timed(answer(starts_in_ms=0, ends_in_ms=7_000, grant_for_ms=10), sent_boot_ms=1, received_boot_ms=2)

    assert wanted.orders["alloc_a"].end_unix_ms == 57_000


def test_a_newer_or_equal_revision_is_obeyed() -> None:
    assert refusal(SEEN, None, desired(7, epoch=3)) is None
    assert refusal(SEEN, None, desired(8, epoch=3)) is None
    assert refusal(SEEN, None, desired(7, epoch=4)) is None


def test_whatever_is_older_or_meant_for_others_is_refused_by_name() -> None:
    last = desired(9, epoch=3, sent=500)
    cases = {
        "oldEpoch": refusal(SEEN, None, desired(9, epoch=2)),
        "oldRev": refusal(SEEN, None, desired(6, epoch=3)),
        "otherNode": refusal(SEEN, None, desired(9, epoch=3, node="node_2")),
        "otherCluster": refusal(Fence("cluster_2", "node_1"), None, desired(9)),
        "oldAnswer": refusal(SEEN, last, desired(9, epoch=3, sent=499)),
    }

    assert {name: (said or "").partition(":")[0] for name, said in cases.items()} == {name: name for name in cases}
    assert "oldRev" in (refusal(SEEN, last, desired(8, epoch=3, sent=900)) or "")


def test_ids_that_would_leave_the_folder_or_forge_a_line_are_refused() -> None:
    for odd in ("../etc/x", "a/b", ".hidden", "a b", "a\nB=1"):
        assert "unsafeId" in (refusal(SEEN, None, desired(9, [order(odd)], epoch=3)) or "")
    for odd in ("acme corp", "acme\nX=1", "$HOME"):
        assert "unsafeId" in (refusal(SEEN, None, desired(9, [order(tenant_id=odd)], epoch=3)) or "")
