"""The guard: what it does at the armed end, and all that it leaves alone."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.guard.plan import Plan, PlanError
from muster_agent.guard.watch import ALIVE_MS, Time, stand
from muster_agent.holders.processes import PROC
from tests.support.programs import Running, holding, script

END = 600_000
BOOT_ID = "boot-1"


class Hand:
    """A clock that moves when somebody waits on it."""

    def __init__(self, boot_ms: int = END) -> None:
        self.now_ms = boot_ms
        self.waited_ms = 0

    def pause(self, ms: int) -> None:
        self.now_ms += ms
        self.waited_ms += ms

    @property
    def time(self) -> Time:
        return Time(lambda: self.now_ms, self.pause)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    node = tmp_path / "dev" / "nvidia0"
    node.parent.mkdir()
    node.touch()
    spec = tmp_path / "muster-alloc_a.json"
    spec.touch()
    closing = script(tmp_path / "bin" / "systemctl", f'echo "$@" >> {tmp_path}/closed\n')
    return Plan(
        allocation_id="alloc_a",
        generation=3,
        boot_id=BOOT_ID,
        end_boot_ms=END,
        kill_grace_ms=4_000,
        nodes=(str(node),),
        files=(str(spec), str(tmp_path / "gone")),
        commands=((str(closing), "set-property", "muster-alloc_a.slice", "DeviceAllow="),),
        alive_file=str(tmp_path / "alive"),
        allowed_names=(),
        allowed_cgroups=(),
    )


@pytest.fixture
def tenant(plan: Plan) -> Iterator[Running]:
    with holding(Path(plan.nodes[0])) as process:
        yield process


def untouched(plan: Plan, tenant: Running) -> bool:
    return Path(plan.files[0]).exists() and not tenant.has_ended()


def test_at_the_end_a_dead_agents_grant_is_revoked_and_its_tenant_ended(
    plan: Plan, tenant: Running, tmp_path: Path
) -> None:
    verdict = stand(plan, BOOT_ID, Hand().time, PROC)

    assert (verdict.said, verdict.troubles) == ("emptied", ())
    assert tenant.has_ended(20)
    assert not Path(plan.files[0]).exists()
    assert (tmp_path / "closed").read_text() == "set-property muster-alloc_a.slice DeviceAllow=\n"


def test_before_the_end_nothing_is_done(plan: Plan, tenant: Running) -> None:
    assert stand(plan, BOOT_ID, Hand(END - 1).time, PROC).said == "notYet"
    assert untouched(plan, tenant)


@pytest.mark.parametrize(
    ("silent_ms", "said"), [(0, "agentAlive"), (ALIVE_MS - 1, "agentAlive"), (ALIVE_MS, "emptied")]
)
def test_an_agent_that_does_its_work_ends_its_grants_itself(plan: Plan, silent_ms: int, said: str) -> None:
    Path(plan.alive_file).write_text(f"{END - silent_ms:020d}\n")

    assert stand(plan, BOOT_ID, Hand().time, PROC).said == said


@pytest.mark.parametrize("beat", ["", "soon", f"{END + 5_000}"])
def test_a_beat_that_makes_no_sense_is_none(plan: Plan, beat: str) -> None:
    Path(plan.alive_file).write_text(beat)

    assert stand(plan, BOOT_ID, Hand().time, PROC).said == "emptied"


def test_a_plan_that_was_taken_back_or_is_of_another_boot_is_not_followed(plan: Plan, tenant: Running) -> None:
    assert stand(None, BOOT_ID, Hand().time, PROC).said == "noPlan"
    assert stand(replace(plan, boot_id="boot-0"), BOOT_ID, Hand().time, PROC).said == "otherBoot"
    assert untouched(plan, tenant)


def test_a_deaf_tenant_gets_its_grace_and_then_kill(plan: Plan) -> None:
    hand = Hand()
    with holding(Path(plan.nodes[0]), term="is ignored") as tenant:
        verdict = stand(plan, BOOT_ID, hand.time, PROC)

        assert tenant.has_ended(20)
    assert verdict.said in {"emptied", "stillHeld"}, "whoever was killed may need a moment, and the guard comes again"
    assert hand.waited_ms == plan.kill_grace_ms + 500


def test_term_is_sent_once_and_comes_before_kill(plan: Plan) -> None:
    heard = Path(f"{plan.nodes[0]}.signals")

    class Patient(Hand):
        def pause(self, ms: int) -> None:
            while not heard.exists() or not heard.read_text():
                assert self.waited_ms == 0
            super().pause(ms)

    with holding(Path(plan.nodes[0]), term="is noted") as tenant:
        stand(plan, BOOT_ID, Patient().time, PROC)
        assert tenant.has_ended(20)

    assert heard.read_text() == "SIGTERM "


def test_no_grace_is_longer_than_the_time_after_which_a_silent_nodes_devices_are_given_away(plan: Plan) -> None:
    hand = Hand()
    with holding(Path(plan.nodes[0]), term="is ignored"):
        stand(replace(plan, kill_grace_ms=600_000), BOOT_ID, hand.time, PROC)

    assert ALIVE_MS + hand.waited_ms < 30_000


def test_a_revocation_that_does_not_work_keeps_no_tenant_alive(plan: Plan, tenant: Running, tmp_path: Path) -> None:
    no_file, no_program = str(tmp_path), str(tmp_path / "no-program")
    verdict = stand(replace(plan, files=(no_file,), commands=((no_program,),)), BOOT_ID, Hand().time, PROC)

    assert tenant.has_ended(20)
    assert [no_file in verdict.troubles[0], no_program in verdict.troubles[1]] == [True, True]


def test_a_plan_is_read_as_it_was_written(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "alloc_a.json"
    file.write_bytes(plan.encoded())

    assert Plan.read(file) == plan
    assert Plan.read(tmp_path / "none.json") is None


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 2}', '{"version": 1, "nodes": 7}'])
def test_a_damaged_plan_is_told_and_not_followed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "alloc_a.json"
    file.write_text(text)

    with pytest.raises(PlanError, match=r"alloc_a\.json"):
        Plan.read(file)


# --- The command


def run(plan: Path, boot_id: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster_agent.guard.program", "run", plan, "--boot-id-file", boot_id],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_command_ends_a_grant_of_this_boot_and_says_so(plan: Plan, tenant: Running, tmp_path: Path) -> None:
    file, boot_id = tmp_path / "alloc_a.json", tmp_path / "boot"
    file.write_bytes(replace(plan, end_boot_ms=1).encoded())
    boot_id.write_text(f"{BOOT_ID}\n")

    done = run(file, boot_id)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "muster-guard: alloc_a: revoked, and nobody holds its devices\n"
    assert tenant.has_ended()


def test_the_command_says_why_it_cannot_tell(tmp_path: Path) -> None:
    file = tmp_path / "alloc_a.json"
    file.write_text("{")
    (tmp_path / "boot").write_text("x\n")

    done = run(file, tmp_path / "boot")

    assert (done.returncode, done.stdout) == (2, "")
    assert "alloc_a.json cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_guard_loads_nothing_of_the_agent_but_itself_and_holders() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, muster_agent.guard.program; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()

    ours = {name for name in loaded if name.startswith("muster_")}
    assert {name.split(".")[1] for name in ours if "." in name} == {"guard", "holders"}
    assert not {"pydantic", "aiohttp", "structlog", "orjson", "asyncio", "psutil"} & set(loaded)
