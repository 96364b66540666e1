"""The simulation finds what is planted: each bug takes one guard of the product away, for one run.

Bugs that need a rarer meeting of faults than a few seeds bring about are proven by script: a release believed too soon
in `tests/service/test_fences.py`, an old reply obeyed in `tests/agent/test_desired.py`.
"""

# A bug is planted where a guard is, and guards are private.
# ruff: noqa: SLF001

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from muster_agent.core import machine
from muster_coordinator.api import admission
from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.advance import next_step
from muster_coordinator.core.lifecycle.model import Activate
from muster_coordinator.core.model import BindState, Reservation, State
from muster_coordinator.service import admit, advance, sweep, together
from muster_coordinator.service.nodes import desired as desires
from muster_coordinator.service.nodes import operate, report
from muster_coordinator.service.repairs import repair
from muster_coordinator.store import commit, read
from muster_coordinator.store.tables import ALLOCATION, BOOKING
from muster_shared.wire import DesiredState
from tests.support import sim_coordinator
from tests.support.sim_world import simulated

MINUTES = 3
SEEDS = range(1, 7)

Plant = Callable[[pytest.MonkeyPatch], None]


def active_when_any_member_is_bound(patch: pytest.MonkeyPatch) -> None:
    def hasty(reservation: Reservation, *rest: Any) -> object:
        is_bound = any(member.bind is BindState.BOUND for member in reservation.members)
        if reservation.state is State.BINDING and is_bound:
            return Activate()
        return next_step(reservation, *rest)

    patch.setattr(advance, "next_step", hasty)


def freed_without_waiting_for_the_unbind(patch: pytest.MonkeyPatch) -> None:
    honest = commit._dropped

    def hasty(row: Any, revs: Any, at: Moment) -> dict[str, Any]:
        return {**honest(row, revs, at), "new_bind_state": BindState.RELEASED}

    patch.setattr(commit, "_dropped", hasty)


def booked_without_looking_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit, "_still_fits", lambda *_: True)
    honest, whole = operate.prepare, together.enter_all

    def blind(connection: Connection, at: Moment, batch: together.Batch) -> object:
        version = read.known_pool(connection, batch.snapshot.pool_id).version
        return whole(connection, at, replace(batch, snapshot=replace(batch.snapshot, version=version)))

    patch.setattr(admission, "enter_all", blind)

    def unguarded(connection: Connection, *rest: Any) -> None:
        honest(connection, *rest)
        for moment in ("insert", "update"):
            connection.exec_driver_sql(f"DROP TRIGGER muster_booking_overlap_{moment}")

    patch.setattr(operate, "prepare", unguarded)


def led_without_looking_at_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep, "hold_epoch", lambda *_: None)


def repaired_with_the_old_members_kept(patch: pytest.MonkeyPatch) -> None:
    honest = repair.Repairs._swap

    def hasty(self: Any, reservation: Reservation, *rest: Any) -> object:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(commit, "drop", lambda *_, **__: None)
            return honest(self, reservation, *rest)

    patch.setattr(repair.Repairs, "_swap", hasty)


def active_without_an_event(patch: pytest.MonkeyPatch) -> None:
    honest = commit.emit

    def silent(connection: Connection, at: Moment, fact: commit.Fact, **more: Any) -> None:
        if fact.type != "reservation.active":
            honest(connection, at, fact, **more)

    patch.setattr(commit, "emit", silent)


def older_reports_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(report, "_is_stale", lambda *_: False)


def only_the_first_member_freed(patch: pytest.MonkeyPatch) -> None:
    def half(connection: Connection, reservation: Reservation) -> None:
        mine = ALLOCATION.select().where(ALLOCATION.c.reservation_id == reservation.id, ALLOCATION.c.live)
        first = [row.id for row in connection.execute(mine).all()[:1]]
        connection.execute(BOOKING.update().where(BOOKING.c.allocation_id.in_(first)).values(live=False))
        connection.execute(ALLOCATION.update().where(ALLOCATION.c.id.in_(first)).values(live=False))

    patch.setattr(commit, "leave", half)


def bound_for_ever_without_a_coordinator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "_end_boot_ms", lambda *_: 1 << 60)


def keys_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admit, "earlier_one", lambda *_: None)
    patch.setattr(together, "_is_known", lambda *_: False)


def grants_told_and_not_stored(patch: pytest.MonkeyPatch) -> None:
    def forgetful(connection: Connection, at: Moment, node_id: str) -> DesiredState:
        with connection.begin_nested() as savepoint:
            told = desires.desired(connection, at, node_id)
            savepoint.rollback()
        return told

    patch.setattr(sim_coordinator, "desired", forgetful)


def ended_a_minute_late(patch: pytest.MonkeyPatch) -> None:
    honest = machine.take

    def late(state: Any, wanted: Any) -> Any:
        orders = {key: replace(order, end_boot_ms=order.end_boot_ms + 60_000) for key, order in wanted.orders.items()}
        return honest(state, replace(wanted, orders=orders))

    patch.setattr(machine, "take", late)


PLANTS: dict[Plant, tuple[str, int]] = {
    active_when_any_member_is_bound: ("I04", 1),
    freed_without_waiting_for_the_unbind: ("I09", 2),
    booked_without_looking_again: ("I01", 10),
    led_without_looking_at_the_epoch: ("I31", 1),
    repaired_with_the_old_members_kept: ("I02", 2),
    active_without_an_event: ("I28", 1),
    older_reports_taken: ("I33", 1),
    only_the_first_member_freed: ("I03", 1),
    bound_for_ever_without_a_coordinator: ("I08", 2),
    keys_not_looked_up: ("UNIQUE", 1),  # the database's own constraint stops it, and a task fails
    grants_told_and_not_stored: ("I08", 1),
    ended_a_minute_late: ("I08", 2),
}
"""Each bug, what the first violation says, and the seed that is tried first: it found the bug when this was written."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    sign, first = PLANTS[plant]
    plant(monkeypatch)
    for seed in (first, *SEEDS):
        outcome = simulated(seed, MINUTES)
        if outcome.violations:
            break

    assert outcome.violations, f"{plant.__name__} survived {len(SEEDS)} seeds"
    assert any(sign in violation for violation in outcome.violations), outcome.text
