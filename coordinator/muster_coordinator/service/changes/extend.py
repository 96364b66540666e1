"""A reservation lasts longer: every member where it is, or none, or only an answer how long it could."""

from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, select

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import BindState, State
from muster_coordinator.core.timeline.reach import Limit, LimitCode, Reach, longest_end
from muster_coordinator.service import look, when
from muster_coordinator.service.access.guard import Guard, of_reservation
from muster_coordinator.service.access.weight import weight_of_reservation
from muster_coordinator.service.changes.bodies import ExtendedView, ExtendRequest, ExtensionView, Obstacle
from muster_coordinator.service.changes.cancel import Held, held
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.prolong import prolong
from muster_coordinator.store.tables import NODE, RESERVATION
from muster_shared.errors import Code, Problem, invalid
from muster_shared.time import MS_MAX, format_duration, format_instant


def extend(
    connection: Connection, at: Moment, reservation_id: str, request: ExtendRequest, guard: Guard | None = None
) -> ExtendedView:
    """Move the end of a reservation to a later instant, on the same atoms of the same nodes.

    While it is pending, only what it asks for gets longer. An `end` that was given moves too. A node that is silent
    is granted the longer time in the book and learns of it when it is back; until then its member shows `grantedUntil`.

    Raises:
        Problem: `NOT_FOUND`; `FORBIDDEN`; `INVALID_INPUT` for an end that is no instant, earlier than the present one
            or beyond what the pool allows; `CONFLICT` where somebody else's booking is in the way, or there is nothing
            left to extend. Nothing was stored.
    """
    mine = held(connection, reservation_id)
    _check(connection, guard, mine, None)  # before anything is told of its state
    wanted_ms = _wanted_end(mine, request, at.ms)
    if wanted_ms is None:
        raise invalid("until", "say until when, or give by and a duration")
    _check(connection, guard, mine, wanted_ms)
    extension = _extension(connection, at, mine, wanted_ms)
    if not extension.fits:
        raise _refusal(mine, request, extension)
    if wanted_ms > mine.reservation.window.end_ms:
        _write(connection, at, mine, wanted_ms)
    return _view(connection, reservation_id, extension)


def try_extend(
    connection: Connection, at: Moment, reservation_id: str, request: ExtendRequest, guard: Guard | None = None
) -> ExtendedView:
    """Tell whether a reservation could last so long, how long it can last at most, and what stands behind it.

    Raises:
        Problem: As `extend` would, but where it does not fit: that is the answer.
    """
    mine = held(connection, reservation_id, lock=False)
    _check(connection, guard, mine, None)
    wanted_ms = _wanted_end(mine, request, at.ms)
    _check(connection, guard, mine, wanted_ms)
    extension = _extension(connection, at, mine, wanted_ms)
    return _view(connection, reservation_id, extension)


def _check(connection: Connection, guard: Guard | None, mine: Held, wanted_ms: int | None) -> None:
    one = mine.reservation
    if guard is not None:
        duration_ms = one.duration_ms if wanted_ms is None else wanted_ms - one.start_ms
        weight = weight_of_reservation(one, duration_ms=duration_ms)
        guard.check(connection, of_reservation(one, mine.pool_row), weight)


def _view(connection: Connection, reservation_id: str, extension: ExtensionView) -> ExtendedView:
    shown = look.reservation(connection, reservation_id)
    return ExtendedView(**{name: getattr(shown, name) for name in type(shown).model_fields}, extension=extension)


def _wanted_end(mine: Held, request: ExtendRequest, now_ms: int) -> int | None:
    """Return the end that was asked for; None where a dry run asks for none."""
    _check_state(mine, now_ms)
    present_ms = mine.reservation.window.end_ms
    if request.by is not None and request.until is not None:
        raise invalid("until", "give either by or until, not both")
    if request.by is not None:
        end_ms = present_ms + when.length("by", request.by)
        if end_ms > MS_MAX:
            raise invalid("by", "ends after the year 9999")
        return end_ms
    if request.until is None:
        return None
    end_ms = when.instant("until", request.until, now_ms)
    if end_ms < present_ms:
        ends = f"{format_instant(end_ms)} is before the present end ({format_instant(present_ms)})"
        raise invalid("until", f"{ends}: extend never shortens; `muster release` gives back early")
    return end_ms


def _check_state(mine: Held, now_ms: int) -> None:
    one = mine.reservation
    match one.state:
        case State.ENDED:
            raise Problem(Code.CONFLICT, f"{one.id} has ended ({one.end_reason}): reserve again")
        case State.ENDING:
            raise Problem(Code.CONFLICT, f"{one.id} is ending ({one.end_reason}): reserve again")
        case State.PENDING if one.window_from(now_ms) is None:
            raise Problem(Code.CONFLICT, f"{one.id} was not placed in time and expires: reserve again")
        case State.PENDING:
            return
        case _:
            pass
    if one.window.end_ms <= now_ms:
        raise Problem(Code.CONFLICT, f"the window of {one.id} is over: reserve again")
    if one.state is State.ACTIVE and any(member.bind is BindState.RELEASED for member in one.members):
        raise Problem(Code.CONFLICT, f"{one.id} is letting go already, at the end that it was told: reserve again")


def _extension(connection: Connection, at: Moment, mine: Held, wanted_ms: int | None) -> ExtensionView:
    node_ids = {member.node_id for member in mine.reservation.members}
    nodes = read.snapshot(connection, mine.pool_row, at.ms, node_ids)
    reach = longest_end(mine.reservation, nodes, mine.pool_row.policy, at.ms)
    return ExtensionView(
        fits=wanted_ms is None or wanted_ms <= reach.end_ms,
        end=wanted_ms,
        longest_end=reach.end_ms,
        blocked_by=_obstacle(connection, mine, reach),
    )


_OF_POOL: Final[dict[LimitCode, str]] = {
    "maxDuration": "the pool allows no longer reservation than {longest}",
    "lookAhead": "it starts further ahead than the pool allows by now ({ahead})",
    "calendarEnd": "the calendar ends with the year 9999",
}


def _obstacle(connection: Connection, mine: Held, reach: Reach) -> Obstacle:
    limit, policy = reach.limit, mine.pool_row.policy
    if limit.code != "booked":
        longest, ahead = format_duration(policy.max_duration_ms), format_duration(policy.look_ahead_ms)
        return Obstacle(kind=limit.code, message=_OF_POOL[limit.code].format(longest=longest, ahead=ahead))
    return _neighbour(connection, mine, limit)


def _neighbour(connection: Connection, mine: Held, limit: Limit) -> Obstacle:
    """Tell who comes next on a member's atoms; of another tenant's reservation only that it is one."""
    node_name = connection.execute(select(NODE.c.name).where(NODE.c.id == limit.node_id)).scalar_one()
    owner = select(RESERVATION.c.tenant_id).where(RESERVATION.c.id == limit.holder_id)
    tenant_id = connection.execute(owner).scalar()
    is_ours = tenant_id == mine.reservation.tenant_id
    who = (
        f"maintenance {limit.holder_id}" if tenant_id is None else limit.holder_id if is_ours else "another reservation"
    )
    until_ms = min(limit.until_ms, MS_MAX)
    meanwhile = f"from {format_instant(limit.start_ms)} until {format_instant(until_ms)}"
    turnaround_ms = mine.pool_row.policy.turnaround_ms
    gap = f", and the pool keeps {format_duration(turnaround_ms)} free before it" if turnaround_ms else ""
    return Obstacle(
        kind="maintenance" if tenant_id is None else "reservation",
        message=f"{who} has devices of {node_name} {meanwhile}{gap}",
        reservation_id=limit.holder_id if is_ours else None,
        maintenance_id=limit.holder_id if tenant_id is None else None,
        node_name=node_name,
        start=limit.start_ms,
        until=until_ms,
    )


def _refusal(mine: Held, request: ExtendRequest, extension: ExtensionView) -> Problem:
    assert extension.end is not None, "what was not asked for fits"
    is_stuck = extension.longest_end == mine.reservation.window.end_ms
    most = "it cannot end any later" if is_stuck else f"at most until {format_instant(extension.longest_end)}"
    why = f"cannot last until {format_instant(extension.end)}, {most}: {extension.blocked_by.message}"
    if extension.blocked_by.kind in {"reservation", "maintenance"}:
        return Problem(Code.CONFLICT, f"{mine.reservation.id} {why}")
    return invalid("until" if request.by is None else "by", why)


def _write(connection: Connection, at: Moment, mine: Held, end_ms: int) -> None:
    one = mine.reservation
    longer = replace(
        one,
        duration_ms=end_ms - one.start_ms,
        fixed_end_ms=None if one.fixed_end_ms is None else end_ms,
    )
    changes: dict[str, Any] = {"duration_ms": longer.duration_ms, "fixed_end_ms": longer.fixed_end_ms}
    if one.state is State.PENDING:
        changes |= pending_columns(longer, at.ms)
    elif prolong(connection, mine.pool_row, one, end_ms) is not None:
        raise Problem(
            Code.CONFLICT, f"{one.id} cannot last longer: somebody was faster. Look with --dry-run, and ask again"
        )
    if mine.row["protected_until_ms"] is not None:
        changes["protected_until_ms"] = end_ms
    fact = Fact("reservation.extended", {"from": one.window.end_ms, "to": end_ms})
    commit.record(connection, at, one, fact, **changes)
