"""BookingRepair in one transaction: is a booking sound, may it move now, who takes over, and what if nobody can."""

from collections.abc import Collection
from functools import cached_property
from typing import Literal

from sqlalchemy import Connection, RowMapping, update

from muster_coordinator.clock import Moment
from muster_coordinator.core.lifecycle.model import Move
from muster_coordinator.core.model import BindState, EndReason, Member, Reservation, State
from muster_coordinator.core.placement.pipeline import Placed
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.repair.brake import Storm, held_until_ms
from muster_coordinator.core.repair.check import Risk, dated, due_repair, next_check_ms, risks
from muster_coordinator.core.repair.plan import Repaired, plan_repair
from muster_coordinator.core.repair.targets import untrusted
from muster_coordinator.core.snapshot import Snapshot
from muster_coordinator.service.changes.ends import end
from muster_coordinator.service.conditions import condition_of
from muster_coordinator.service.index import PoolIndex, bookings_of
from muster_coordinator.service.repairs import storm
from muster_coordinator.service.repairs.risks import known_risks, mark, written_risks
from muster_coordinator.service.waiting import pending_columns
from muster_coordinator.store import commit, read
from muster_coordinator.store.commit import Fact, Lost
from muster_coordinator.store.documents import written_agreed
from muster_coordinator.store.read import PoolRow
from muster_coordinator.store.tables import RESERVATION
from muster_shared.codec import encode
from muster_shared.time import Window

Taken = Literal["goes on", "at rest", "held"]
"""What came of a step: another may be due; none is now; or a dark pool held it, and nothing was written."""


class Repairs:
    """The repairs of one transaction, which holds the pool's row."""

    def __init__(self, connection: Connection, at: Moment, pool_row: PoolRow, index: PoolIndex) -> None:
        self._connection = connection
        self._at = at
        self._pool_row = pool_row
        self._index = index
        self._moves = storm.moves_of(pool_row)
        self._seen: Snapshot | None = None
        self._has_changed = False  # by this transaction, which may still be undone
        self._stale: set[str] = set()  # nodes that it has changed since it saw them

    # --- what is seen ----------------------------------------------------------------------------------------------

    @cached_property
    def storm(self) -> Storm:
        """How much of the pool fell lately: one look for the whole transaction."""
        return storm.seen(self.pool(), self._at.ms)

    def pool(self) -> Snapshot:
        """Return the pool with what this transaction has changed; the index learns of that once it is committed."""
        if self._seen is None and self._has_changed:
            self._seen = read.snapshot(self._connection, self._pool_row, self._at.ms)
        elif self._seen is None:
            self._seen = self._index.snapshot(self._connection, self._pool_row, self._at)
        elif self._stale:
            nodes = read.nodes(self._connection, self._pool_row, self._at.ms, self._stale)
            self._seen = self._seen.with_nodes(self._seen.version, nodes, self._at.ms)
        self._stale.clear()
        return self._seen

    def has_changed(self, reservation: Reservation) -> None:
        """Take down that this transaction has changed what a reservation's nodes are booked for."""
        self._has_changed = True
        self._stale |= _nodes(reservation)

    def found(self, reservation: Reservation, row: RowMapping) -> tuple[tuple[Risk, ...], Snapshot]:
        """Return what is wrong with a reservation now, and a pool with the nodes of its members, as they are stored."""
        # The pool's row is held: what is known of the pool, caught up, is what is stored.
        members = self.pool()
        known = {(one.node_id, one.code): one.since_ms for one in known_risks(row)}
        return dated(risks(reservation, members, self._pool_row.policy), known, self._at.ms), members

    # --- the check -------------------------------------------------------------------------------------------------

    def check(self, reservation: Reservation, row: RowMapping, *, starting: bool) -> Taken:
        """Look whether a booking is sound, mark what is not, and move what must move."""
        found, members = self.found(reservation, row)
        if found and reservation.state is State.PLACED and self.storm.is_dark:
            if starting:
                self._begin(reservation)
            return "goes on" if starting else "held"
        mark(self._connection, self._at, reservation, row, found, members)
        if reservation.state is State.ACTIVE:
            self._tend(reservation, row, members)
            return "goes on"
        policy, now_ms = self._pool_row.policy, self._at.ms
        again_ms = next_check_ms(reservation, found, now_ms, policy)
        bad = due_repair(reservation, found, now_ms, policy)
        held_ms = self._held_until_ms(reservation, found, bad) if bad else None
        if held_ms is None:
            unwanted = bad | {risk.node_id for risk in found if risk.is_for_maintenance}
            # What only maintenance wants away may stay.
            if unwanted != bad and self._move(reservation, row, unwanted, starting=starting) is None:
                return "goes on"
            held_ms = self._repair_placed(reservation, row, bad, starting=starting) if bad else None
            if bad and held_ms is None:
                return "goes on"
        if held_ms is not None:
            again_ms = held_ms if again_ms is None else min(held_ms, again_ms)
        if starting:
            self._begin(reservation)
            return "goes on"
        self._look_again_at(reservation, again_ms)
        return "at rest"

    def _begin(self, reservation: Reservation) -> None:
        fact = Fact("reservation.binding", {"nodeIds": [member.node_id for member in reservation.members]})
        changes = {"binding_since_ms": self._at.ms, "check_due_ms": None}
        commit.record(self._connection, self._at, reservation, fact, Move.START, **changes)

    def _look_again_at(self, reservation: Reservation, due_ms: int | None) -> None:
        due = update(RESERVATION).where(RESERVATION.c.id == reservation.id).values(check_due_ms=due_ms)
        self._connection.execute(due)

    def _held_until_ms(self, reservation: Reservation, found: Collection[Risk], bad: Collection[str]) -> int | None:
        """Ask the brake. What people ordered is no storm: it moves whatever falls elsewhere."""
        if all(risk.is_ordered for risk in found if risk.node_id in bad):
            return None
        domains = storm.domains_of(self.pool(), bad)
        return held_until_ms(self.storm, domains, reservation.start_ms, self._moves, self._at.ms)

    # --- what has not begun ----------------------------------------------------------------------------------------

    def _repair_placed(
        self, reservation: Reservation, row: RowMapping, bad: frozenset[str], *, starting: bool
    ) -> int | None:
        """Move the bad members, or the whole gang, or give the placement up; or return when to try again.

        Nodes that have not proven themselves yet take nobody over before the start. Where only they could, the booking
        waits for them; where not even they could, it gives up what it has, within `repairHorizon`.
        """
        policy, now_ms = self._pool_row.policy, self._at.ms
        refusal = self._move(reservation, row, bad, starting=starting)
        if refusal is None:
            return None
        if not starting:
            if reservation.start_ms - now_ms > policy.repair_horizon_ms:
                return now_ms + policy.repair_lead_ms
            if isinstance(self.plan(reservation, bad), Repaired):
                return min(reservation.start_ms, now_ms + policy.retry_interval_ms)
        self._give_up(reservation, refusal)
        return None

    def _move(
        self, reservation: Reservation, row: RowMapping, bad: frozenset[str], *, starting: bool
    ) -> Refusal | None:
        refusal = self.try_move(reservation, row, bad, Move.REPAIR, shunned=self.untrusted)
        if refusal is not None and starting:
            refusal = self.try_move(reservation, row, bad, Move.REPAIR)
        return refusal

    def replace(self, reservation: Reservation, row: RowMapping, allocation_ids: Collection[str]) -> Taken:
        """Replace members that did not bind."""
        if self.storm.is_dark:
            return "held"
        bad = frozenset(one.node_id for one in reservation.members if one.allocation_id in allocation_ids)
        if reservation.activated_ms is not None:
            lost = {one.node_id for one in reservation.members if one.bind is BindState.LOST}
            if not self._replace_in_place(reservation, row, bad, slow=bad - lost):
                self._look_again_at(reservation, self._at.ms + self._pool_row.policy.retry_interval_ms)
            return "goes on"
        refusal = self.try_move(reservation, row, bad, Move.REPLACE, shunned=self.untrusted)
        if refusal is not None:
            refusal = self.try_move(reservation, row, bad, Move.REPLACE)
        if refusal is not None:
            self._give_up(reservation, refusal)
        return "goes on"

    @cached_property
    def untrusted(self) -> frozenset[str]:
        """The nodes that take nobody over where others can. No repair changes what is said of a node."""
        return untrusted(self.pool(), self.storm, self._at.ms, self._pool_row.policy)

    # --- what is in use --------------------------------------------------------------------------------------------

    def _tend(self, reservation: Reservation, row: RowMapping, members: Snapshot) -> None:
        """Do for an active gang what its owner wants when a member is surely dead, and empty nodes that are drained."""
        lost = frozenset(one.node_id for one in reservation.members if one.bind is BindState.LOST)
        if lost and reservation.on_member_loss == "release":
            end(self._connection, self._at, reservation, EndReason.LOST)
            self.has_changed(reservation)
            return
        again_ms: int | None = None
        if lost and reservation.on_member_loss == "replace":
            domains = storm.domains_of(self.pool(), lost)
            again_ms = self._at.ms + self._pool_row.policy.retry_interval_ms
            # In use: it is moved like what starts soon, and not while its whole domain is gone.
            urgent_ms = self._at.ms + 1
            if held_until_ms(
                self.storm, domains, urgent_ms, self._moves, self._at.ms
            ) is None and self._replace_in_place(reservation, row, lost):
                return
        protected_ms = reservation.protected_until_ms
        if protected_ms is not None and any(
            members.views[node_id].node.intent == "draining" for node_id in _nodes(reservation) & members.views.keys()
        ):
            if self._at.ms >= protected_ms:
                end(self._connection, self._at, reservation, EndReason.PREEMPTED)
                self.has_changed(reservation)
                return
            again_ms = min(protected_ms, again_ms) if again_ms is not None else protected_ms
        self._look_again_at(reservation, again_ms)

    def _replace_in_place(
        self, reservation: Reservation, row: RowMapping, bad: frozenset[str], slow: frozenset[str] = frozenset()
    ) -> bool:
        """Put others in the place of members that are gone; a node that is well again may take its own place.

        Args:
            reservation: Active, or interrupted.
            row: Of the reservation.
            bad: Nodes whose members leave.
            slow: Of these, the ones that are no better choice now: they did not bind.
        """
        shunned = self.untrusted | slow
        return self.try_move(reservation, row, bad, Move.REPLACE, shunned=shunned, keeps_place=True) is None

    # --- moving ----------------------------------------------------------------------------------------------------

    def plan(
        self,
        reservation: Reservation,
        bad: frozenset[str],
        *,
        shunned: frozenset[str] | None = None,
        keeps_place: bool = False,
    ) -> Repaired | Refusal:
        """Return who would take over; nothing is written."""
        return plan_repair(
            reservation,
            bad,
            self.pool(),
            _rest(reservation, self._at.ms),
            self._pool_row.policy,
            seed=self._at.new_seed(),
            shunned=shunned,
            keeps_place=keeps_place,
        )

    def try_move(
        self,
        reservation: Reservation,
        row: RowMapping,
        bad: frozenset[str],
        move: Move,
        *,
        shunned: frozenset[str] | None = None,
        keeps_place: bool = False,
    ) -> Refusal | None:
        """Swap the bad members, or the whole gang; a refusal changes nothing.

        Args:
            reservation: With its members.
            row: Of the reservation.
            bad: Nodes whose members leave.
            move: Of the state.
            shunned: Nodes that take nobody over, besides the bad ones; in use, a bad node may take its own place again.
            keeps_place: Members on other nodes stay where they are.
        """
        out = shunned if keeps_place and shunned is not None else bad | (shunned or frozenset[str]())
        for _ in range(self._pool_row.policy.max_attempts):
            answer = self.plan(reservation, bad, shunned=out, keeps_place=keeps_place)
            if isinstance(answer, Refusal):
                return answer
            lost = self._swap(reservation, row, answer, move, bad)
            if lost is None:
                return None
            out |= lost.node_ids
        return Refusal(reservation.size, reservation.grouping.required, 0, (), reservation.size)

    def _swap(
        self, reservation: Reservation, row: RowMapping, answer: Repaired, move: Move, bad: Collection[str]
    ) -> Lost | None:
        kept = {member.allocation_id for member in answer.kept}
        leaving = [member for member in reservation.members if member.allocation_id not in kept]
        window = _rest(reservation, self._at.ms)
        version = self._version()
        savepoint = self._connection.begin_nested()
        ids = [member.allocation_id for member in leaving]
        commit.drop(self._connection, self._at, reservation.pool_id, ids, leave_gang=True)
        lost = commit.book(self._connection, self._at, self._pool_row, reservation, answer.added, window, version)
        if lost is not None:
            savepoint.rollback()
            return lost
        savepoint.commit()
        self._follow(reservation, leaving, answer.added, window)
        data: dict[str, object] = {
            "from": sorted(member.node_id for member in leaving),
            "nodeIds": sorted([member.node_id for member in answer.kept] + [new.node_id for new in answer.added]),
            "because": sorted(bad),
            "topology": dict(answer.agreed),
            "seed": answer.seed,
        }
        changes: dict[str, object] = {
            "generation": reservation.generation + 1,
            "agreed": written_agreed(answer.agreed),
            "seed": answer.seed,
            "check_due_ms": max(self._at.ms, reservation.start_ms - self._pool_row.policy.repair_lead_ms),
        }
        left = [one for one in known_risks(row) if one.node_id in {member.node_id for member in answer.kept}]
        changes["risks"] = written_risks(left)
        if left:
            changes["check_due_ms"] = self._at.ms
        if move is Move.REPLACE:
            # New members get the full time to bind. Without it, two nodes that never let go change places for ever.
            changes |= {"binding_since_ms": self._at.ms, "check_due_ms": None}
        fact = Fact("reservation.repaired", data)
        commit.record(self._connection, self._at, reservation, fact, move, **changes)
        storm.count_move(self._connection, self._at, reservation.pool_id)
        self._moves.append(self._at.ms)
        return None

    def _version(self) -> int:
        """Return the pool's version that the last plan was made on: nobody else changes it meanwhile."""
        return read.version(self._connection, self._pool_row.id) if self._has_changed else self._pool_row.version

    def _follow(
        self, reservation: Reservation, leaving: Collection[Member], added: Collection[Placed], window: Window
    ) -> None:
        """Know what a swap has booked without a look; what a node was told of it must let go of first."""
        self._has_changed = True
        if self._seen is None or any(member.bind is not BindState.RESERVED for member in leaving):
            self._stale |= _nodes(reservation) | {member.node_id for member in added}
            return
        bookings = bookings_of(reservation.id, added, window.occupied(self._pool_row.policy.turnaround_ms))
        left = self._seen.without(reservation.id, [member.node_id for member in leaving])
        self._seen = left.with_bookings(bookings, left.version)

    def _give_up(self, reservation: Reservation, refusal: Refusal) -> None:
        commit.drop(self._connection, self._at, reservation.pool_id, _ids(reservation), leave_gang=True)
        self.has_changed(reservation)
        condition = condition_of(refusal, repairing=True)
        changes = {
            "condition": encode(condition).decode(),
            "repairing": True,
            "agreed": "[]",
            "risks": "[]",
            "binding_since_ms": None,
            **pending_columns(reservation, self._at.ms),
        }
        data = {"reason": condition.reason, "message": condition.message}
        fact = Fact("reservation.repair_failed", data)
        commit.record(self._connection, self._at, reservation, fact, Move.UNPLACE, **changes)


def _rest(reservation: Reservation, now_ms: int) -> Window:
    return Window(max(reservation.start_ms, now_ms), reservation.window.end_ms)


def _ids(reservation: Reservation) -> list[str]:
    return [member.allocation_id for member in reservation.members]


def _nodes(reservation: Reservation) -> set[str]:
    return {member.node_id for member in reservation.members}
