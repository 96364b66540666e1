"""What was promised and delivered, in integers."""

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.core.usage import Use, late_ms, milli_ms, promised
from muster_shared.time import Window

HOUR = 3_600_000
instants = st.integers(0, 10 * HOUR)


@given(st.lists(st.tuples(st.integers(0, 8_000), instants, instants)), st.tuples(instants, instants, instants))
def test_times_that_touch_add_up_to_the_whole(given_: list[tuple[int, int, int]], edges: tuple[int, int, int]) -> None:
    uses = [Use(milli, min(one, other), max(one, other)) for milli, one, other in given_]
    first, middle, last = (edge + shift for edge, shift in zip(sorted(edges), (0, 1, 2), strict=True))

    parts = milli_ms(uses, Window(first, middle)) + milli_ms(uses, Window(middle, last))

    assert parts == milli_ms(uses, Window(first, last))


def test_s29_a_tenth_of_a_gpu_for_a_week_asked_for_second_by_second_is_the_product_exactly() -> None:
    """kueue 13596: nothing is rounded away, however often somebody looks."""
    week = 7 * 24 * HOUR
    use = [Use(100, 0, week)]

    assert sum(milli_ms(use, Window(second, second + 1_000)) for second in range(0, week, 1_000)) == 100 * week


def test_a_promise_is_the_window_unless_its_owner_takes_it_back() -> None:
    window = Window(2 * HOUR, 6 * HOUR)
    charged = [(16_000, HOUR, 3 * HOUR)]

    assert promised(charged, window, None) == [Use(16_000, 2 * HOUR, 6 * HOUR)]
    assert promised(charged, window, 3 * HOUR) == [Use(16_000, 2 * HOUR, 3 * HOUR)]
    assert promised(charged, window, HOUR) == [Use(16_000, 2 * HOUR, 2 * HOUR)]


def test_a_gang_that_shrank_was_promised_more_until_then() -> None:
    window = Window(HOUR, 5 * HOUR)

    uses = promised([(16_000, 0, 2 * HOUR), (8_000, 2 * HOUR, None)], window, None)

    assert uses == [Use(16_000, HOUR, 2 * HOUR), Use(8_000, 2 * HOUR, 5 * HOUR)]


def test_late_is_from_the_booked_start_until_every_member_was_bound() -> None:
    assert late_ms(HOUR, HOUR + 5_000, 3 * HOUR) == 5_000
    assert late_ms(HOUR, None, 3 * HOUR) == 2 * HOUR
    assert late_ms(HOUR, None, HOUR // 2) == 0
    assert late_ms(HOUR, HOUR - 1, 3 * HOUR) == 0
