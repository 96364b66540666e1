"""The systemd units are understood whole by systemd, shut in, and each line has its reason."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "systemd").glob("*.service"))
EXPOSURE_MAX = 40  # tenths: 4.0 of 10, where a unit without any protection has 9.6

with_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
each_service = pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if "@" not in unit.name], ids=lambda unit: unit.name
)
each_helper = pytest.mark.parametrize("unit", [unit for unit in UNITS if "@" in unit.name], ids=lambda unit: unit.name)


def verified(text: str, folder: Path) -> str:
    """Return what systemd finds wrong with a unit; empty when it understands every line."""
    unit = folder / ("muster-trial@.service" if "%i" in text else "muster-trial.service")
    # The program need not be installed where the tests run; everything else is verified as it is.
    unit.write_text(re.sub(r"(?m)^ExecStart=/usr/(?:bin|lib/muster-agent)/muster-\S+", "ExecStart=/bin/true", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    # Exit status 0 is given for unknown keys too: only silence is agreement. Other units' faults are not ours.
    return "\n".join(line for line in done.stderr.splitlines() if "muster-trial" in line)


def unexplained(text: str) -> list[str]:
    """List the settings above which, in their group of lines, no comment stands."""
    groups = (group.splitlines() for group in re.split(r"\n\s*\n|\n(?=#)", text))
    return [
        line
        for group in groups
        if not any(line.startswith(("#", "[", "ExecStart=")) for line in group)
        for line in group
        if line
    ]


@with_systemd
@each_unit
def test_systemd_has_no_word_to_say_against_a_unit(unit: Path, tmp_path: Path) -> None:
    assert verified(unit.read_text(), tmp_path) == ""


@with_systemd
def test_a_misspelt_setting_is_found(tmp_path: Path) -> None:
    text = UNITS[0].read_text().replace("WatchdogSec=", "WatchDogSec=")

    assert "WatchDogSec" in verified(text, tmp_path)


@with_systemd
@each_unit
def test_a_unit_is_exposed_to_little(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", unit],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-400:] + done.stderr


@each_service
def test_a_unit_is_watched_and_comes_back(unit: Path) -> None:
    settings = dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))

    assert settings["Type"] == "notify"
    assert int(settings["WatchdogSec"]) > 0
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("always", "0")


@each_helper
def test_a_helper_does_one_thing_ends_in_time_and_may_be_started_as_often_as_needed(unit: Path) -> None:
    settings = dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))

    assert settings["Type"] == "oneshot"
    assert int(settings["TimeoutStartSec"]) < 60
    assert settings["StartLimitIntervalSec"] == "0"
    assert "[Install]" not in unit.read_text(), "it is started for one device or assignment, and never at boot"


@each_unit
def test_every_setting_stands_under_its_reason(unit: Path) -> None:
    assert unexplained(unit.read_text()) == []


def test_a_setting_without_a_reason_is_found() -> None:
    assert unexplained("[Service]\n# why\nType=notify\n\nUMask=0077\n") == ["UMask=0077"]


def test_the_agent_hides_nothing_that_it_must_see() -> None:
    agent = next(unit for unit in UNITS if unit.name == "muster-agent.service")
    settings = set(re.findall(r"(?m)^(\w+)=", agent.read_text()))
    blinding = {"PrivateDevices", "ProtectKernelLogs", "ProtectProc", "PrivateUsers", "ProtectControlGroups"}

    assert settings & (blinding | {"MemoryDenyWriteExecute"}) == set()
