"""Rows of a scene to measure on, as the coordinator itself would have stored them."""

from dataclasses import dataclass
from typing import Final

from muster_coordinator.clock import Moment
from muster_coordinator.core.model import Agreed, Atom, BindState, Entry, Grouping, Node, Shape, State
from muster_coordinator.store.documents import written, written_agreed
from muster_shared.codec import dumps
from muster_shared.time import Window
from muster_shared.wire import FABRIC_DOMAIN

_WHOLE_NODE: Final = Shape((Entry("gpu", 8),))


@dataclass(frozen=True, slots=True)
class Gang:
    """A reservation that stands in the calendar."""

    id: str
    node_ids: tuple[str, ...]
    mask: int  # the same on each node
    window: Window
    domain: str = ""  # the fabric that it was booked in; empty where it may lie anywhere
    state: State = State.PLACED
    check_due_ms: int | None = None  # when it is looked at before its start
    shape: Shape = _WHOLE_NODE

    @property
    def agreed(self) -> Agreed:
        """The label values that it was booked with."""
        return ((FABRIC_DOMAIN, self.domain),) if self.domain else ()


def node_row(node: Node, pool_id: str, at: Moment) -> dict[str, object]:
    """Return a node that was heard from now."""
    return {
        "id": node.id,
        "pool_id": pool_id,
        "name": node.name,
        "machine_id": f"machine-{node.name}",
        "token_hash": node.id,
        "intent": "schedulable",
        "leased": False,
        "silent": False,
        "operator_labels": dumps(dict(node.labels)).decode(),
        "home_domain": node.home_domain,
        "past_boots": "[]",
        "seq": 0,
        "applied_rev": 0,
        "rev": 1,
        "version": 0,
        "changed_version": 0,
        "fault_ms": 0,
        "slots": "{}",
        "last_report_ms": at.ms,
        "created_ms": at.ms,
    }


def atom_row(node: Node, atom: Atom) -> dict[str, object]:
    """Return one GPU of a node."""
    return {
        "node_id": node.id,
        "number": atom.number,
        "kind": atom.kind,
        "device": atom.device,
        "gpu": atom.gpu,
        "part": 0,
        "profile": "",
        "milli": atom.milli,
        "model": atom.model,
        "memory_mib": atom.memory_mib,
        "island": atom.island,
        "seen": True,
        "listed": True,
    }


def reservation_row(gang: Gang, pool_id: str, at: Moment) -> dict[str, object]:
    """Return a gang's reservation."""
    is_active = gang.state is State.ACTIVE
    return {
        "id": gang.id,
        "tenant_id": "others",
        "pool_id": pool_id,
        "state": gang.state,
        "risks": "[]",
        "request": "{}",
        "shape": written(gang.shape),
        "grouping": written(Grouping((FABRIC_DOMAIN,)) if gang.domain else Grouping()),
        "agreed": written_agreed(gang.agreed),
        "size": len(gang.node_ids),
        "start_ms": gang.window.start_ms,
        "duration_ms": gang.window.duration_ms,
        "generation": 1,
        "version": 1,
        "seed": 0,
        "repairing": False,
        "check_due_ms": gang.check_due_ms,
        "activated_ms": gang.window.start_ms if is_active else None,
        "protected_until_ms": gang.window.end_ms if is_active else None,
        "created_ms": at.ms,
        "body_hash": "",
    }


def allocation_row(allocation_id: str, gang: Gang, node_id: str) -> dict[str, object]:
    """Return one member of a gang."""
    return {
        "id": allocation_id,
        "reservation_id": gang.id,
        "node_id": node_id,
        "generation": 1,
        "live": True,
        "bind_state": BindState.BOUND if gang.state is State.ACTIVE else BindState.RESERVED,
        "agreed": written_agreed(gang.agreed),
        "guard_armed": False,
    }


def booking_row(allocation_id: str, gang: Gang, node_id: str) -> dict[str, object]:
    """Return what a member has in the calendar."""
    return {
        "allocation_id": allocation_id,
        "word": 0,
        "node_id": node_id,
        "reservation_id": gang.id,
        "mask": gang.mask,
        "start_ms": gang.window.start_ms,
        "end_ms": gang.window.end_ms,
        "live": True,
    }
