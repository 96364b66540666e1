"""Hosts without GPUs on which NVML answers: builds the stub library and writes what it says.

A program that must see the stub is started with `StubHost.environment`, or with the library's folder as its
LD_LIBRARY_PATH: the loader reads that only when a process starts.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

_FOLDER = Path(__file__).parent / "nvml_stub"
_SOURCE = _FOLDER / "nvml_stub.c"
_SOURCES = (_FOLDER / "stub_state.h", _SOURCE)
_LIBRARY = "libnvidia-ml.so.1"
_XID = 0x8
_WHOLE_GPU = (-1, -1)

ZERO_CLUSTER = "0" * 32


def build(folder: Path) -> Path | None:
    """Build the library in `folder`, or find it there; None where the host has no C compiler.

    Returns:
        The folder, for LD_LIBRARY_PATH.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / _LIBRARY
    sources = b"".join(map(Path.read_bytes, _SOURCES))
    stamp = folder / f"{hashlib.sha256(sources).hexdigest()[:16]}.built"
    if not (stamp.exists() and built.exists()):
        draft = folder / f"{_LIBRARY}.new"
        options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{_LIBRARY}", "-lpthread"]
        subprocess.run([compiler, str(_SOURCE), "-o", str(draft), *options], check=True)
        draft.replace(built)  # a process that has the old one mapped keeps it whole
        stamp.touch()
    return folder


class StubHost:
    """What the stub says: 8 healthy GPUs on one NVSwitch fabric, until told otherwise."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "host",
        gpus: int = 8,
        cluster: str = "9277d3990674a4a9b64ed85bb19ce2b0",
        clique: int = 1,
    ) -> None:
        self.state = folder / "nvml.state"
        self.events = folder / "nvml.events"
        self.kernel_log = folder / "kmsg"
        self._seq = 0
        self.system: dict[str, object] = {"driver": "580.95.05", "init": 0, "fabric_max": 4}
        self.gpus = [_gpu(name, number, cluster, clique) for number in range(gpus)]
        self.migs: list[dict[str, object]] = []
        self.rules: dict[tuple[str, int | None], str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.events.touch()
        self.kernel_log.touch()
        self.write()

    def environment(self, library_dir: Path) -> dict[str, str]:
        """The variables that let a process see this host."""
        return {
            "MUSTER_STUB_STATE": str(self.state),
            "MUSTER_STUB_EVENTS": str(self.events),
            "LD_LIBRARY_PATH": str(library_dir),
        }

    def uuid(self, gpu: int) -> str:
        return str(self.gpus[gpu]["uuid"])

    def pci(self, gpu: int) -> str:
        return str(self.gpus[gpu]["pci"])

    def set(self, gpu: int, **fields: object) -> None:
        """Change fields of one GPU; None takes one away."""
        self.gpus[gpu].update(fields)
        self.write()

    def set_all(self, **fields: object) -> None:
        for gpu in self.gpus:
            gpu.update(fields)
        self.write()

    def set_system(self, **fields: object) -> None:
        self.system.update(fields)
        self.write()

    def split(self, gpu: int, *slices: int, first: int = 0, step: int = 1) -> list[str]:
        """Switch MIG mode on and make instances of so many slices each; return their UUIDs.

        Args:
            gpu: Its number.
            slices: One for each instance.
            first: The index of the first; NVML counts them with gaps.
            step: From one index to the next.
        """
        self.migs = [mig for mig in self.migs if mig["gpu"] != gpu]
        for number, count in enumerate(slices):
            digits = hashlib.sha256(f"{self.uuid(gpu)}/{number}/{count}".encode()).hexdigest()
            self.migs.append(
                {
                    "gpu": gpu,
                    "index": first + number * step,
                    "uuid": f"MIG-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}",
                    "gi": number + 3,
                    "ci": 0,
                    "gi_slices": count,
                    "ci_slices": count,
                    "memory": 9_728 * count,
                    "profile": f"{count}g.{10 * count}gb",
                }
            )
        self.set(gpu, mig=1, mig_max=7)
        return [str(mig["uuid"]) for mig in self.migs if mig["gpu"] == gpu]

    def rule(self, function: str, gpu: int | None = None, *, code: int = 0, hang: bool = False) -> None:
        """Let a function fail, or hang until `unrule`; for one GPU or for all."""
        self.rules[function, gpu] = "hang=1" if hang else f"code={code}"
        self.write()

    def unrule(self, function: str, gpu: int | None = None) -> None:
        del self.rules[function, gpu]
        self.write()

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: every call on it says so."""
        self.set(gpu, lost=1)

    def find(self, gpu: int) -> None:
        """The GPU comes back from a reset, with a new handle."""
        generation = self.gpus[gpu].get("generation", 0)
        assert isinstance(generation, int)
        self.set(gpu, lost=0, generation=generation + 1)

    def xid(self, gpu: int, code: int, instance: tuple[int, int] = _WHOLE_GPU) -> None:
        """NVML tells of an XID."""
        self.event(gpu, _XID, code, instance)

    def event(self, gpu: int, kind: int, code: int, instance: tuple[int, int] = _WHOLE_GPU) -> None:
        with self.events.open("a") as file:
            file.write(f"{gpu} {kind} {code} {instance[0]} {instance[1]}\n")

    def kernel_xid(self, gpu: int, code: int, text: str = "stub") -> None:
        """The kernel log tells of an XID."""
        self.kernel_line(f"NVRM: Xid (PCI:{self.pci(gpu)}): {code}, {text}")

    def kernel_line(self, text: str, facility: int = 0) -> None:
        self._seq += 1
        with self.kernel_log.open("a") as file:
            file.write(f"{facility << 3 | 4},{self._seq},{self._seq * 1_000},-;{text}\n")

    def write(self) -> None:
        """Replace the state file in one step."""
        lines = [_line("system", self.system), *(_line("gpu", gpu) for gpu in self.gpus)]
        lines += [_line("mig", mig) for mig in self.migs]
        for (function, gpu), effect in self.rules.items():
            lines.append(f"rule function={function}{'' if gpu is None else f' gpu={gpu}'} {effect}")
        draft = self.state.with_suffix(".new")
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.state)


def _gpu(host: str, number: int, cluster: str, clique: int) -> dict[str, object]:
    digits = hashlib.sha256(f"{host}/{number}".encode()).hexdigest()
    return {
        "uuid": f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}",
        "pci": f"0000:{0x0A + number:02x}:00",
        "name": "NVIDIA H100 80GB HBM3",
        "memory": 81_559,
        "numa": 0 if number < 4 else 1,
        "fabric_state": 3,
        "cluster": cluster,
        "clique": clique,
        "health": 1,
        "fi_230": 0,
        "remap": 0,
        "ecc": 1,
        "sram_exceeded": 0,
        "persistence": 1,
        "clocks": 0,
        "mig": 0,
        "links": 18,
    }


def _line(kind: str, fields: dict[str, object]) -> str:
    told = (f"{key}={str(value).replace(' ', '~')}" for key, value in fields.items() if value is not None)
    return " ".join((kind, *told))
