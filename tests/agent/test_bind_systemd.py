"""Device access by systemd, against a `systemctl` that a test can let forget."""

import os
import sys
from pathlib import Path

import pytest

from muster_agent.drivers.bind import BindError
from muster_agent.drivers.bind.systemd import SystemdDevices
from tests.agent.test_journal import RECORD
from tests.support.hardware import HostFiles
from tests.support.scripted_systemd import ScriptedSystemd

UNIT = "muster-alloc_a.slice"
NODES = ["/dev/nvidia-uvm rw", "/dev/nvidia0 rw", "/dev/nvidia4 rw", "/dev/nvidiactl rw"]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSystemd:
    systemd = ScriptedSystemd(tmp_path / "systemd", sys.executable)
    monkeypatch.setenv("PATH", f"{systemd.bin}:{os.environ['PATH']}")
    return systemd


@pytest.fixture
def driver(tmp_path: Path, systemd: ScriptedSystemd) -> SystemdDevices:
    del systemd  # it must be there first
    host = HostFiles(tmp_path)
    host.gpu("GPU-0", 4)
    host.gpu("GPU-1", 0)
    return SystemdDevices("muster-{allocation}.slice", host.nodes)


def test_a_grant_closes_the_tenants_unit_to_every_device_but_its_own(
    driver: SystemdDevices, systemd: ScriptedSystemd
) -> None:
    driver.grant(RECORD)
    driver.grant(RECORD)

    assert systemd.units == {UNIT: {"DevicePolicy": "closed", "DeviceAllow": NODES}}
    driver.verify(RECORD)


def test_a49_a_grant_that_systemd_lost_is_found_and_made_again(
    driver: SystemdDevices, systemd: ScriptedSystemd
) -> None:
    driver.grant(RECORD)
    systemd.lose(units=True)

    with pytest.raises(BindError, match=f"^grantLost: {UNIT} has DevicePolicy=auto"):
        driver.verify(RECORD)

    driver.grant(RECORD)
    driver.verify(RECORD)


def test_a49_the_agent_never_reloads_systemd(driver: SystemdDevices, systemd: ScriptedSystemd) -> None:
    driver.grant(RECORD)
    driver.verify(RECORD)
    driver.revoke(RECORD)

    assert systemd.called("*daemon-reload*") == []
    assert all("--runtime" in call for call in systemd.calls if call[1] == "set-property")


def test_a_revoked_unit_stays_closed_and_says_so_to_the_guard(driver: SystemdDevices, systemd: ScriptedSystemd) -> None:
    driver.grant(RECORD)

    driver.revoke(RECORD)
    driver.revoke(RECORD)

    assert systemd.units == {UNIT: {"DevicePolicy": "closed", "DeviceAllow": []}}
    with pytest.raises(BindError, match="allows nothing"):
        driver.verify(RECORD)
    assert driver.revocation(RECORD).commands[0][-2:] == ("DevicePolicy=closed", "DeviceAllow=")


def test_another_hands_device_on_the_unit_is_found(driver: SystemdDevices, systemd: ScriptedSystemd) -> None:
    driver.grant(RECORD)
    os.spawnlp(os.P_WAIT, "systemctl", "systemctl", "set-property", UNIT, "DeviceAllow=/dev/nvidia7 rw")

    with pytest.raises(BindError, match="/dev/nvidia7"):
        driver.verify(RECORD)
    assert "/dev/nvidia7 rw" in systemd.units[UNIT]["DeviceAllow"]


def test_a53_a_systemd_that_refuses_fails_the_grant_with_its_words(
    driver: SystemdDevices, systemd: ScriptedSystemd
) -> None:
    systemd.fail(set_property="Access denied")

    with pytest.raises(BindError, match="set-property ended with status 1: Access denied"):
        driver.grant(RECORD)


def test_a_host_without_systemctl_says_so(tmp_path: Path) -> None:
    driver = SystemdDevices("muster-{allocation}.slice", HostFiles(tmp_path).nodes, str(tmp_path / "none"))

    with pytest.raises(BindError, match="cannot be started"):
        driver.revoke(RECORD)
