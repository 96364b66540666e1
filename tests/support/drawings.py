"""Pools from small drawings: one node a line, one character an atom.

a1 A ....|##..          eight GPUs in two NVLink islands; two are booked for the window of the drawing
a2 A xx..|.... cordoned two atoms on hold; the operator lets nothing new in
a5 A .... maintenance   all of it is in maintenance for the window of the drawing
a3 A .[..#](xx..)       a whole GPU, one cut into three MIG instances, and one shared by four slots
a4 A .... numa:aabb     the NUMA node of each GPU
c1 - .... rack=r1       no value of the topology key, but another label
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from muster_coordinator.core.model import (
    Agreed,
    Atom,
    BindState,
    Booked,
    Entry,
    Grouping,
    Intent,
    MaintenanceWindow,
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
from muster_shared.devices import MILLI_PER_GPU, DeviceClass, Topology, atom_numbers
from muster_shared.time import Window

KEY = "fabric.domain"
RACK = "rack"
WINDOW = Window(1_000, 2_000)
OTHERS = "rsv_of_others"
OURS = "rsv_of_ours"
UPKEEP = "mnt_1"
MODEL = "NVIDIA H100"
MEMORY_MIB = 81_920
PROFILE = "1g.10gb"

_INTENTS: Mapping[str, Intent] = {"cordoned": "cordoned", "draining": "draining"}
_OPENED: Final[Mapping[str, DeviceClass]] = {"[": "mig", "(": "slot"}


def pool(drawing: str) -> Snapshot:
    """Return the drawn nodes as a pool. A node's id is its name."""
    return Snapshot.of("pool", 1, nodes(drawing))


def nodes(drawing: str) -> list[Node]:
    """Return the drawn nodes, in the order of the lines."""
    return [_node(*line.split()) for line in drawing.splitlines() if line.strip()]


def devices(drawing: str, numa: str = "") -> tuple[Atom, ...]:
    """Return the atoms of `..|[..](....)`; `numa` names the NUMA node of each GPU by a letter."""
    atoms: list[Atom] = []
    gpu, island = 0, 0
    kind: DeviceClass = "gpu"
    parts = 1
    for at, sign in enumerate(drawing):
        if sign in _OPENED:
            kind = _OPENED[sign]
            parts = min(end for end in (drawing.find("]", at), drawing.find(")", at)) if end > 0) - at - 1
        elif sign in "])":
            kind, parts = "gpu", 1
            gpu += 1
        elif sign == "|":
            island += 1
        else:
            atoms.append(_atom(len(atoms), kind, gpu, island, parts))
            gpu += kind == "gpu"
    letters = {str(number): ord(letter) - ord("a") for number, letter in enumerate(numa)}
    return tuple(replace(atom, numa=letters.get(atom.gpu.removeprefix("GPU-"))) for atom in atoms)


def gpus(count: int) -> tuple[Atom, ...]:
    """Return whole GPUs in one NVLink island."""
    return devices("." * count)


def asked(
    count: int | tuple[Entry, ...] = 4,
    size: int = 1,
    key: str | None = KEY,
    topology: Topology = "any",
    window: Window = WINDOW,
    grouping: Grouping | None = None,
) -> Request:
    """Return a request for `size` nodes with `count` GPUs each, or other devices; `grouping` in the place of a key."""
    entries = (Entry("gpu", count, topology),) if isinstance(count, int) else count
    return Request(Shape(entries), size, grouping or same(key), window)


def same(*keys: str | None) -> Grouping:
    """Return a gang that agrees on every one of these keys."""
    return Grouping(required=tuple(key for key in keys if key is not None))


def placed(
    members: str,
    size: int,
    value: str | None = "A",
    count: int = 4,
    window: Window = WINDOW,
    segment_size: int = 0,
) -> Reservation:
    """Return a placed gang of ours from `a1:0123 a2:0123`: nodes and the atoms it has there.

    With a `segment_size`, each member tells its rack as `a1:0123=r1`.
    """
    agreed: Agreed = () if value is None else ((KEY, value),)
    grouping = Grouping(tuple(key for key, _ in agreed), (), RACK if segment_size else None, segment_size)
    return Reservation(
        id=OURS,
        tenant_id="acme",
        pool_id="pool",
        state=State.PLACED,
        shape=asked(count).shape,
        size=size,
        grouping=grouping,
        start_ms=window.start_ms,
        duration_ms=window.duration_ms,
        fixed_end_ms=None,
        latest_start_ms=None,
        generation=1,
        agreed=agreed,
        members=tuple(member(part, agreed=agreed) for part in members.split()),
    )


def member(drawing: str, bind: BindState = BindState.RESERVED, agreed: Agreed = ()) -> Member:
    """Return one allocation from `a1:0123`, or `a1:0123=r1` where it is in a segment."""
    node_id, _, atoms = drawing.partition(":")
    atoms, _, rack = atoms.partition("=")
    mask = sum(1 << int(atom) for atom in atoms)
    return Member(f"alloc_{node_id}", node_id, mask, 1, bind, (*agreed, (RACK, rack)) if rack else agreed)


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
    return " ".join(f"{one.node_id}:{drawn_mask(one.mask)}" for one in members)


def drawn_mask(mask: int) -> str:
    """Draw atoms by their numbers."""
    return "".join(map(str, atom_numbers(mask)))


def _atom(number: int, kind: DeviceClass, gpu: int, island: int, parts: int) -> Atom:
    uuid = f"GPU-{gpu}"
    return Atom(
        number,
        kind,
        f"MIG-{number}" if kind == "mig" else uuid,
        MODEL,
        MEMORY_MIB // parts,
        island,
        profile=PROFILE if kind == "mig" else "",
        milli=-(-MILLI_PER_GPU // parts),
        gpu=uuid,
    )


def _node(name: str, value: str, atoms: str, *flags: str) -> Node:
    signs = "".join(sign for sign in atoms if sign not in "|[]()")
    held, booked = _mask(signs, "x"), _mask(signs, "#")
    labels = dict(flag.split("=") for flag in flags if "=" in flag)
    is_upkept = "maintenance" in flags
    numa = next((flag.removeprefix("numa:") for flag in flags if flag.startswith("numa:")), "")
    return Node(
        id=name,
        name=name,
        labels=labels if value == "-" else {KEY: value, **labels},
        atoms=devices(atoms, numa),
        intent=next((_INTENTS[flag] for flag in flags if flag in _INTENTS), "schedulable"),
        silent_since_ms=0 if "silent" in flags else None,
        leased="leased" in flags,
        held={"xid": held} if held else {},
        booked=(
            *((Booked(WINDOW.start_ms, WINDOW.end_ms, booked, OTHERS),) if booked else ()),
            *((Booked(WINDOW.start_ms, WINDOW.end_ms, (1 << len(signs)) - 1, UPKEEP),) if is_upkept else ()),
        ),
        maintenance=(MaintenanceWindow(UPKEEP, WINDOW),) if is_upkept else (),
    )


def _mask(signs: str, wanted: str) -> int:
    return sum(1 << number for number, sign in enumerate(signs) if sign == wanted)
