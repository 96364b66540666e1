"""TypeIDs: a prefix that says what the id names, and 128 bits that sort by the time they were made.

Source: the TypeID specification 0.3 (prefix, underscore, UUIDv7 as 26 characters of Crockford's base 32).
"""

from typing import Final, Literal

Prefix = Literal["pool", "node", "rsv", "alloc", "evt", "cluster", "series", "mnt", "whk", "tok", "join"]

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS: Final = 26  # 26 * 5 = 130 bits: the first digit is at most 7


def type_id(prefix: Prefix, unix_ms: int, random_bits: int) -> str:
    """Make an id that sorts after every id of an earlier millisecond.

    Args:
        prefix: What the id names.
        unix_ms: Milliseconds UTC, 0 <= unix_ms < 2**48.
        random_bits: 74 bits of chance, 0 <= random_bits < 2**74. The caller's port supplies them.

    Raises:
        ValueError: A number is out of range: the caller has a bug.
    """
    if not 0 <= unix_ms < 1 << 48 or not 0 <= random_bits < 1 << 74:
        raise ValueError("an id takes 48 bits of time and 74 bits of chance")
    high, low = random_bits >> 62, random_bits & ((1 << 62) - 1)
    # UUIDv7: time, version 7, 12 random bits, variant 0b10, 62 random bits (RFC 9562, section 5.7).
    number = unix_ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low
    digits = (_ALPHABET[number >> shift & 31] for shift in range(5 * (_DIGITS - 1), -1, -5))
    return f"{prefix}_{''.join(digits)}"


def is_type_id(prefix: Prefix, text: str) -> bool:
    """Tell whether `text` is an id of this kind; never raises."""
    head, _, tail = text.partition("_")
    return head == prefix and len(tail) == _DIGITS and tail[0] <= "7" and all(c in _ALPHABET for c in tail)
