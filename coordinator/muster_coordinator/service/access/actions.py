"""Every action of the API: what kind of thing it does, and to what. The policies' schema is written from this table."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["read", "ask", "change", "node"]
"""`read` only looks, `ask` looks with a body, `change` leaves something changed, `node` is an agent's alone."""

Subject = Literal["Reservation", "Series", "Node", "Pool", "Muster"]
"""What an action is about; `Muster` where it is no single thing, such as a list, whose rows are filtered besides."""


@dataclass(frozen=True, slots=True)
class Action:
    """What an operation does. A weighed one is decided by what is asked for, in the transaction that grants it."""

    name: str  # such as compute:reservation:create
    kind: Kind
    subject: Subject
    is_weighed: bool = False
    books: bool = False  # weighed, and it takes more of the calendar than there was

    @property
    def groups(self) -> tuple[str, ...]:
        """Names under which policies speak of several actions."""
        return (self.kind, "book") if self.books else (self.kind,)


def _of(noun: str, subject: Subject, **verbs: Kind) -> tuple[Action, ...]:
    return tuple(
        Action(f"compute:{noun}:{verb.replace('_', '-')}", kind, "Muster" if verb == "list" else subject)
        for verb, kind in verbs.items()
    )


_ALL: Final = (
    Action("compute:reservation:create", "change", "Reservation", is_weighed=True, books=True),
    Action("compute:reservation:extend", "change", "Reservation", is_weighed=True, books=True),
    Action("compute:series:create", "change", "Series", is_weighed=True, books=True),
    Action("compute:series:change", "change", "Series", is_weighed=True, books=True),
    Action("compute:capacity:preview", "ask", "Reservation", is_weighed=True, books=True),
    Action("compute:reservation:shrink", "change", "Reservation", is_weighed=True),
    *_of("reservation", "Reservation", list="read", read="read", cancel="change", release="change", repair="change"),
    *_of("series", "Series", list="read", read="read", skip="change", unskip="change", cancel="change"),
    *_of("capacity", "Pool", read="read"),
    *_of("capacity", "Muster", whatif="ask"),
    *_of("node", "Node", list="read", read="read", cordon="change", uncordon="change", drain="change"),
    *_of("node", "Node", fence="change", label="change", cut="change", remove="change", clear_holds="change"),
    *_of("node", "Node", report="node", desired="node"),
    *_of("pool", "Pool", list="read", read="read"),
    *_of("pool", "Muster", create="change"),
    *_of("maintenance", "Muster", list="read", read="read", preview="ask", create="change", cancel="change"),
    *_of("maintenance", "Muster", end="change"),
    *_of("quota", "Muster", list="read", limit="change", lift="change"),
    *_of("usage", "Muster", list="read"),
    *_of("doctor", "Muster", read="read"),
    *_of("event", "Muster", list="read"),
    *_of("webhook", "Muster", list="read", read="read", deliveries="read", create="change", remove="change"),
    *_of("webhook", "Muster", test="change", rotate="change", settle="change", enable="change", disable="change"),
    *_of("webhook", "Muster", replay="change"),
    *_of("token", "Muster", list="read", create="change", revoke="change"),
    *_of("join-token", "Muster", list="read", create="change", revoke="change"),
    *_of("policy", "Muster", list="read", read="read", test="ask", add="change", remove="change"),
    *_of("audit", "Muster", read="read", verify="read"),
    *_of("metrics", "Muster", read="read"),
)

ACTIONS: Final = {action.name: action for action in _ALL}
"""By name. An operation whose action is not here is refused to everybody."""

PUBLIC: Final = frozenset({"compute:health:read", "compute:node:register", "compute:document:read"})
"""Actions that no policy decides: whoever reaches the coordinator may take them."""
