"""Which of the GPUs that a node should have answer: the expected set against one reading."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster_agent.core.readings import GpuReading
from muster_shared.wire import GPUS_MAX


@dataclass(frozen=True, slots=True)
class Sighting:
    """One reading, sorted by GPU. A GPU is its UUID: indexes and device numbers move when another one drops."""

    expected: dict[str, str]  # UUID -> PCI address of every GPU that the node should have, seen now or before
    answering: dict[str, GpuReading]  # by UUID; subset of `expected`
    unidentified: tuple[str, ...]  # slots of lost GPUs that nobody ever knew by UUID; empty text: not even the slot

    @property
    def missing(self) -> tuple[str, ...]:
        """UUIDs that are expected and do not answer, in order."""
        return tuple(sorted(self.expected.keys() - self.answering.keys()))


def sighted(known: Mapping[str, str], gpus: Iterable[GpuReading]) -> Sighting:
    """Sort one reading of a working NVML.

    A GPU stays expected for ever, until another one that was never seen before sits in its PCI slot: then it was
    replaced. Where none of the known ones answers and others do, the host was swapped under the agent's disk. More
    than the wire can carry are forgotten from the missing ones.

    Args:
        known: UUID -> PCI address of all GPUs seen so far.
        gpus: The reading. A lost GPU may lack its UUID (matched by slot), or even its slot.
    """
    readings = tuple(gpus)
    answering = {gpu.uuid: gpu for gpu in readings if gpu.uuid is not None and not gpu.lost}
    named = {gpu.uuid: gpu.pci for gpu in readings if gpu.uuid is not None}
    newcomers = {pci for uuid, pci in named.items() if uuid not in known}
    is_swapped = bool(answering) and known.keys().isdisjoint(named) and None not in {gpu.uuid for gpu in readings}
    absent = {uuid: pci for uuid, pci in known.items() if uuid not in named and pci not in newcomers and not is_swapped}
    kept = dict(sorted(absent.items())[: max(0, GPUS_MAX - len(named))])
    return Sighting(named | kept, answering, _unidentified(readings, kept))


def _unidentified(readings: Iterable[GpuReading], absent: Mapping[str, str]) -> tuple[str, ...]:
    nameless = [gpu.pci for gpu in readings if gpu.uuid is None]
    placed = {pci for pci in nameless if pci}
    explained = placed.intersection(absent.values())
    # A GPU without even a slot is most likely one of the known ones that are absent.
    placeless = nameless.count("") - (len(absent) - len(explained))
    return (*sorted(placed - explained), *[""] * placeless)
