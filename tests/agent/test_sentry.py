"""Arming the guard: it is told as armed exactly where it is."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.systemd import SystemdDevices
from muster_agent.drivers.sentry import Sentry
from muster_agent.guard.plan import Plan
from muster_agent.holders.processes import Allowed
from tests.agent.test_journal import RECORD
from tests.support.hardware import HostFiles
from tests.support.scripted_systemd import ScriptedSystemd

NOW = 1_000_000
BOUND = replace(RECORD, end_boot_ms=NOW + 300_000)


class Stage:
    """A sentry on a host with both GPUs of the record, and a systemd that a test can break."""

    def __init__(self, folder: Path, systemd: ScriptedSystemd) -> None:
        self.folder = folder
        self.systemd = systemd
        self.host = HostFiles(folder)
        self.host.gpu("GPU-0", 0)
        self.host.gpu("GPU-1", 1)
        self.now_ms = NOW
        self.sentry = self.restarted()

    def restarted(self) -> Sentry:
        nodes = self.host.nodes
        drivers = (Cdi(self.folder / "cdi", nodes), SystemdDevices("muster-{allocation}.slice", nodes))
        return Sentry(self.folder / "run", nodes, drivers, Allowed(), "boot-1", lambda: self.now_ms, self.systemd.runs)

    def plan(self) -> Plan | None:
        return Plan.read(self.folder / "run" / "guard" / "alloc_a.json")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSystemd:
    systemd = ScriptedSystemd(tmp_path / "systemd", sys.executable)
    monkeypatch.setenv("PATH", f"{systemd.bin}:{os.environ['PATH']}")
    return systemd


@pytest.fixture
def stage(tmp_path: Path, systemd: ScriptedSystemd) -> Stage:
    return Stage(tmp_path, systemd)


def test_a_plan_says_all_that_ends_a_grant_without_the_agent(stage: Stage) -> None:
    assert stage.sentry.arm(BOUND)

    plan = stage.plan()
    assert plan
    assert (plan.boot_id, plan.end_boot_ms, plan.generation) == ("boot-1", NOW + 300_000, 3)
    assert plan.nodes == tuple(str(stage.host.dev / name) for name in ("nvidia0", "nvidia1"))
    assert plan.files == (str(stage.folder / "cdi" / "muster-alloc_a.json"),)
    assert [command[1:] for command in plan.commands] == [
        ("set-property", "--runtime", "--", "muster-alloc_a.slice", "DevicePolicy=closed", "DeviceAllow=")
    ]


def test_a_timer_starts_the_guard_at_the_end_and_every_few_seconds_from_then_on(stage: Stage) -> None:
    stage.sentry.arm(BOUND)

    (arguments,) = stage.systemd.timers.values()
    assert "--on-active=300s" in arguments
    assert "--on-unit-inactive=5s" in arguments
    assert arguments[-3:] == ["systemctl", "start", "muster-guard@alloc_a.service"]


def test_a_guard_that_stands_costs_one_question_and_no_second_timer(stage: Stage) -> None:
    stage.sentry.arm(BOUND)
    before = len(stage.systemd.calls)

    assert stage.sentry.arm(BOUND)

    assert [call[:2] for call in stage.systemd.calls[before:]] == [["systemctl", "list-units"]]


def test_an_end_that_moves_away_moves_the_plan_and_the_timer_only_when_it_is_near(stage: Stage) -> None:
    stage.sentry.arm(BOUND)
    later = replace(BOUND, end_boot_ms=NOW + 600_000)

    assert stage.sentry.arm(later)
    moved = stage.plan()
    assert moved
    assert moved.end_boot_ms == NOW + 600_000
    assert list(stage.systemd.timers) == [f"muster-guard-alloc_a-{NOW + 300_000}.timer"]

    stage.now_ms += 241_000
    assert stage.sentry.arm(later)
    assert list(stage.systemd.timers) == [f"muster-guard-alloc_a-{NOW + 600_000}.timer"]


def test_an_end_that_comes_nearer_gets_its_timer_before_the_old_one_goes(stage: Stage) -> None:
    stage.sentry.arm(BOUND)
    sooner = replace(BOUND, end_boot_ms=NOW + 100_000)

    assert stage.sentry.arm(sooner)

    assert list(stage.systemd.timers) == [f"muster-guard-alloc_a-{NOW + 100_000}.timer"]
    changes = [call[0:2] for call in stage.systemd.calls if call[0] == "systemd-run" or call[1] == "stop"]
    assert [call[0] for call in changes] == ["systemd-run", "systemd-run", "systemctl"]


def test_after_a_restart_of_the_agent_one_timer_is_left(stage: Stage) -> None:
    stage.sentry.arm(BOUND)

    assert stage.restarted().arm(replace(BOUND, end_boot_ms=NOW + 400_000))

    assert list(stage.systemd.timers) == [f"muster-guard-alloc_a-{NOW + 400_000}.timer"]


def test_a_timer_that_somebody_stopped_is_started_again(stage: Stage) -> None:
    stage.sentry.arm(BOUND)
    stage.systemd.lose(timers=True)

    assert stage.sentry.arm(BOUND)
    assert len(stage.systemd.timers) == 1


@pytest.mark.parametrize("broken", ["systemd_run", "list_units"])
def test_where_systemd_refuses_the_guard_is_not_armed_and_nothing_else_is_the_worse(stage: Stage, broken: str) -> None:
    stage.systemd.fail(**{broken: "Access denied"})

    assert not stage.sentry.arm(BOUND)
    assert stage.plan()


def test_a_timer_that_was_started_and_is_not_seen_is_none(stage: Stage) -> None:
    stage.systemd.go_blind()

    assert not stage.sentry.arm(BOUND)


def test_without_systemd_the_plan_is_there_and_the_guard_is_not_armed(stage: Stage) -> None:
    stage.systemd.runs.rmdir()

    assert not stage.sentry.arm(BOUND)
    assert stage.plan()
    assert stage.systemd.calls == []


def test_a_guard_that_could_not_tell_whom_to_end_is_not_armed(stage: Stage) -> None:
    assert not stage.sentry.arm(replace(BOUND, shared=("GPU-1",)))
    assert not stage.sentry.arm(replace(BOUND, devices=("GPU-0", "GPU-9")))


def test_a_released_assignment_leaves_neither_plan_nor_timer(stage: Stage) -> None:
    stage.sentry.arm(BOUND)

    stage.sentry.disarm("alloc_a")
    stage.sentry.disarm("alloc_a")

    assert stage.plan() is None
    assert stage.systemd.timers == {}


def test_plans_of_assignments_that_are_none_are_taken_back(stage: Stage) -> None:
    stage.sentry.arm(BOUND)
    stage.restarted().sweep({"alloc_a"})
    assert stage.plan()

    stage.restarted().sweep(set())
    assert stage.plan() is None
    assert stage.systemd.timers == {}


def test_a_beat_is_the_boot_clock_also_where_the_folder_is_new(stage: Stage) -> None:
    stage.sentry.beat()
    stage.now_ms += 1_000
    stage.sentry.beat()

    assert int((stage.folder / "run" / "alive").read_text()) == NOW + 1_000
