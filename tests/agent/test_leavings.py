"""Processes on devices that are handed over: found before a bind, ended after an unbind."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.records import Evict, Instance, Look, Record
from muster_agent.drivers.bind import BindError
from muster_agent.drivers.leavings import Leavings
from muster_agent.holders.processes import ProcessTable
from tests.agent.test_journal import RECORD
from tests.support.hardware import HostFiles
from tests.support.programs import Running, holding

GRACE = 20  # seconds: far more than a process needs to end


@pytest.fixture
def host(tmp_path: Path) -> HostFiles:
    host = HostFiles(tmp_path)
    host.gpu("GPU-0", 4)
    host.gpu("GPU-1", 0)
    return host


@pytest.fixture
def leavings(host: HostFiles) -> Leavings:
    return Leavings(host.nodes, ProcessTable())


def look(*devices: str, record: Record = RECORD, pids: tuple[int, ...] = (), pids_boot_ms: int = 0) -> Look:
    return Look(record, devices, pids, pids_boot_ms)


def evict(*devices: str, force: bool = False, pids: tuple[int, ...] = (), pids_boot_ms: int = 0) -> Evict:
    return Evict(RECORD, devices, pids, pids_boot_ms, force)


@pytest.fixture
def tenant(host: HostFiles) -> Iterator[Running]:
    with holding(host.dev / "nvidia0") as process:
        yield process


def test_a_stranger_on_a_device_is_named_and_left_alone(leavings: Leavings, tenant: Running) -> None:
    with pytest.raises(BindError, match=rf"^foreignProcess: pid {tenant.pid} \(\w.*\) on GPU-0, GPU-1$"):
        leavings.look(look("GPU-0", "GPU-1"))

    leavings.look(look("GPU-0"))  # the other one is nobody's
    assert not tenant.has_ended()


def test_whoever_has_only_what_all_share_open_is_on_no_device(host: HostFiles, leavings: Leavings) -> None:
    with holding(host.dev / "nvidiactl", host.dev / "nvidia-uvm"):
        leavings.look(look("GPU-0", "GPU-1"))


def test_term_ends_a_tenant_and_then_nobody_is_left(leavings: Leavings, tenant: Running) -> None:
    with pytest.raises(BindError, match=f"^ending: pid {tenant.pid} "):
        leavings.evict(evict("GPU-1"))

    assert tenant.has_ended(GRACE)
    leavings.evict(evict("GPU-1"))


def test_a55_a_deaf_one_is_told_once_and_killed_when_the_grace_is_over(host: HostFiles, leavings: Leavings) -> None:
    with holding(host.dev / "nvidia0", term="is ignored") as tenant:
        for _ in range(2):
            with pytest.raises(BindError, match=f"^ending: pid {tenant.pid} "):
                leavings.evict(evict("GPU-1"))
        with pytest.raises(BindError, match=f"^releaseBlocked: pid {tenant.pid} "):
            leavings.evict(evict("GPU-1", force=True))

        assert tenant.has_ended(GRACE)
        leavings.evict(evict("GPU-1", force=True))


def test_term_is_sent_once_because_to_many_programs_a_second_one_means_at_once(
    host: HostFiles, leavings: Leavings
) -> None:
    heard = host.dev / "nvidia0.signals"
    with holding(host.dev / "nvidia0", term="is noted") as tenant:
        for _ in range(2):
            with pytest.raises(BindError, match=r"^ending: "):
                leavings.evict(evict("GPU-1"))
            while not heard.exists() or "SIGTERM" not in heard.read_text():
                assert not tenant.has_ended()
        os.kill(tenant.pid, signal.SIGCONT)
        while "SIGCONT" not in heard.read_text():
            assert not tenant.has_ended()

    assert heard.read_text() == "SIGTERM SIGCONT "


def test_devices_that_others_share_end_nobody(leavings: Leavings, tenant: Running) -> None:
    leavings.evict(evict(force=True))

    assert not tenant.has_ended()


def test_a44_whom_nvml_told_is_ended_only_if_it_was_there_when_nvml_told(leavings: Leavings, tmp_path: Path) -> None:
    with holding(tmp_path / "dev" / "nvidiactl") as tenant:
        holder = ProcessTable().holder(tenant.pid)
        assert holder
        leavings.evict(evict("GPU-1", pids=(0, tenant.pid), pids_boot_ms=holder.started_boot_ms - 1, force=True))
        assert not tenant.has_ended()

        with pytest.raises(BindError, match="releaseBlocked"):
            leavings.evict(evict("GPU-1", pids=(0, tenant.pid), pids_boot_ms=holder.started_boot_ms, force=True))
        assert tenant.has_ended(GRACE)


def test_a_mig_tenant_is_known_by_its_instances_nodes_and_its_neighbour_is_not_ended(
    host: HostFiles, leavings: Leavings
) -> None:
    host.instance(0, 1, 0, first_cap=20)
    host.instance(0, 2, 0, first_cap=30)
    record = replace(
        RECORD, devices=("MIG-a",), instances=(Instance("MIG-a", "GPU-1", 1, 0), Instance("MIG-b", "GPU-1", 2, 0))
    )
    with holding(host.dev / "nvidia0", host.dev / "nvidia-caps" / "nvidia-cap31"):
        leavings.look(look("MIG-a", record=record))
    with (
        holding(host.dev / "nvidia0", host.dev / "nvidia-caps" / "nvidia-cap21"),
        pytest.raises(BindError, match="foreignProcess"),
    ):
        leavings.look(look("MIG-a", record=record))


def test_many_are_named_in_one_line_that_a_report_can_carry(host: HostFiles, tmp_path: Path) -> None:
    fake = tmp_path / "processes"
    for pid in range(100, 130):
        (fake / str(pid) / "fd").mkdir(parents=True)
        (fake / str(pid) / "fd" / "3").symlink_to(host.dev / "nvidia0")
        (fake / str(pid) / "stat").write_text(f"{pid} (python) S {' '.join(['1'] * 40)}\n")

    with pytest.raises(BindError, match=r"pid 107 \(python\) and 22 more on GPU-1$"):
        Leavings(host.nodes, ProcessTable(fake)).look(look("GPU-1"))
