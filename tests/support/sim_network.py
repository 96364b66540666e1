"""The network between agents, clients and coordinators: loses, doubles, delays and reorders what it carries."""

from collections.abc import Callable

from tests.support.sim_kernel import Kernel

LOST = 0.03  # of messages; each twice the worst that a bad day in a data centre shows
DOUBLED = 0.03
SLOW = 0.03


class Network:
    """Carries single messages. A call is two of them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._chance = kernel.chance("network")
        self.cut: set[tuple[str, str]] = set()  # directed: from, to

    def carry(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Carry one message, perhaps not, perhaps twice; later ones may arrive earlier."""
        if (source, target) in self.cut:
            self._kernel.seen["cut"] += 1
            return
        draw = 1.0 if self._kernel.calm else self._chance.random()
        if draw < LOST:
            self._kernel.seen["lost"] += 1
            return
        if draw < LOST + DOUBLED:
            self._kernel.seen["doubled"] += 1
            self._kernel.after(self._chance.randrange(10, 30_000), deliver)
        slow = LOST + DOUBLED <= draw < LOST + DOUBLED + SLOW
        self._kernel.after(self._chance.randrange(500, 20_000) if slow else self._chance.randrange(2, 40), deliver)

    def part(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Cut a line; with `one_way`, only what `other` sends is lost."""
        self.cut.add((other, one))
        if not one_way:
            self.cut.add((one, other))

    def join(self, one: str, other: str) -> None:
        """Mend a line."""
        self.cut -= {(one, other), (other, one)}
