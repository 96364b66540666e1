"""One occurrence of a series is skipped, taken back or changed, and the others do not notice."""

from collections.abc import Awaitable
from typing import Any

import pytest

from muster_coordinator.service.series import create as series
from muster_coordinator.service.series import skip as occurrence
from muster_coordinator.service.series.bodies import OccurrenceChange, SeriesView
from muster_shared.errors import Code, Problem
from tests.support.series_world import at, comes, created, look, made_ahead, states
from tests.support.service_world import DAY, HOUR, World, asks

FIRST_MS = at("2027-01-15T10:00:00Z")  # two hours after the world begins


async def skip(world: World, view: SeriesView, named: str | int) -> SeriesView:
    await world.coordinator.write(occurrence.skip, view.id, named)
    return await look(world, view.id)


async def unskip(world: World, view: SeriesView, named: str | int) -> SeriesView:
    await world.coordinator.write(occurrence.unskip, view.id, named)
    await made_ahead(world, view.id)
    return await look(world, view.id)


async def change(world: World, view: SeriesView, named: str | int, **asked: Any) -> SeriesView:
    request = OccurrenceChange(occurrence=named, **asked)
    reservation_id = await world.coordinator.write(occurrence.change, view.id, request, world.coordinator.index)
    await world.coordinator.services.advance_all([reservation_id])
    return await look(world, view.id)


async def later(world: World, view: SeriesView, named: str | int) -> SeriesView:
    return await change(world, view, named, start=FIRST_MS + DAY + HOUR)


async def refused(world: World, act: Awaitable[SeriesView], code: Code, match: str) -> None:
    """See a refusal that changes nothing."""
    before = await world.rows()
    with pytest.raises(Problem, match=match) as refusal:
        await act
    assert refusal.value.code is code
    assert await world.rows() == before


async def test_a_skipped_occurrence_gives_its_booking_back_and_no_other(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    first, second, third = (one.reservation_id or "" for one in view.occurrences)

    skipped = await skip(world, view, "2027-01-16T11:00:00+01:00")

    assert states(skipped) == ["placed", "skipped", "placed"]
    assert [await world.state(one) for one in (first, second, third)] == ["placed", "ended", "placed"]
    assert skipped.skipped == [FIRST_MS + DAY]
    assert (await world.reserve(asks(start=FIRST_MS + DAY))).state == "placed"


async def test_skipping_again_changes_nothing_and_the_pass_does_not_make_it(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    await skip(world, view, FIRST_MS + DAY)
    before = await world.rows()

    await skip(world, view, FIRST_MS + DAY)
    assert await world.rows() == before
    await world.settle()

    assert states(await look(world, view.id)) == ["placed", "skipped", "placed"]
    assert await world.story(view.id) == ["created", "skipped"]


async def test_an_occurrence_that_is_not_made_yet_is_skipped_when_its_turn_comes(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes())
    far_ms = view.made_until + DAY
    await skip(world, view, far_ms)

    await world.until(far_ms - DAY)

    assert states(await look(world, view.id))[:3] == ["active", "skipped", "placed"]


async def test_a_skipped_occurrence_that_is_taken_back_is_reserved_again(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    await skip(world, view, FIRST_MS + DAY)

    back = await unskip(world, view, FIRST_MS + DAY)

    assert states(back) == ["placed"] * 3
    assert back.occurrences[1].reservation_id not in {None, view.occurrences[1].reservation_id}
    assert (back.skipped, back.made_until) == ([], view.made_until)
    assert [one.reservation_id for one in back.occurrences[::2]] == [
        one.reservation_id for one in view.occurrences[::2]
    ]
    before = await world.rows()
    await unskip(world, view, FIRST_MS + DAY)
    assert await world.rows() == before


async def test_an_occurrence_whose_reservation_was_cancelled_can_be_had_again(world: World) -> None:
    """The way back from `muster cancel`: skip it, and take that back."""
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    await world.coordinator.cancel(view.occurrences[1].reservation_id or "")
    assert states(await look(world, view.id)) == ["placed", "ended", "placed"]

    await skip(world, view, FIRST_MS + DAY)

    assert states(await unskip(world, view, FIRST_MS + DAY)) == ["placed"] * 3


async def test_r38_a_changed_occurrence_leaves_all_others_as_they_were(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=4"))
    others = [await world.get(one.reservation_id or "") for one in view.occurrences if one.start != FIRST_MS + DAY]

    changed = await change(world, view, FIRST_MS + DAY, start=FIRST_MS + DAY + HOUR)

    assert [(one.start - one.occurrence, one.end - one.start) for one in changed.occurrences] == [
        (0, 2 * HOUR), (HOUR, 2 * HOUR), (0, 2 * HOUR), (0, 2 * HOUR),
    ]  # fmt: skip
    assert changed.occurrences[1].reservation_id == view.occurrences[1].reservation_id
    assert [await world.get(one.id) for one in others] == others
    assert (changed.rule, changed.first, changed.made_until) == (view.rule, view.first, view.made_until)


async def test_a_changed_occurrence_may_overlap_its_own_former_window_and_be_longer(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))

    changed = await change(world, view, "2027-01-16", start=FIRST_MS + DAY - HOUR, duration="4h")

    one = await world.get(changed.occurrences[1].reservation_id or "")
    assert (one.state, one.start, one.end) == ("placed", FIRST_MS + DAY - HOUR, FIRST_MS + DAY + 3 * HOUR)
    assert await world.story(one.id) == ["created", "placed", "moved"]
    assert (await world.reserve(asks(start=FIRST_MS + DAY + 2 * HOUR))).state == "pending"
    await world.until(FIRST_MS + DAY - HOUR)
    assert await world.state(one.id) == "active"


async def test_a_change_that_does_not_fit_is_refused_and_the_booking_stays(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    await world.reserve(asks(start=FIRST_MS + DAY + 3 * HOUR))

    await refused(
        world, change(world, view, "2027-01-16", duration="4h"), Code.CONFLICT, "keeps its window; in the other one,"
    )


async def test_a_pending_occurrence_is_placed_by_a_change_that_fits_and_waits_on_where_none_does(world: World) -> None:
    await world.join("a1")
    await world.reserve(asks(start=FIRST_MS + DAY - HOUR, duration="5h"))
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    assert states(view) == ["placed", "pending"]

    waiting = await change(world, view, "2027-01-16", start=FIRST_MS + DAY + HOUR)
    assert (states(waiting), waiting.occurrences[1].start) == (["placed", "pending"], FIRST_MS + DAY + HOUR)
    placed = await change(world, view, "2027-01-16", start=FIRST_MS + DAY + 4 * HOUR)

    assert states(placed) == ["placed", "placed"]
    assert await world.story(placed.occurrences[1].reservation_id or "") == [
        "created", "unschedulable", "moved", "moved", "placed",
    ]  # fmt: skip


async def test_an_occurrence_is_changed_before_it_is_made_and_the_pass_finds_it(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes())
    far_ms = view.made_until + DAY

    await change(world, view, far_ms, start=far_ms + 6 * HOUR)
    await world.until(far_ms - DAY)

    ahead = (await look(world, view.id)).occurrences
    assert [(one.state, one.start - one.occurrence) for one in ahead[:3]] == [
        ("active", 0), ("placed", 6 * HOUR), ("placed", 0),
    ]  # fmt: skip


async def test_a_change_to_what_it_is_changes_nothing(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    before = await world.rows()

    await change(world, view, "2027-01-16", start=FIRST_MS + DAY, duration="2h")

    assert await world.rows() == before


async def test_a_change_to_now_begins_at_once(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))

    changed = await change(world, view, FIRST_MS, start="now")
    await world.settle()

    assert changed.occurrences[0].start == world.now_ms
    assert await world.state(changed.occurrences[0].reservation_id or "") == "active"


async def test_a_changed_occurrence_gives_up_as_long_after_its_new_time(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2", latest_start_after="30m"))

    changed = await change(world, view, FIRST_MS + DAY, start=FIRST_MS + DAY + HOUR)

    moved = await world.get(changed.occurrences[1].reservation_id or "")
    assert moved.latest_start == FIRST_MS + DAY + HOUR + HOUR // 2


async def test_what_has_begun_is_neither_skipped_nor_changed(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))
    await world.until(FIRST_MS)

    for act in (skip, later):
        await refused(world, act(world, view, FIRST_MS), Code.CONFLICT, "has begun")


async def test_what_is_no_occurrence_is_refused(world: World) -> None:
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))

    for named in ("2027-02-30", "2027-01-14", FIRST_MS + 1, FIRST_MS - DAY, "soon", "9999-12-31", 2**50):
        await refused(world, skip(world, view, named), Code.INVALID_INPUT, "occurrence: ")
    for act in (unskip, later):
        await refused(world, act(world, view, "2027-01-14"), Code.INVALID_INPUT, "occurrence: ")


async def test_a_day_with_several_occurrences_does_not_name_one(world: World) -> None:
    view = await created(world, comes("FREQ=DAILY;BYHOUR=6,18;COUNT=3"))

    await refused(
        world, skip(world, view, "2027-01-16"), Code.INVALID_INPUT, "has several: .* such as 2027-01-16T06:00:00Z"
    )
    assert states(await skip(world, view, "2027-01-15"))[0] == "skipped"


NO_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({}, "start"),
    ({"start": "2027-01-15T07:59:59Z"}, "start"),
    ({"start": "tomorrow"}, "start"),
    ({"start": "2029-01-01T00:00:00Z"}, "start"),
    ({"duration": "0s"}, "duration"),
    ({"duration": "91d"}, "duration"),
]


async def test_a_window_that_cannot_be_is_refused(world: World) -> None:
    await world.join("a1")
    view = await created(world, comes("FREQ=DAILY;COUNT=2"))

    for asked, path in NO_WINDOWS:
        await refused(world, change(world, view, FIRST_MS + DAY, **asked), Code.INVALID_INPUT, f"{path}: ")


async def test_an_ended_series_takes_no_decisions(world: World) -> None:
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    await world.coordinator.write(series.cancel, view.id, None)

    for act in (skip, unskip, later):
        await refused(world, act(world, view, FIRST_MS), Code.CONFLICT, "has ended .Cancelled.")


async def test_a_skipped_occurrence_is_not_changed_and_a_passed_one_not_taken_back(world: World) -> None:
    view = await created(world, comes("FREQ=DAILY;COUNT=3"))
    await skip(world, view, FIRST_MS + DAY)

    await refused(world, later(world, view, FIRST_MS + DAY), Code.CONFLICT, "is skipped: `muster series unskip`")
    await world.until(FIRST_MS + DAY)
    await refused(world, unskip(world, view, FIRST_MS + DAY), Code.CONFLICT, "has passed")
