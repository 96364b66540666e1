import asyncio
from pathlib import Path

import pytest

from muster_agent.drivers.daemons import Daemons
from muster_agent.drivers.host import read_host
from muster_agent.drivers.late_driver import driver_arrives
from muster_agent.drivers.pci import gpus_of_the_driver, has_nvswitch
from tests.support.virtual_clock import VirtualClock


def test_the_host_is_named_by_its_files(tmp_path: Path) -> None:
    machine_id, boot_id = tmp_path / "machine-id", tmp_path / "boot_id"
    machine_id.write_text("0123456789abcdef0123456789abcdef\n")
    boot_id.write_text("6fd5f1c4-9dfa-4fe2-a5b3-f2e6b4a3d2b1\n")
    host = read_host(machine_id, boot_id)

    assert host.machine_id == "0123456789abcdef0123456789abcdef"
    assert host.boot_id == "6fd5f1c4-9dfa-4fe2-a5b3-f2e6b4a3d2b1"
    assert host.cpus > 0
    assert host.memory_mib > 0


def test_a_host_without_a_machine_id_is_not_set_up(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="machine-id"):
        read_host(tmp_path / "machine-id")


def test_gpus_on_the_bus_are_those_that_the_nvidia_driver_owns(tmp_path: Path) -> None:
    def device(name: str, kind: str, driver: str | None) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "class").write_text(kind + "\n")
        if driver:
            (tmp_path / name / "driver").symlink_to(f"../../drivers/{driver}")

    device("0000:0b:00.0", "0x030200", "nvidia")
    device("0000:0a:00.0", "0x030000", "nvidia")
    device("0000:0c:00.0", "0x030200", "vfio-pci")  # a virtual machine owns it
    device("0000:0d:00.0", "0x068000", "nvidia")  # an NVSwitch
    device("0000:0e:00.0", "0x030000", None)

    assert gpus_of_the_driver(tmp_path) == ("0000:0a:00", "0000:0b:00")
    assert gpus_of_the_driver(tmp_path / "none") == ()


def test_a_host_needs_the_services_that_its_hardware_and_its_files_ask_for(tmp_path: Path) -> None:
    """Case A04: a fabric manager where NVSwitches are, an IMEX daemon where hosts of its domain are named."""
    devices, proc, nodes = tmp_path / "devices", tmp_path / "proc", tmp_path / "nodes_config.cfg"

    def daemons() -> Daemons:
        return Daemons(devices, nodes, proc)

    def running(pid: str, name: str) -> None:
        (proc / pid).mkdir(parents=True, exist_ok=True)
        (proc / pid / "comm").write_text(name + "\n")

    running("1", "systemd")
    nodes.write_text("# none yet\n\n")
    assert daemons().down() == ()

    switch = devices / "0000:0d:00.0"
    switch.mkdir(parents=True)
    (switch / "class").write_text("0x068000\n")
    (switch / "vendor").write_text("0x10de\n")
    nodes.write_text("10.0.0.1\n10.0.0.2\n")
    assert has_nvswitch(devices)
    known = daemons()
    assert known.down() == ("fabricManager", "imex")

    running("700", "nv-fabricmanage")
    running("701", "nvidia-imex")
    assert known.down() == ()
    running("700", "another")
    assert known.down() == ("fabricManager",)
    running("900", "nv-fabricmanage")
    assert known.down() == ()


async def test_a40_a_driver_that_comes_after_the_agent_is_waited_for_and_one_that_was_there_is_not(
    tmp_path: Path,
) -> None:
    clock, devices = VirtualClock(), tmp_path / "devices"
    devices.write_text("Character devices:\n  1 mem\n195 nvidia-caps\n")
    waiting = asyncio.create_task(driver_arrives(clock, devices))
    await clock.advance(60_000)
    assert not waiting.done()

    devices.write_text("Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n")
    await clock.advance(5_000)
    assert waiting.done()

    again = asyncio.create_task(driver_arrives(clock, devices))
    await clock.advance(600_000)
    assert not again.done()
    again.cancel()
