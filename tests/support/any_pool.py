"""Any small pool, and anything that may be asked of it: what properties are tried on."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from muster_coordinator.core.model import Atom, Booked, Entry, Grouping, Intent, Node, Policy, Request, Shape
from muster_shared.time import Window
from tests.support.drawings import KEY, RACK, devices

ROW = "row"
ZERO = "00000000-0000-0000-0000-000000000000.3"
ATOMS_MOST = 8
NODES_MOST = 8
CODE_BYTES = 12  # more than all digits of a node with two bookings

T = TypeVar("T")

HOSTS: tuple[tuple[Atom, ...], ...] = (
    devices("....", "aabb"),
    devices("..|..", "abab"),
    devices("..|..[..](..)", "aabbab"),
    devices(".[..](..)", "aab"),
    devices("....", ""),
    tuple(
        Atom(number, "gpu", f"GPU-{number}", f"NVIDIA H{number // 2 + 1}00", 40_960 << number % 2, 0, number % 2)
        for number in range(4)
    ),
)
"""Kinds of hosts: islands, NUMA nodes, MIG instances, slots, and one whose GPUs are of two models and two sizes."""

_INTENTS: tuple[Intent, ...] = ("schedulable",) * 14 + ("cordoned", "draining")
_VALUES = (*"AAAAAAAABBBBBC", "", ZERO, None)  # the last three form no group

windows = st.tuples(st.integers(0, 5), st.integers(1, 4)).map(lambda span: Window(span[0], span[0] + span[1]))
bookings = st.builds(
    lambda window, mask: Booked(window.start_ms, window.end_ms, mask, "rsv"), windows, st.integers(1, 15)
)


class Digits:
    """The digits of a number, each in the base that is asked for: quicker to draw than parts, and they shrink too."""

    def __init__(self, code: int) -> None:
        self._code = code

    def one_of(self, options: Sequence[T]) -> T:
        """Read one digit as the choice among options."""
        self._code, chosen = divmod(self._code, len(options))
        return options[chosen]


def node_of(number: int, code: int, host: tuple[Atom, ...] | None = None) -> Node:
    """Read a node from the digits of a number: of one kind of host, or of any."""
    digits = Digits(code)
    one_of = digits.one_of

    def booking() -> Booked:
        start_ms, duration_ms = one_of(range(6)), one_of(range(1, 5))
        return Booked(start_ms, start_ms + duration_ms, one_of(range(1, 1 << ATOMS_MOST)), f"rsv{one_of(range(3))}")

    atoms = host or one_of(HOSTS)
    labels = {KEY: one_of(_VALUES), RACK: one_of(_VALUES), ROW: one_of(_VALUES), "tier": one_of("xxxy")}
    every = (1 << len(atoms)) - 1
    held = one_of([{}, {}, {}, {}, {"xid": 0b0001}, {"xid": 0b0001, "ecc": 0b1000}])
    return Node(
        id=f"n{number}",
        name=f"host-{one_of(range(12))}",
        labels={key: value for key, value in labels.items() if value is not None},
        atoms=atoms,
        intent=one_of(_INTENTS),
        silent_since_ms=one_of([None] * 15 + [0]),
        leased=one_of([False] * 15 + [True]),
        held=held,
        fault_ms=one_of([0, 0, 0, 1]),
        booked=tuple(
            sorted(
                (booking() for _ in range(one_of((0, 0, 0, 1, 2)))),
                key=lambda one: (one.start_ms, one.end_ms, one.mask & every),
            )
        ),
    )


def nodes_of(codes: bytes, count: int, host: tuple[Atom, ...] | None = None) -> list[Node]:
    """Read a pool's nodes, n0 and on: all of one kind of host, or of any."""
    each = [codes[at * CODE_BYTES :][:CODE_BYTES] for at in range(count)]
    return [node_of(number, int.from_bytes(code), host) for number, code in enumerate(each)]


pools = st.builds(
    nodes_of,
    st.binary(min_size=NODES_MOST * CODE_BYTES, max_size=NODES_MOST * CODE_BYTES),
    st.sampled_from((*range(NODES_MOST), *range(4, NODES_MOST + 1), NODES_MOST)),
    st.sampled_from((None, HOSTS[0], *HOSTS[1:4], *HOSTS[2:4])),
)

_TOPOLOGIES = ("any", "any", "any", "nvlink-all", "numa")
_few = st.sampled_from((1, 1, 2))
_gpus = st.builds(Entry, st.just("gpu"), st.integers(1, 3), st.sampled_from(_TOPOLOGIES))
_entries = st.one_of(
    _gpus,
    st.builds(
        Entry,
        st.just("gpu"),
        _few,
        st.sampled_from(_TOPOLOGIES),
        st.sampled_from(["nvidia", "h100", None, "H200"]),
        st.sampled_from([0, 0, 40_961]),
    ),
    st.builds(
        Entry,
        st.just("mig"),
        _few,
        st.sampled_from(("any", "any", "numa")),
        profile=st.sampled_from([None, None, "1g.10gb", "1g.10gb", "2g.20gb"]),
    ),
    st.builds(Entry, st.just("slot"), _few, st.sampled_from(("any", "any", "numa"))),
)
shapes = st.builds(
    Shape,
    st.one_of(
        st.tuples(_gpus),
        st.tuples(_entries),
        st.tuples(_entries, _entries),
        st.tuples(_entries, _entries),
        st.tuples(_entries, _entries, _entries),
    ),
    st.sampled_from([(), (), (), (), (("tier", "x"),), ((KEY, "A"), ("tier", "x"))]),
)
groupings = st.sampled_from(
    [
        Grouping(),
        Grouping((KEY,)),
        Grouping((KEY,)),
        Grouping((KEY, RACK)),
        Grouping((), (RACK,)),
        Grouping((), (RACK, KEY)),
        Grouping((KEY,), (RACK, ROW)),
        Grouping((), (), RACK, 1),
        Grouping((), (), RACK, 2),
        Grouping((KEY,), (), RACK, 2),
        Grouping((KEY,), (), RACK, 3),
        Grouping((), (KEY,), RACK, 2),
        Grouping((ROW,), (KEY,), RACK, 1),
    ]
)


def _request(shape: Shape, times: int, grouping: Grouping, window: Window) -> Request:
    size = times * grouping.segment_size if grouping.segment_size else times
    return Request(shape, size, grouping, window)


requests = st.builds(_request, shapes, st.integers(1, 3), groupings, windows)
gpu_requests = st.builds(
    _request,
    st.builds(lambda count: Shape((Entry("gpu", count),)), st.integers(1, 3)),
    st.integers(1, 3),
    groupings,
    windows,
)

policies = st.builds(
    Policy,
    top_n=st.integers(1, 3),
    usable_gap_ms=st.sampled_from([0, 2, 900_000]),
    rank_tightest=st.integers(0, 3),
    rank_whole_domain=st.integers(0, 3),
    rank_usable_gaps=st.integers(0, 3),
    rank_spare=st.integers(0, 3),
    score_packing=st.sampled_from([0, 40]),
    score_soundness=st.sampled_from([0, 18]),
    score_no_recent_fault=st.sampled_from([0, 8]),
    score_fabric_kept=st.sampled_from([0, 4]),
    score_snugness=st.sampled_from([0, 1]),
)
