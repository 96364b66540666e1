"""From what a tenant wrote to what the planner is asked: times resolved, limits checked, nothing stored."""

import hashlib
from dataclasses import dataclass

from muster_coordinator.core.model import Entry, Grouping, Policy, Reservation, Shape, State
from muster_coordinator.service.bodies import Asked, GangRequest, ReservationRequest
from muster_coordinator.service.when import instant, length
from muster_shared.codec import dumps
from muster_shared.errors import Code, FieldError, Problem, invalid
from muster_shared.time import MS_MAX, format_duration, format_instant

_MIB_PER_GIB = 1_024
_TOGETHER_MAX = 2  # each multiplies what is tried on a node by its islands: 256 ways on the largest host


@dataclass(frozen=True, slots=True)
class Draft:
    """A request whose times are absolute."""

    shape: Shape
    grouping: Grouping
    start_ms: int
    duration_ms: int
    fixed_end_ms: int | None
    latest_start_ms: int | None

    def reservation(self, request: Asked, reservation_id: str, pool_id: str, now_ms: int) -> Reservation:
        """Return the pending reservation that this draft is."""
        return Reservation(
            id=reservation_id,
            tenant_id=request.tenant_id,
            pool_id=pool_id,
            state=State.PENDING,
            shape=self.shape,
            size=request.gang.size,
            grouping=self.grouping,
            start_ms=self.start_ms,
            duration_ms=self.duration_ms,
            fixed_end_ms=self.fixed_end_ms,
            latest_start_ms=self.latest_start_ms,
            generation=0,
            created_ms=now_ms,
            on_member_loss=request.on_member_loss,
        )


def drafted(request: ReservationRequest, now_ms: int, policy: Policy) -> Draft:
    """Resolve a request on the coordinator's clock.

    Raises:
        Problem: `INVALID_INPUT` with the path of the field: a window that is empty, over, too long or too far ahead;
            devices or a gang that contradict themselves.
    """
    start_ms = instant("start", request.start, now_ms)
    if start_ms is not None and start_ms < now_ms:
        raise invalid(
            "start",
            f"{format_instant(start_ms)} has passed (the coordinator's clock says {format_instant(now_ms)}); "
            "leave it out to begin now",
        )
    begin_ms = now_ms if start_ms is None else start_ms
    end_ms = instant("end", request.end, now_ms)
    duration_ms = _length(request, begin_ms, end_ms)
    if duration_ms > policy.max_duration_ms:
        raise invalid("duration", f"longer than the pool allows ({format_duration(policy.max_duration_ms)})")
    if begin_ms > now_ms + policy.look_ahead_ms:
        raise invalid("start", f"further ahead than the pool allows ({format_duration(policy.look_ahead_ms)})")
    latest_ms = instant("latestStart", request.latest_start, now_ms)
    if latest_ms is not None and latest_ms < begin_ms:
        raise invalid("latestStart", "before the start")
    return Draft(shape_of(request), grouping_of(request.gang), begin_ms, duration_ms, end_ms, latest_ms)


def shape_of(request: Asked) -> Shape:
    """Return what each node must give.

    Raises:
        Problem: `INVALID_INPUT` for an entry that no device could answer.
    """
    entries: list[Entry] = []
    for number, device in enumerate(request.devices):
        if device.profile is not None and device.device_class != "mig":
            raise invalid(f"devices.{number}.profile", "only MIG instances have one; say class mig")
        if device.topology == "nvlink-all" and device.device_class != "gpu":
            raise invalid(f"devices.{number}.topology", "only whole GPUs reach each other over NVLink")
        entries.append(
            Entry(
                kind=device.device_class,
                count=device.count,
                topology=device.topology,
                model=device.model,
                memory_mib=(device.memory_gib or 0) * _MIB_PER_GIB,
                profile=device.profile,
            )
        )
    if sum(entry.topology != "any" for entry in entries) > _TOGETHER_MAX:
        raise invalid("devices", f"at most {_TOGETHER_MAX} of them may ask for one island or one NUMA node")
    return Shape(tuple(entries), tuple(sorted(request.node_selector.items())))


def grouping_of(gang: GangRequest) -> Grouping:
    """Return on which labels the nodes of a gang agree.

    Raises:
        Problem: `INVALID_INPUT` for a key that is named twice, or segments that do not divide the gang.
    """
    first = [] if gang.topology_key is None else [gang.topology_key]
    required = [*first, *(one.key for one in gang.topology_keys if one.mode == "required")]
    preferred = [one.key for one in gang.topology_keys if one.mode == "preferred"]
    keys = [*required, *preferred]
    segment = gang.segment
    if segment is not None:
        if gang.size % segment.size:
            raise invalid(
                "gang.segment.size", f"does not divide the gang: {gang.size} nodes in segments of {segment.size}"
            )
        keys.append(segment.topology_key)
    for key in keys:
        if keys.count(key) > 1:
            raise invalid("gang.topologyKeys", f"{key!r} is named twice: once is enough")
    if segment is None:
        return Grouping(tuple(required), tuple(preferred))
    return Grouping(tuple(required), tuple(preferred), segment.topology_key, segment.size)


def body_hash(request: Asked) -> str:
    """Return the fingerprint by which a repeated call is told from another one with the same key.

    It is taken of what was written, so that `+2h` in a retry is the same request.
    """
    written = request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"idempotency_key"})
    return hashlib.sha256(dumps(written)).hexdigest()


def _length(request: ReservationRequest, begin_ms: int, end_ms: int | None) -> int:
    if (request.duration is None) == (end_ms is None):
        raise invalid("duration", "give either a duration or an end")
    if end_ms is not None:
        if end_ms <= begin_ms:
            raise invalid("end", f"not after the start ({format_instant(begin_ms)})")
        return end_ms - begin_ms
    duration_ms = length("duration", request.duration or "")
    if begin_ms + duration_ms > MS_MAX:
        raise invalid("duration", "ends after the year 9999")
    return duration_ms


def pool_missing(name: str) -> Problem:
    """Return the refusal of an unknown pool."""
    return Problem(
        Code.NOT_FOUND, f"there is no pool {name!r}; `muster pools` lists them", (FieldError("poolId", "unknown"),)
    )
