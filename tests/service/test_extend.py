"""Extend: every member's end moves, in place, or none; what stands behind it is told and nothing else changes."""

from typing import Any

import pytest
from sqlalchemy import Connection, insert

from muster_coordinator.service.nodes import operate
from muster_coordinator.store import read
from muster_coordinator.store.commit import pool_changed
from muster_coordinator.store.prolong import prolong
from muster_coordinator.store.tables import BOOKING
from muster_shared.errors import Code
from muster_shared.time import format_instant
from tests.support.extending import booked_until, extended, refused, running, tried
from tests.support.service_world import HOUR, MINUTE, World, asks, end_of, start_of


async def test_a_running_gang_is_kept_longer_where_it_is_and_its_nodes_learn_of_it(world: World) -> None:
    """R22: the answer is what is stored, and what `get` shows."""
    await world.join_all("a1 a2 a3", fabric="fabric-a.1")
    before = await running(world, 2)

    answer = await extended(world, before.id, by="2h")
    stored = await world.get(before.id)
    told = await world.coordinator.desired_of(before.members[0].node_id)
    await world.settle()

    after = await world.get(before.id)
    assert answer.model_dump(exclude={"extension"}) == stored.model_dump()
    assert (before.state, after.state) == ("active", "active")
    assert (after.end, after.protected_until) == (end_of(before) + 2 * HOUR, end_of(before) + 2 * HOUR)
    assert [one.allocation_id for one in after.members] == [one.allocation_id for one in before.members]
    assert await booked_until(world, before.id) == {after.end}
    assert await world.told(before.id, "reservation.extended") == [{"from": end_of(before), "to": after.end}]
    assert [(one.ends_in_ms, one.grant_for_ms) for one in told.assignments] == [(3 * HOUR, 3 * HOUR)]
    for member in after.members:
        assert world.agents[member.node_name].applied_rev == await world.coordinator.rev_of(member.node_id)
    await world.until(end_of(before) + HOUR)
    assert await world.state(before.id) == "active"
    await world.until(end_of(after))
    assert (await world.get(before.id)).reason == "Completed"


async def test_a_running_reservation_is_extended_in_place_or_not_at_all(world: World) -> None:
    """R04: Blazar moved a started lease to another host; here a free neighbour is no way out."""
    await world.join_all("n1 n2")
    first = await running(world)
    here, free = ("n1", "n2") if await world.nodes_of(first.id) == "n1" else ("n2", "n1")
    await world.cordon(world.agents[free])
    behind = await world.reserve(asks(start="+1h", tenant="other"))
    await world.uncordon(world.agents[free])
    start_ms, end_ms = start_of(behind), end_of(behind)

    code, sentence = await refused(world, first.id, by="1h")

    assert code is Code.CONFLICT
    assert sentence == (
        f"{first.id} cannot last until {format_instant(end_ms)}, it cannot end any later: another reservation has "
        f"devices of {here} from {format_instant(start_ms)} until {format_instant(end_ms)}"
    )
    assert await world.nodes_of(first.id) == here


async def test_a_tenant_learns_the_id_of_its_own_reservation_only(world: World) -> None:
    """R11: of another tenant's it hears that there is one, and until when."""
    await world.join("n1")
    first = await running(world)
    mine = await world.reserve(asks(start="+2h"))

    blocked = (await tried(world, first.id)).extension.blocked_by

    assert (blocked.kind, blocked.reservation_id, blocked.node_name) == ("reservation", mine.id, "n1")
    assert (blocked.start, blocked.until) == (mine.start, mine.end)
    await world.coordinator.cancel(mine.id)
    others = await world.reserve(asks(start="+2h", tenant="other"))
    blocked = (await tried(world, first.id)).extension.blocked_by
    assert others.id not in blocked.model_dump_json()
    assert (blocked.reservation_id, blocked.until) == (None, others.end)


@pytest.mark.parametrize("asked", [{}, {"by": "10m"}, {"by": "3h"}], ids=str)
async def test_a_dry_run_tells_the_longest_end_and_what_comes_then(world: World, asked: dict[str, Any]) -> None:
    await world.join("n1")
    first = await running(world)
    await world.reserve(asks(start="+2h", tenant="other"))

    found = (await tried(world, first.id, **asked)).extension

    assert found.longest_end == end_of(first) + HOUR
    assert found.fits == (asked.get("by") != "3h")
    assert found.end == {"10m": end_of(first) + 10 * MINUTE, "3h": end_of(first) + 3 * HOUR}.get(asked.get("by", ""))
    assert (await extended(world, first.id, until=found.longest_end)).end == found.longest_end


async def test_the_gap_that_a_pool_keeps_counts_before_the_next_one(world: World) -> None:
    """R12: gap 30 min, A ends 11:00, B starts 13:00: 12:31 is refused and 12:30 granted."""
    await world.coordinator.write(operate.create_pool, "gaps", {"turnaround_ms": 30 * MINUTE})
    await world.join("n1", pool="gaps")
    first = await running(world, pool_id="gaps")
    await world.reserve(asks(start="+3h", tenant="other", pool_id="gaps"))
    most_ms = end_of(first) + 90 * MINUTE

    code, sentence = await refused(world, first.id, until=most_ms + MINUTE)

    assert code is Code.CONFLICT
    assert f"at most until {format_instant(most_ms)}" in sentence
    assert "the pool keeps 30m free before it" in sentence
    assert (await extended(world, first.id, until=most_ms)).end == most_ms
    assert await booked_until(world, first.id) == {most_ms + 30 * MINUTE}


async def test_extend_never_shortens(world: World) -> None:
    """R46: an update to a shorter duration cut a running lease short."""
    await world.join("n1")
    first = await running(world)

    for until in [end_of(first) - 1, start_of(first), start_of(first) - HOUR, "now", "+59m"]:
        code, sentence = await refused(world, first.id, until=until)
        assert code is Code.INVALID_INPUT
        assert "extend never shortens" in sentence
    for by in ["0s", "-1h", "soon"]:
        code, sentence = await refused(world, first.id, by=by)
        assert (code, sentence.split(":")[0]) == (Code.INVALID_INPUT, "by")


async def test_the_same_end_again_changes_nothing(world: World) -> None:
    await world.join("n1")
    first = await running(world)
    answer = await extended(world, first.id, until="+3h")
    before = await world.rows()

    again = await extended(world, first.id, until="+3h")

    assert again == answer
    assert await world.rows() == before


async def test_an_unclear_or_impossible_wish_changes_nothing(world: World) -> None:
    """R09: bad dates, both or neither, an unknown id, too long, beyond the calendar; it still ends on time."""
    await world.join("n1")
    first = await running(world)

    answers = [
        await refused(world, first.id, **asked)
        for asked in ({}, {"by": "1h", "until": "+9h"}, {"until": "tomorrow"}, {"by": "91d"}, {"by": "99999999999w"})
    ]

    assert {code for code, _ in answers} == {Code.INVALID_INPUT}
    sentences = [sentence for _, sentence in answers]
    assert sentences[0].startswith("until: say until when")
    assert "not both" in sentences[1]
    assert "is not an instant" in sentences[2]
    assert "the pool allows no longer reservation than 90d" in sentences[3]
    assert "out of range" in sentences[4] or "9999" in sentences[4]
    assert (await refused(world, "rsv_unknown", by="1h"))[0] is Code.NOT_FOUND
    await world.until(end_of(first))
    assert (await world.get(first.id)).reason == "Completed"


async def test_the_longest_reservation_of_a_pool_is_the_longest_extension_too(world: World) -> None:
    await world.coordinator.write(operate.create_pool, "short", {"max_duration_ms": 2 * HOUR})
    await world.join("n1", pool="short")
    first = await running(world, pool_id="short")

    code, sentence = await refused(world, first.id, by="61m")

    assert (code, sentence.split(":")[0]) == (Code.INVALID_INPUT, "by")
    found = (await tried(world, first.id)).extension
    assert (found.longest_end, found.blocked_by.kind) == (start_of(first) + 2 * HOUR, "maxDuration")
    assert (await extended(world, first.id, by="1h")).duration == 2 * HOUR


@pytest.mark.parametrize(
    ("begins", "ends", "is_granted"),
    [
        (2, 3, False),  # the same as what is asked for
        (2, 4, False),  # begins with it, ends later
        (2.5, 2.75, False),  # lies inside
        (2.5, 3, False),  # ends with it
        (2.5, 4, False),  # begins inside, ends later
        (2, 2.5, False),  # begins with it, ends inside
        (3, 4, True),  # begins where it ends
        (3.5, 4, True),  # begins later
    ],
)
async def test_touching_bookings_do_not_keep_an_extension_away(
    world: World,
    begins: float,
    ends: float,
    is_granted: bool,  # noqa: FBT001 - a table's column
) -> None:
    """R42: the interval relations that a booking on the same atoms can have; windows are half open.

    What would begin before our end cannot be booked there at all: the core's test plays it as maintenance that waits.
    """
    await world.join("n1")
    first = await running(world, duration="2h")
    start_ms = start_of(first)
    await world.reserve(asks(start=start_ms + int(begins * HOUR), end=start_ms + int(ends * HOUR), tenant="other"))

    if is_granted:
        assert (await extended(world, first.id, by="1h")).duration == 3 * HOUR
    else:
        assert (await refused(world, first.id, by="1h"))[0] is Code.CONFLICT


async def test_a_refusal_by_the_database_leaves_nothing_behind(world: World) -> None:
    """Somebody's row on one of the members' nodes: no member's end moves. R21."""
    await world.join_all("a1 a2", fabric="fabric-a.1")
    made = await world.reserve(asks(2, start="+1h"))
    node_id = max(member.node_id for member in made.members)
    row = {
        "allocation_id": "mnt_1/x",
        "word": 0,
        "node_id": node_id,
        "reservation_id": "mnt_1",
        "mask": 1,
        "live": True,
    }

    def occupy(connection: Connection) -> None:
        connection.execute(insert(BOOKING).values(**row, start_ms=end_of(made), end_ms=end_of(made) + 1))
        pool_changed(connection, made.pool_id, [node_id])

    def overrun(connection: Connection) -> bool:
        pool_row = read.known_pool(connection, made.pool_id, lock=True)
        found = read.reservation(connection, made.id, lock=True)
        assert found is not None
        return prolong(connection, pool_row, found[0], end_of(made) + HOUR) is None

    await world.coordinator.database.write(occupy)
    before = await world.rows()

    assert await world.coordinator.database.write(overrun) is False
    assert await world.rows() == before
    found = (await tried(world, made.id, by="1h")).extension
    assert (found.fits, found.blocked_by.kind, found.blocked_by.maintenance_id) == (False, "maintenance", "mnt_1")
    assert "maintenance mnt_1 has devices of a" in (await refused(world, made.id, by="1h"))[1]
    await world.coordinator.database.write(
        lambda connection: connection.execute(BOOKING.delete().where(BOOKING.c.reservation_id == "mnt_1"))
    )
