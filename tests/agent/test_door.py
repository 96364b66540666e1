"""The agent's own door: what it shows on the host, to people, to programs and to Prometheus."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner, Result

from muster_agent.app import main
from muster_agent.clock import SystemClock
from muster_agent.core.inventory import InventoryFold
from muster_agent.core.picture import Picture, held
from muster_agent.core.readings import HostReading, KernelLogReading, NodeReading
from muster_agent.door.metrics import offering, rendered
from muster_agent.door.status_file import StatusError, StatusFile, read_picture
from muster_agent.door.tables import table
from muster_agent.drivers.fake import fake_host, write_state
from muster_shared.codec import decode
from muster_shared.wire import AssignmentStatus, Hold
from tests.support.agent_world import FACTS, HOUR_MS, bound, desired, order
from tests.support.hardware import HostFiles
from tests.support.programs import holding
from tests.support.virtual_clock import VirtualClock

HOST = HostReading("gpu-01", "0123456789abcdef", "boot-1", 4, 1_024)
READING = fake_host("gpu-01", gpus=2)
GPU = str(READING.gpus[0].uuid)


def picture(**more: object) -> Picture:
    world = bound(order("alloc_a", "GPU-0", end_boot_ms=2 * HOUR_MS))
    inventory = InventoryFold().after(READING, HOST, 1_000, KernelLogReading("ok")).inventory
    fields = {
        "agent_version": "0.1.0",
        "boot_id": "boot-1",
        "written_ms": 1_800_000_000_000,
        "written_boot_ms": 600_000,
        "sentence": "2 of 2 GPUs seen; alloc_a bound; revision 1",
        "heard": True,
        "cluster_id": "cluster_1",
        "node_id": "node_1",
        "epoch": 1,
        "desired_rev": 1,
        "applied_rev": 1,
        "inventory": inventory,
        "holds": [Hold(device=GPU, cause="xid", code=48, since_ms=0, clears_by="operator", message="double-bit")],
        "assignments": held(world.state, world.statuses(), world.boot_ms),
    }
    return Picture.model_validate({**fields, **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A host with scripted GPUs and a configuration for it."""
    write_state(tmp_path / "gpus.json", READING)
    (tmp_path / "events").touch()
    (tmp_path / "kmsg").touch()
    (tmp_path / "boot").write_text("boot-1\n")
    (tmp_path / "machine").write_text("0123456789abcdef\n")
    settings = {
        "gpu_driver": "fake",
        "fake_state": "gpus.json",
        "fake_events": "events",
        "kernel_log": "kmsg",
        "boot_id_file": "boot",
        "machine_id_file": "machine",
        "run_dir": "run",
        "state_dir": "state",
        "cdi_dir": "cdi",
        "nvidia_driver_dir": "proc",
        "dev_dir": "dev",
    }
    lines = (f"{key} = {json.dumps(value if key == 'gpu_driver' else str(tmp_path / value))}\n"
             for key, value in settings.items())  # fmt: skip
    (tmp_path / "agent.toml").write_text("".join(lines))
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--config", str(folder / "agent.toml")])


# --- status


def written(folder: Path, **more: object) -> None:
    StatusFile(folder / "run", VirtualClock()).show(picture(**more))


def test_status_shows_gpus_holds_and_when_each_assignment_ends(folder: Path) -> None:
    written(folder, written_boot_ms=SystemClock().boot_ms())

    done = run(folder, "status")

    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "2 of 2 GPUs seen; alloc_a bound; revision 1"
    assert "node         node_1 of cluster_1" in lines
    assert any(line.startswith(GPU) and line.endswith("whole") for line in lines)
    assert any(line.startswith(GPU) and "xid 48" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("alloc_a ")]
    assert row.split() == ["alloc_a", "bound", "acme", "GPU-0", "1h59m", "not", "armed"]


def test_status_for_programs_is_the_picture_itself(folder: Path) -> None:
    written(folder, written_boot_ms=SystemClock().boot_ms())

    done = run(folder, "status", "-o", "json")

    assert decode(Picture, done.stdout.encode()).assignments[0].allocation_id == "alloc_a"
    assert json.loads(done.stdout)["assignments"][0]["endsInMs"] == 2 * HOUR_MS - 1_000


def test_a_picture_that_grew_old_is_shown_and_said_to_be_old(folder: Path) -> None:
    written(folder, written_boot_ms=0)

    done = run(folder, "status")

    assert done.exit_code == 1
    assert "alloc_a" in done.output
    assert "has been silent since: systemctl status muster-agent" in done.output


def test_without_a_picture_of_this_boot_the_next_step_is_told(folder: Path) -> None:
    assert "the agent has not run since the host booted; start it" in run(folder, "status").output
    written(folder, boot_id="boot-0")
    assert "of an earlier boot" in run(folder, "status").output
    written(folder, version=2)
    assert "restart the agent" in run(folder, "status").output
    (folder / "run" / "status.json").write_text("{")
    assert run(folder, "status").exit_code == 1


def test_an_agent_that_has_just_begun_is_shown_too(folder: Path) -> None:
    written(folder, inventory=None, desired_rev=None, holds=[], assignments=[], node_id="", heard=False)

    shown = run(folder, "status").output

    assert "not joined yet" in shown
    assert "none yet desired" in shown
    assert "nothing is bound" in shown


def test_a_storm_of_changes_writes_once_a_second_and_the_latest_is_kept(tmp_path: Path) -> None:
    clock = VirtualClock()
    file = StatusFile(tmp_path, clock)
    for number in range(5):
        file.show(picture(applied_rev=number))

    assert read_picture(tmp_path, "boot-1", 600_000)[0].applied_rev == 0
    assert file.latest
    assert file.latest.applied_rev == 4

    asyncio.run(clock.advance(1_000))
    file.show(picture(applied_rev=5))
    assert read_picture(tmp_path, "boot-1", 602_000) == (file.latest, 2_000)


def test_a_link_laid_in_the_way_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "status.tmp").symlink_to(victim)

    StatusFile(tmp_path, VirtualClock()).show(picture())

    assert victim.read_text() == "precious"
    with pytest.raises(StatusError):
        read_picture(tmp_path, "boot-1", 0)


def test_an_order_that_waits_is_shown_with_whose_it_is() -> None:
    world = bound(order("alloc_a", "GPU-0"))
    world.take(desired(2, [order("alloc_a", "GPU-0"), order("alloc_b", "GPU-0")]))
    world.settle()
    stray = AssignmentStatus(allocation_id="alloc_x", generation=1, state="failed")

    a, b, x = held(world.state, [*world.statuses(), stray], world.boot_ms)

    assert (a.state, b.state) == ("bound", "blocked")
    assert (b.tenant_id, b.devices) == ("acme", ("GPU-0",))
    assert (x.tenant_id, x.ends_in_ms) == (None, None)
    assert world.facts == FACTS


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert list(table(("A", "B"), [("long cell", "x"), ("y", "")])) == ["A          B", "long cell  x", "y"]


# --- check


def test_check_explains_the_host_without_a_coordinator_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))

    done = run(folder, "check", "-o", "json")

    found = json.loads(done.stdout)
    assert [gpu["uuid"] for gpu in found["inventory"]["gpus"]] == [gpu.uuid for gpu in READING.gpus]
    assert found["inventory"]["fabricReason"] == "notSupported"
    assert found["bindDrivers"] == {"Imex": False, "EnvFile": False, "Cdi": False, "Hooks": False}
    assert sorted(folder.rglob("*")) == before


def test_check_says_what_to_do_about_a_driver_that_is_not_there(folder: Path) -> None:
    write_state(folder / "gpus.json", NodeReading("driverNotLoaded", message="no such device"))
    (folder / "kmsg").unlink()

    done = run(folder, "check")

    assert done.exit_code == 1
    assert "! load the NVIDIA driver: modprobe nvidia (no such device)" in done.output
    assert "! the kernel log cannot be read" in done.output


def test_check_names_who_would_be_in_the_way_of_a_bind(folder: Path) -> None:
    node = HostFiles(folder).gpu(GPU, 0)
    write_state(folder / "gpus.json", replace(READING, gpus=()))

    with holding(node) as process:
        done = run(folder, "check")

    assert f"in use       {GPU}: pid {process.pid} ({Path(sys.executable).name})" in done.output
    assert "! NVML answers and knows no GPU" in done.output


def test_a_wrong_configuration_is_told_by_each_command(folder: Path) -> None:
    with (folder / "agent.toml").open("a") as file:
        file.write('metrics_listen = "0.0.0.0:9471"\ntenant_unit = "tenants.slice"\n')

    for command in ("status", "check", "run"):
        done = run(folder, command)
        assert done.exit_code == 2
        assert "metrics_listen: " in done.output
        assert "tenant_unit: " in done.output


# --- metrics


def test_figures_are_what_prometheus_reads() -> None:
    told = picture()
    told.assignments[:] = [one.model_copy(update={"tenant_id": 'a"b\\c'}) for one in told.assignments]

    lines = rendered(told, 605_000).splitlines()

    assert "muster_agent_up 1" in lines
    assert f'muster_agent_gpu_seen{{uuid="{GPU}",pci="0000:0a:00"}} 1' in lines
    assert f'muster_agent_holds{{device="{GPU}",cause="xid"}} 1' in lines
    assert 'muster_agent_assignment{allocation="alloc_a",state="bound",tenant="a\\"b\\\\c"} 1' in lines
    assert "muster_agent_picture_age_seconds 5" in lines
    for line in lines:
        assert line.startswith(("# HELP muster_agent_", "# TYPE muster_agent_")) or len(line.rsplit(" ", 1)) == 2


def test_before_the_first_picture_there_is_one_figure() -> None:
    assert "muster_agent_up 0\n" in rendered(None, 0)


@asynccontextmanager
async def page() -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    async with offering("127.0.0.1:0", picture, lambda: 600_000) as (host, port), aiohttp.ClientSession() as session:
        yield f"http://{host}:{port}", session


async def test_figures_are_offered_on_loopback_alone() -> None:
    async with page() as (url, session), session.get(f"{url}/metrics") as answer:
        assert url.startswith("http://127.0.0.1:")
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "muster_agent_up 1" in await answer.text()
