"""Which GPUs of a node reach each other over NVLink: link ends in, one island number per GPU out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SWITCHED_ISLAND: Final = 0
"""All GPUs that hang on an NVSwitch are one island, and it keeps its number whichever of them is lost."""


@dataclass(frozen=True, slots=True)
class Links:
    """Where the active NVLinks of one GPU lead."""

    to_switch: bool = False
    peers: frozenset[str] = frozenset()  # PCI addresses of GPUs at the other end
    cut: frozenset[str] = frozenset()  # of those that links lead to, also through switches: memory cannot be reached


def islands(links: Mapping[str, Links]) -> dict[str, int]:
    """Number the islands so that a number never moves to other GPUs when one drops out.

    Args:
        links: By the GPU's own PCI address, as `pci_address` writes it.

    Returns:
        By the same addresses: 0 for GPUs on a switch, otherwise the island's lowest PCI address as a number. A GPU
        without NVLink is an island by itself, and so is one whose links are up and carry nothing.
    """
    alone = _alone({pci: told.cut & links.keys() for pci, told in links.items()})
    numbers = {
        pci: SWITCHED_ISLAND if told.to_switch and pci not in alone else _number(pci) for pci, told in links.items()
    }
    pairs = [(pci, peer) for pci, told in links.items() for peer in told.peers if peer in links]
    for one, other in pairs:
        if not alone & {one, other}:
            _join(numbers, {numbers[one], numbers[other]})
    return numbers


def _alone(cuts: Mapping[str, frozenset[str]]) -> set[str]:
    """Take out as few GPUs as will do, those with most cuts first, until the others all reach each other."""
    alone: set[str] = set()
    while True:
        left = {pci: len(cut - alone) for pci, cut in cuts.items() if pci not in alone}
        worst = min(left, key=lambda pci: (-left[pci], pci), default=None)
        if worst is None or not left[worst]:
            return alone
        alone.add(worst)


def _join(numbers: dict[str, int], joined: set[int]) -> None:
    lowest = min(joined)
    for pci, number in numbers.items():
        if number in joined:
            numbers[pci] = lowest


def _number(pci: str) -> int:
    return int(pci.replace(":", ""), 16)
