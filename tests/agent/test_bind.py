import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster_agent.core.records import Instance, Record
from muster_agent.drivers.bind import BindDriver, BindError
from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.device_nodes import DeviceNodes
from tests.agent.test_journal import RECORD
from tests.support.cdi_schema import broken_rules
from tests.support.hardware import HostFiles

Driven = tuple[BindDriver, Path]  # and the path of its artefact
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 229
GPU UUID: \t {uuid}
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with two GPUs: GPU-0 is minor 4, GPU-1 is minor 0; /dev/nvidia0 has not been made."""
    for bus, uuid, minor in (("1a", "GPU-0", 4), ("5e", "GPU-1", 0)):
        folder = tmp_path / "proc" / "gpus" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid=uuid, bus=bus, minor=minor))
    (tmp_path / "dev").mkdir()
    for name in ("nvidia4", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


def nodes(host: Path) -> DeviceNodes:
    return DeviceNodes(host / "proc", host / "dev")


@pytest.fixture(params=["cdi", "envfile"])
def driver(request: pytest.FixtureRequest, host: Path) -> Driven:
    if request.param == "cdi":
        return Cdi(host / "cdi", nodes(host)), host / "cdi" / "muster-alloc_a.json"
    return EnvFile(host / "run"), host / "run" / "reservations" / "alloc_a.env"


def test_a_grant_makes_an_artefact_that_all_may_read_and_nothing_else(driver: Driven) -> None:
    bind, path = driver

    bind.grant(RECORD)
    bind.verify(RECORD)

    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_granting_and_revoking_may_be_repeated(driver: Driven) -> None:
    bind, path = driver
    bind.revoke(RECORD)
    bind.grant(RECORD)
    bind.grant(RECORD)
    bind.revoke(RECORD)
    bind.revoke(RECORD)

    assert not path.exists()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{}"), lambda path: path.write_text("")])
def test_l33_drift_is_seen_and_a_new_grant_mends_it(driver: Driven, spoil: Callable[[Path], object]) -> None:
    bind, path = driver
    bind.grant(RECORD)

    spoil(path)
    with pytest.raises(BindError, match="alloc_a"):
        bind.verify(RECORD)

    bind.grant(RECORD)
    bind.verify(RECORD)


def test_the_artefact_of_another_generation_does_not_pass(driver: Driven) -> None:
    bind, _ = driver
    bind.grant(RECORD)

    with pytest.raises(BindError):
        bind.verify(replace(RECORD, generation=4))


def test_l34_no_device_is_no_grant_and_leaves_no_artefact(driver: Driven) -> None:
    bind, path = driver

    with pytest.raises(BindError, match="no device"):
        bind.grant(replace(RECORD, devices=()))

    assert not path.exists()


def test_a_grant_that_cannot_be_written_says_where_and_a_revoke_that_cannot_says_so_too(driver: Driven) -> None:
    bind, path = driver
    path.mkdir(parents=True)  # something else sits there
    (path / "x").touch()

    with pytest.raises(BindError, match=str(path)):
        bind.grant(RECORD)
    with pytest.raises(BindError, match=str(path)):
        bind.revoke(RECORD)


def test_a_link_laid_in_the_way_is_not_followed(driver: Driven, tmp_path: Path) -> None:
    bind, path = driver
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.parent.mkdir(parents=True)
    path.with_name(f"{path.name}.tmp").symlink_to(victim)

    with pytest.raises(BindError):
        bind.grant(RECORD)

    assert victim.read_text() == "precious"


def test_neither_driver_takes_devices_from_a_running_tenant(driver: Driven) -> None:
    assert not driver[0].isolates


def test_a_cdi_spec_names_one_device_with_the_nodes_that_exist(host: Path) -> None:
    Cdi(host / "cdi", nodes(host)).grant(RECORD)

    assert json.loads((host / "cdi" / "muster-alloc_a.json").read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": "muster.dev/reservation",
        "containerEdits": {
            "env": [
                "MUSTER_ALLOCATION=alloc_a",
                "MUSTER_RESERVATION=rsv_a",
                "MUSTER_GENERATION=3",
                "MUSTER_TENANT=acme",
            ]
        },
        "devices": [
            {
                "name": "alloc_a",
                "containerEdits": {
                    "env": ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=GPU-0,GPU-1"],
                    "deviceNodes": [
                        {"path": "/dev/nvidia4"},
                        {"path": "/dev/nvidiactl"},
                        {"path": "/dev/nvidia-uvm"},
                    ],
                },
            }
        ],
    }


def test_without_a_driver_the_spec_has_no_empty_list_of_nodes(tmp_path: Path) -> None:
    Cdi(tmp_path, nodes(tmp_path)).grant(RECORD)

    (device,) = json.loads((tmp_path / "muster-alloc_a.json").read_text())["devices"]
    assert "deviceNodes" not in device["containerEdits"]


def test_no_temporary_name_is_one_that_a_runtime_would_read(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(self.name)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    Cdi(host / "cdi", nodes(host)).grant(RECORD)

    assert seen
    assert not [name for name in seen if name.endswith((".json", ".yaml"))]


def test_minor_numbers_are_read_from_the_driver_and_odd_entries_are_passed_over(host: Path) -> None:
    (host / "proc" / "gpus" / "0000:99:00.0").mkdir()
    (host / "proc" / "gpus" / "0000:98:00.0").mkdir()
    (host / "proc" / "gpus" / "0000:98:00.0" / "information").write_text("GPU UUID: \t GPU-9\nDevice Minor: \t ??\n")

    assert nodes(host).minors() == {"GPU-0": 4, "GPU-1": 0}


def test_an_environment_file_is_plain_enough_for_shells_systemd_and_podman(host: Path) -> None:
    EnvFile(host / "run").grant(replace(RECORD, end_unix_ms=1_790_582_400_000))

    assert (host / "run" / "reservations" / "alloc_a.env").read_text() == (
        "CUDA_VISIBLE_DEVICES=GPU-0,GPU-1\n"
        "MUSTER_ALLOCATION=alloc_a\n"
        "MUSTER_END=2026-09-28T08:00:00Z\n"
        "MUSTER_GENERATION=3\n"
        "MUSTER_RESERVATION=rsv_a\n"
        "MUSTER_TENANT=acme\n"
    )


def test_what_no_record_asks_for_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """A record that was lost, or set aside by an operator, must not leave its devices open."""
    for name in ("cdi/muster-alloc_lost.json", "cdi/muster-alloc_kept.json", "cdi/nvidia.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "run" / "reservations").mkdir(parents=True)
    (tmp_path / "run" / "reservations" / "alloc_lost.env").write_text("")

    assert Cdi(tmp_path / "cdi", nodes(tmp_path)).sweep({"alloc_kept"}) == ["alloc_lost"]
    assert EnvFile(tmp_path / "run").sweep({"alloc_kept"}) == ["alloc_lost"]
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["muster-alloc_kept.json", "nvidia.json"]


def test_a_node_that_never_bound_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert Cdi(tmp_path / "cdi", nodes(tmp_path)).sweep(()) == []


# --- What runtimes take


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, devices=("GPU-7",)),
        replace(RECORD, devices=("MIG-a",), instances=(Instance("MIG-a", "GPU-1", 1, 0),)),
        replace(RECORD, imex_channel=3, shared=("GPU-0",)),
    ],
)
def test_a_spec_keeps_every_rule_of_the_schema(host: Path, record: Record) -> None:
    Cdi(host / "cdi", nodes(host)).grant(record)

    assert broken_rules(json.loads((host / "cdi" / "muster-alloc_a.json").read_text())) == []


@pytest.mark.parametrize(
    "spoiled",
    [
        {"cdiVersion": "9.9.9"},
        {"kind": "muster.dev"},
        {"devices": []},
        {"devices": [{"name": "a/b", "containerEdits": {"env": ["A=1"]}}]},
        {"devices": [{"name": "a", "containerEdits": {}}]},
        {"devices": [{"name": "a", "containerEdits": {"deviceNodes": []}}]},
        {"devices": [{"name": "a", "containerEdits": {"netDevices": [{"hostInterfaceName": "x", "name": "y"}]}}]},
        {"comment": "ours"},
    ],
)
def test_a_spec_that_runtimes_refuse_is_found_by_the_same_rules(host: Path, spoiled: dict[str, object]) -> None:
    Cdi(host / "cdi", nodes(host)).grant(RECORD)
    spec = json.loads((host / "cdi" / "muster-alloc_a.json").read_text())

    assert len(broken_rules({**spec, **spoiled})) == 1


def test_a_mig_tenant_gets_its_gpus_node_its_instances_capabilities_and_cuda_its_uuid(tmp_path: Path) -> None:
    made = HostFiles(tmp_path)
    made.gpu("GPU-0", 2)
    made.instance(2, 1, 0, first_cap=20)
    made.instance(2, 2, 0, first_cap=30)
    record = replace(RECORD, devices=("MIG-b",), instances=(Instance("MIG-b", "GPU-0", 2, 0),))

    Cdi(tmp_path / "cdi", made.nodes).grant(record)

    (device,) = json.loads((tmp_path / "cdi" / "muster-alloc_a.json").read_text())["devices"]
    assert device["containerEdits"] == {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=MIG-b"],
        "deviceNodes": [
            {"path": "/dev/nvidia2"},
            {"path": "/dev/nvidia-caps/nvidia-cap30"},
            {"path": "/dev/nvidia-caps/nvidia-cap31"},
            {"path": "/dev/nvidiactl"},
            {"path": "/dev/nvidia-uvm"},
        ],
    }


PODMAN_READS = """
mkdir -p /var/run/cdi && mount --bind {cdi} /var/run/cdi || exit 77
podman="podman --root {folder}/store --runroot {runs} --storage-driver vfs"
id=$($podman create --cgroups=disabled --network none --device {device} --rootfs {folder}/rootfs /bin/true) || exit 78
$podman init $id
"""


def podman_made_of(folder: Path, runs: str, device: str) -> tuple[list[dict[str, Any]], str]:
    """Let podman make a container in a mount namespace of its own; return what it will be, and podman's words."""
    (folder / "rootfs").mkdir(exist_ok=True)
    text = PODMAN_READS.format(folder=folder, cdi=folder / "cdi", device=device, runs=runs)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", text], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode in {77, 78} or "unshare" in done.stderr:
        pytest.skip(f"podman cannot make a container here: {done.stderr.strip()}")
    return [json.loads(path.read_text()) for path in (folder / "store").rglob("config.json")], done.stderr


@pytest.mark.skipif(not (shutil.which("podman") and shutil.which("unshare")), reason="podman is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
def test_podman_finds_an_allocation_by_its_name_and_gives_the_container_what_the_spec_says(tmp_path: Path) -> None:
    Cdi(tmp_path / "cdi", nodes(tmp_path)).grant(RECORD)

    with tempfile.TemporaryDirectory() as runs:  # podman takes a short path only
        _, refused = podman_made_of(tmp_path, runs, "muster.dev/reservation=alloc_other")
        assert "unresolvable CDI devices muster.dev/reservation=alloc_other" in refused
        made, said = podman_made_of(tmp_path, runs, "muster.dev/reservation=alloc_a")
    assert "CDI" not in said
    (container,) = made
    assert {"CUDA_VISIBLE_DEVICES=GPU-0,GPU-1", "MUSTER_TENANT=acme"} <= set(container["process"]["env"])
