"""Values of the core as the documents that columns keep, and back."""

from dataclasses import asdict
from functools import lru_cache
from typing import Final

from muster_coordinator.core.model import Agreed, Entry, Grouping, Shape
from muster_shared.codec import dumps, loads

_KEPT: Final = 4_096  # shapes and groupings that people ask for again and again


@lru_cache(maxsize=_KEPT)
def written(value: Shape | Grouping) -> str:
    """Return a value as it is stored; equal values are equal text."""
    return dumps(asdict(value)).decode()


def written_agreed(agreed: Agreed) -> str:
    """Return labels on which nodes agreed as they are stored."""
    return dumps(agreed).decode()


@lru_cache(maxsize=_KEPT)
def as_shape(text: str) -> Shape:
    """Read a shape."""
    document = loads(text)
    entries = tuple(Entry(**entry) for entry in document["entries"])
    return Shape(entries, tuple((key, value) for key, value in document["selector"]))


@lru_cache(maxsize=_KEPT)
def as_grouping(text: str) -> Grouping:
    """Read a grouping."""
    document = loads(text)
    document["required"], document["preferred"] = tuple(document["required"]), tuple(document["preferred"])
    return Grouping(**document)


def as_agreed(text: str) -> Agreed:
    """Read labels on which nodes agreed."""
    return tuple((key, value) for key, value in loads(text))
