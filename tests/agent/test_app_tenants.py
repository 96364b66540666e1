"""The whole agent and real processes on its devices: strangers, tenants, hooks, and an agent that is killed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster_agent.clock import SystemClock
from muster_agent.drivers.fake import write_state
from tests.agent.test_app import GPUS, READING, Node, assignment, started, states
from tests.support.hardware import HostFiles
from tests.support.programs import holding, script
from tests.support.stand_in import StandIn, serving

ENDS_WITHIN_S = 20  # a process that got its signal ends in milliseconds


class Host(Node):
    """A node whose two GPUs have device nodes, and that runs operator hooks."""

    def settings(self) -> dict[str, str]:
        return {
            "MUSTER_AGENT_NVIDIA_DRIVER_DIR": str(self.folder / "proc"),
            "MUSTER_AGENT_DEV_DIR": str(self.folder / "dev"),
            "MUSTER_AGENT_HOOKS_DIR": str(self.folder / "etc"),
        }

    @property
    def device(self) -> Path:
        return self.folder / "dev" / "nvidia0"

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
async def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
async def host(stand_in: StandIn, tmp_path: Path) -> AsyncIterator[Host]:
    write_state(tmp_path / "gpus.json", READING)
    for name in ("events", "kmsg"):
        (tmp_path / name).touch()
    files = HostFiles(tmp_path)
    for minor, uuid in enumerate(GPUS):
        files.gpu(uuid, minor)
    for phase in ("bind", "unbind", "preempt"):
        script(tmp_path / "etc" / f"{phase}.d" / "note", f'echo "$1" >> {tmp_path}/log\n')
    async with serving(stand_in) as url:
        yield Host(tmp_path, url)


async def running(host: Host) -> asyncio.subprocess.Process:
    return await started(host, **host.settings())


async def ended(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    async with asyncio.timeout(30):
        await process.communicate()


async def test_a_tenant_that_stays_past_its_release_is_ended_and_only_then_is_the_device_free(
    stand_in: StandIn, host: Host
) -> None:
    stand_in.want(assignment())
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    with holding(host.device) as tenant:
        stand_in.want()
        await stand_in.until(lambda report: report.applied_rev == 3 and not report.assignments)
        assert tenant.has_ended()

    assert host.log == ["bind", "unbind"]
    await ended(agent)


async def test_a55_what_term_does_not_end_keeps_the_device_until_kill_has(stand_in: StandIn, host: Host) -> None:
    stand_in.want(assignment().model_copy(update={"kill_grace_ms": 1_500}))
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    with holding(host.device, term="is ignored") as tenant:
        stand_in.want()
        blocked = await stand_in.until(lambda report: str(tenant.pid) in str(report.assignments))
        assert states(blocked) == {"alloc_a": "unbinding"}
        await stand_in.until(lambda report: not report.assignments)
        assert tenant.has_ended()
    await ended(agent)


async def test_a_stranger_on_a_device_fails_the_bind_is_named_and_goes_on(stand_in: StandIn, host: Host) -> None:
    with holding(host.device) as stranger:
        stand_in.want(assignment())
        agent = await running(host)
        report = await stand_in.until(lambda report: states(report) == {"alloc_a": "failed"})
        assert f"foreignProcess: pid {stranger.pid} " in str(report.assignments[0].reason)
        assert not stranger.has_ended()

    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
    assert host.log == ["bind"]
    await ended(agent)


async def test_notice_runs_the_preempt_hooks_while_the_tenant_is_bound(stand_in: StandIn, host: Host) -> None:
    stand_in.want(assignment())
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    stand_in.want(assignment().model_copy(update={"preempt_in_ms": 30_000}))
    await stand_in.until(lambda report: report.applied_rev == 3 and states(report) == {"alloc_a": "bound"})
    async with asyncio.timeout(20):
        while "preempt" not in host.log:  # noqa: ASYNC110 - another process writes; no event of ours tells it
            await asyncio.sleep(0)

    assert host.log == ["bind", "preempt"]
    await ended(agent)


async def test_a_restart_of_the_agent_touches_no_tenant(stand_in: StandIn, host: Host) -> None:
    stand_in.want(assignment())
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})

    with holding(host.device) as tenant:
        agent.kill()
        await agent.communicate()
        again = await running(host)
        await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
        assert not tenant.has_ended()
        await ended(again)
        assert not tenant.has_ended()
    assert host.log == ["bind"]


async def guarded(host: Host) -> str:
    """Run the guard once, as systemd would."""
    guard = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster_agent.guard.program", "run", str(host.folder / "run" / "guard" / "alloc_a.json"),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        said, _ = await guard.communicate()
    return said.decode()


async def test_where_the_agent_is_killed_the_guard_ends_what_its_plan_says_and_a_later_agent_agrees(
    stand_in: StandIn, host: Host
) -> None:
    stand_in.want(assignment(grant_for_ms=8_000))
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
    plan = host.folder / "run" / "guard" / "alloc_a.json"
    end_boot_ms = json.loads(plan.read_text())["end_boot_ms"]

    with holding(host.device) as tenant:
        agent.kill()
        await agent.communicate()
        assert "its end has not come" in await guarded(host)
        (host.folder / "run" / "alive").unlink()  # as old as one that is missing: ten seconds are not waited for here
        while "revoked, and nobody holds its devices" not in (said := await guarded(host)):
            assert "its end has not come" in said
        assert SystemClock().boot_ms() >= end_boot_ms
        assert tenant.has_ended(ENDS_WITHIN_S)
    assert not (host.folder / "cdi" / "muster-alloc_a.json").exists()

    again = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "failed"})
    assert not plan.exists()
    assert host.log == ["bind", "unbind"]
    await ended(again)


async def test_while_the_agent_lives_the_guard_leaves_the_end_to_it(stand_in: StandIn, host: Host) -> None:
    stand_in.want(assignment())
    agent = await running(host)
    await stand_in.until(lambda report: states(report) == {"alloc_a": "bound"})
    plan = host.folder / "run" / "guard" / "alloc_a.json"
    over = {**json.loads(plan.read_text()), "end_boot_ms": 1}
    plan.write_text(json.dumps(over))

    with holding(host.device) as tenant:
        assert "the agent is alive, and ends it itself" in await guarded(host)
        assert not tenant.has_ended()
    await ended(agent)
