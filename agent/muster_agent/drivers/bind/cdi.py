"""A CDI spec per allocation: `podman run --device muster.dev/reservation=<allocation>`.

It carries device nodes and environment only. Driver libraries stay NVIDIA's business: the tenant asks for
`nvidia.com/gpu=<uuid>` beside it.

Source: Container Device Interface 0.5.0; agent facts, section 4.1.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from muster_agent.core.records import Record
from muster_agent.drivers.bind import Revocation, artefact
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_shared.codec import dumps

CDI_VERSION: Final = "0.5.0"  # the oldest that has all we write: the widest reach
KIND: Final = "muster.dev/reservation"
_MODE: Final = 0o644  # runtimes read it, rootless ones too; it holds no secret


class Cdi:
    """Writes `<cdi_dir>/muster-<allocation>.json`.

    Args:
        cdi_dir: A folder that the runtimes read, normally the dynamic one, which a reboot empties.
        nodes: Which device nodes there are.
    """

    def __init__(self, cdi_dir: Path, nodes: DeviceNodes) -> None:
        self._folder = cdi_dir
        self._nodes = nodes

    @property
    def isolates(self) -> bool:
        """Deleting a spec takes nothing from a container that runs."""
        return False

    def grant(self, record: Record) -> None:
        """Write the spec."""
        artefact.write(self._path(record), self._body(record), mode=_MODE)

    def verify(self, record: Record) -> None:
        """Compare the spec."""
        artefact.check(self._path(record), self._body(record))

    def revoke(self, record: Record) -> None:
        """Delete the spec: no new container can start with it."""
        artefact.remove(self._path(record))

    def revocation(self, record: Record) -> Revocation:
        """Name the spec."""
        return Revocation(files=(str(self._path(record)),))

    def sweep(self, known: Collection[str]) -> list[str]:
        """Delete the specs that no record asks for."""
        return artefact.remove_strays(self._folder, "muster-", ".json", known)

    def _path(self, record: Record) -> Path:
        return self._folder / f"muster-{record.allocation_id}.json"

    def _body(self, record: Record) -> bytes:
        uuids = artefact.devices(record)
        present = self._nodes.needed(record)
        edits: dict[str, object] = {
            # `void`: NVIDIA's own hook must not add the devices that it would find.
            "env": ["NVIDIA_VISIBLE_DEVICES=void", f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"],
        }
        if present:
            edits["deviceNodes"] = [{"path": f"/dev/{name}"} for name in present]
        return dumps(
            {
                "cdiVersion": CDI_VERSION,
                "kind": KIND,
                "devices": [{"name": record.allocation_id, "containerEdits": edits}],
                "containerEdits": {
                    "env": [
                        f"MUSTER_ALLOCATION={record.allocation_id}",
                        f"MUSTER_RESERVATION={record.reservation_id}",
                        f"MUSTER_GENERATION={record.generation}",
                        f"MUSTER_TENANT={record.tenant_id}",
                    ]
                },
            }
        )
