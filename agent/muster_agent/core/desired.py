"""Desired states: what the coordinator wants bound, on the node's own clock, and which of them are refused.

Times arrive as *remaining* time and are pinned to the boot clock when the answer arrives, so that no wall clock
of the node decides anything.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from muster_shared.wire import Clearance, DesiredState

_PATH_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_VALUE_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


@dataclass(frozen=True, slots=True)
class Order:
    """One assignment of a desired state, its times on the boot clock of this boot."""

    allocation_id: str
    reservation_id: str
    generation: int
    tenant_id: str
    devices: tuple[str, ...]  # full UUIDs, at least one
    start_boot_ms: int  # never before this: the late bound
    end_boot_ms: int  # let go at this: the early bound of the grant
    end_unix_ms: int  # the window's end on the coordinator's clock; told to the tenant, decides nothing
    topology_key: str | None = None
    topology_value: str | None = None
    imex_channel: int | None = None
    imex_peers: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # of `devices`, those of which it has a share in time
    preempt_boot_ms: int | None = None  # it has been given notice, and must be gone then
    kill_grace_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Fence:
    """The newest desired state that this node has seen. It never moves back, not even over a restart."""

    cluster_id: str = ""  # empty until the node has joined
    node_id: str = ""
    epoch: int = 0
    rev: int = 0


@dataclass(frozen=True, slots=True)
class Desired:
    """All that shall be bound, at one revision."""

    fence: Fence
    orders: Mapping[str, Order]  # by allocation id
    sent_boot_ms: int  # when the request for it left
    cleared: tuple[Clearance, ...] = ()  # holds that an operator has ended


def timed(state: DesiredState, *, sent_boot_ms: int, received_boot_ms: int) -> Desired:
    """Pin an answer's remaining times to the boot clock: start late, end early.

    The coordinator wrote the answer somewhere between `sent_boot_ms` and `received_boot_ms`. A start counted from
    the later and an end counted from the earlier can only err to the safe side, by the round trip at most.

    Args:
        state: The answer.
        sent_boot_ms: Boot clock when the request left.
        received_boot_ms: Boot clock when the answer was read, at least `sent_boot_ms`.

    Source: design, section 2; reliability facts, decision 7.
    """
    orders = {
        item.allocation_id: Order(
            allocation_id=item.allocation_id,
            reservation_id=item.reservation_id,
            generation=item.generation,
            tenant_id=item.tenant_id,
            devices=tuple(item.devices),
            start_boot_ms=received_boot_ms + item.starts_in_ms,
            end_boot_ms=sent_boot_ms + min(item.grant_for_ms, item.ends_in_ms),
            end_unix_ms=state.now_ms + item.ends_in_ms,
            topology_key=item.topology_key,
            topology_value=item.topology_value,
            imex_channel=item.imex_channel,
            imex_peers=tuple(item.imex_peers),
            shared=tuple(sorted(set(item.shared) & set(item.devices))),
            preempt_boot_ms=None if item.preempt_in_ms is None else sent_boot_ms + item.preempt_in_ms,
            kill_grace_ms=item.kill_grace_ms,
        )
        for item in state.assignments
    }
    fence = Fence(state.cluster_id, state.node_id, state.epoch, state.rev)
    return Desired(fence, orders, sent_boot_ms, tuple(state.cleared))


def refusal(seen: Fence, last: Desired | None, desired: Desired) -> str | None:
    """Tell why a desired state must not be obeyed; None if it may be.

    Args:
        seen: The fence on disk, of the node's present identity.
        last: The desired state obeyed now, None before the first of this process.
        desired: The one that arrived.

    Returns:
        A sentence for the log: `otherCluster`, `otherNode`, `oldEpoch`, `oldRev`, `oldAnswer` or `unsafeId`,
        and the figures.

    Source: design, section 6, "four fences".
    """
    return next(_refusals(seen, last, desired), None)


def _refusals(seen: Fence, last: Desired | None, desired: Desired) -> Iterator[str]:
    new = desired.fence
    floor = last.fence if last else seen
    if new.cluster_id != seen.cluster_id:
        yield f"otherCluster: {new.cluster_id} speaks, but this node belongs to {seen.cluster_id}"
    if new.node_id != seen.node_id:
        yield f"otherNode: it is meant for {new.node_id}, not for {seen.node_id}"
    if new.epoch < floor.epoch:
        yield f"oldEpoch: {new.epoch} is below {floor.epoch}"
    if new.rev < floor.rev:
        yield f"oldRev: {new.rev} is below {floor.rev}"
    if last and new == last.fence and desired.sent_boot_ms < last.sent_boot_ms:
        yield f"oldAnswer: revision {new.rev} was asked for again since"
    for order in desired.orders.values():
        # Ids become file names and values of environment files, on a host where we are root.
        if not (
            _PATH_SAFE.fullmatch(order.allocation_id)
            and _VALUE_SAFE.fullmatch(order.reservation_id)
            and _VALUE_SAFE.fullmatch(order.tenant_id)
        ):
            yield f"unsafeId: {order.allocation_id!r}, {order.reservation_id!r} or {order.tenant_id!r}"
