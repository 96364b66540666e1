"""Pools from small drawings: one node a line, one character an atom.

a1 A ....|##..          eight atoms in two NVLink islands; two are booked for the window of the drawing
a2 A xx..|.... cordoned two atoms on hold; the operator lets nothing new in
c1 - ....               no value of the topology key
"""

from collections.abc import Iterable, Mapping

from muster_coordinator.core.model import (
    Atom,
    BindState,
    Booked,
    Intent,
    Member,
    Node,
    Request,
    Reservation,
    Shape,
    State,
)
from muster_coordinator.core.placement.pipeline import Placed, Plan
from muster_coordinator.core.placement.reasons import Refusal
from muster_coordinator.core.snapshot import Snapshot
from muster_shared.devices import Topology, atom_numbers
from muster_shared.time import Window

KEY = "fabric.domain"
WINDOW = Window(1_000, 2_000)
OTHERS = "rsv_of_others"
OURS = "rsv_of_ours"

_INTENTS: Mapping[str, Intent] = {"cordoned": "cordoned", "draining": "draining"}


def pool(drawing: str) -> Snapshot:
    """Return the drawn nodes as a pool. A node's id is its name."""
    return Snapshot.of("pool", 1, nodes(drawing))


def nodes(drawing: str) -> list[Node]:
    """Return the drawn nodes, in the order of the lines."""
    return [_node(*line.split()) for line in drawing.splitlines() if line.strip()]


def gpus(count: int, islands: Iterable[int] | None = None, model: str = "NVIDIA H100") -> tuple[Atom, ...]:
    """Return whole GPUs; `islands` names the NVLink island of each."""
    return tuple(
        Atom(number, "gpu", f"GPU-{number}", model, 81_920, island)
        for number, island in enumerate(islands or [0] * count)
    )


def asked(
    count: int = 4, size: int = 1, key: str | None = KEY, topology: Topology = "any", window: Window = WINDOW
) -> Request:
    """Return a request for `size` nodes with `count` GPUs each."""
    return Request(Shape("gpu", count, topology), size, key, window)


def placed(members: str, size: int, value: str | None = "A", count: int = 4, window: Window = WINDOW) -> Reservation:
    """Return a placed gang of ours from `a1:0123 a2:0123`: nodes and the atoms it has there."""
    return Reservation(
        id=OURS,
        tenant_id="acme",
        pool_id="pool",
        state=State.PLACED,
        shape=Shape("gpu", count),
        size=size,
        topology_key=KEY if value is not None else None,
        topology_value=value,
        start_ms=window.start_ms,
        duration_ms=window.duration_ms,
        fixed_end_ms=None,
        latest_start_ms=None,
        generation=1,
        members=tuple(member(part) for part in members.split()),
    )


def member(drawing: str, bind: BindState = BindState.RESERVED) -> Member:
    """Return one allocation from `a1:0123`."""
    node_id, _, atoms = drawing.partition(":")
    return Member(f"alloc_{node_id}", node_id, sum(1 << int(atom) for atom in atoms), 1, bind)


def with_gang(snapshot: Snapshot, reservation: Reservation) -> Snapshot:
    """Return the pool in which the gang's members are booked for its window."""
    for one in reservation.members:
        window = reservation.window
        snapshot = snapshot.with_booking(one.node_id, Booked(window.start_ms, window.end_ms, one.mask, reservation.id))
    return snapshot


def drawn(answer: Plan | Refusal) -> str:
    """Draw a plan as `a1:0123 a2:0123`, a refusal as its sentence."""
    return answer.sentence if isinstance(answer, Refusal) else drawn_members(answer.members)


def drawn_members(members: Iterable[Placed | Member]) -> str:
    """Draw members as `a1:0123 a2:0123`, in the order given."""
    return " ".join(f"{one.node_id}:{''.join(map(str, atom_numbers(one.mask)))}" for one in members)


def _node(name: str, value: str, atoms: str, *flags: str) -> Node:
    signs = atoms.replace("|", "")
    islands = [number for number, island in enumerate(atoms.split("|")) for _ in island]
    held, booked = _mask(signs, "x"), _mask(signs, "#")
    return Node(
        id=name,
        name=name,
        labels={} if value == "-" else {KEY: value},
        atoms=gpus(len(signs), islands),
        intent=next((_INTENTS[flag] for flag in flags if flag in _INTENTS), "schedulable"),
        silent_since_ms=0 if "silent" in flags else None,
        leased="leased" in flags,
        held={"xid": held} if held else {},
        booked=(Booked(WINDOW.start_ms, WINDOW.end_ms, booked, OTHERS),) if booked else (),
    )


def _mask(signs: str, wanted: str) -> int:
    return sum(1 << number for number, sign in enumerate(signs) if sign == wanted)
