"""How devices are counted: the classes of atoms, milli-GPU, and atoms as bits of mask words."""

from collections.abc import Iterable
from typing import Final, Literal

DeviceClass = Literal["gpu", "mig", "slot"]
Topology = Literal["any", "nvlink-all", "numa"]

MILLI_PER_GPU: Final = 1_000
"""Amounts are integers in milli-GPU inside; GPUs outside."""

WORD_BITS: Final = 63
"""Atoms in one mask word: what a signed 64-bit column holds on both databases."""


def share_milli(parts: int, of: int) -> int:
    """Return `parts` of a GPU that is cut into `of`, in milli-GPU, rounded up: the one conversion that all amounts use.

    Args:
        parts: Compute slices of a MIG instance, or 1 for a slot.
        of: Parts of the whole GPU, at least `parts`.
    """
    return -(-MILLI_PER_GPU * parts // of)


def mask_words(mask: int) -> dict[int, int]:
    """Split a node's atom mask into `{word: bits}`, only words that hold a bit.

    Atom n is bit n mod 63 of word n div 63.

    Args:
        mask: One bit for each atom number, of any length.
    """
    words: dict[int, int] = {}
    word = 0
    while mask:
        if bits := mask & ((1 << WORD_BITS) - 1):
            words[word] = bits
        mask >>= WORD_BITS
        word += 1
    return words


def joined_mask(words: Iterable[tuple[int, int]]) -> int:
    """Join `(word, bits)` pairs to one mask: the inverse of `mask_words`."""
    mask = 0
    for word, bits in words:
        mask |= bits << (word * WORD_BITS)
    return mask


def atom_numbers(mask: int) -> list[int]:
    """List the atoms of a mask, rising."""
    numbers: list[int] = []
    while mask:
        lowest = mask & -mask
        numbers.append(lowest.bit_length() - 1)
        mask ^= lowest
    return numbers
