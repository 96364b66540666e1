"""How `muster` ends: exit codes, what an error tells, and what never happens (a traceback)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
import pytest_asyncio

from muster_cli.failures import refused
from muster_cli.main import cli
from muster_coordinator.service import bodies
from muster_shared.codec import decode
from muster_shared.errors import Code, Problem
from tests.support.canned import Coordinator, coordinator_running, reservation

GET = "GET /v1/reservations/rsv_1"


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (Code.INVALID_INPUT, 2),
        (Code.UNAUTHENTICATED, 5),
        (Code.FORBIDDEN, 5),
        (Code.NOT_FOUND, 3),
        (Code.CONFLICT, 4),
        (Code.IDEMPOTENCY_MISMATCH, 4),
        (Code.INTERNAL, 1),
        (Code.UNAVAILABLE, 6),
    ],
)
async def test_the_exit_code_tells_the_kind_of_refusal(coordinator: Coordinator, code: Code, exit_code: int) -> None:
    coordinator.refuse(GET, code.http_status, code, "No")

    result = await coordinator.muster("get", "rsv_1")

    assert (result.exit_code, result.stdout) == (exit_code, "")


def test_every_code_has_its_exit_code_and_its_advice() -> None:
    for code in Code:
        failure = refused(code, "No", (), None)
        assert failure.exit_code > 0
        assert failure.details[-1].startswith("Next: ")


async def test_an_error_tells_its_code_the_fields_what_to_do_and_the_request_id(coordinator: Coordinator) -> None:
    errors = (("gang.size", "Input should be at most 4096"), ("name", "too long"))
    coordinator.refuse("POST /v1/reservations", 400, "INVALID_INPUT", "gang.size: Input should be at most 4096", errors)

    result = await coordinator.muster("reserve", "--tenant", "a", "--gpus", "1", "--gang", "9999", "--for", "1h")

    assert result.stderr == (
        "Error: INVALID_INPUT: --gang: Input should be at most 4096\n"
        "  name: too long\n"
        "Next: Correct what is named above; --help tells what each flag takes.\n"
        "Request id: req-1\n"
    )


WRONG_IN_EVERY_FIELD = {
    "tenantId": "a b",
    "poolId": "x" * 300,
    "devices": [{"count": 65, "topology": "ring", "model": "x" * 300, "memoryGib": 0}],
    "gang": {"size": 5000, "topologyKey": "-"},
    "start": -1,
    "duration": "",
    "end": -1,
    "latestStart": -1,
    "nodeSelector": {"rack": "?"},
    "idempotencyKey": "a b",
}


async def test_a_wrong_request_is_told_in_flags_and_without_patterns(coordinator: Coordinator) -> None:
    with pytest.raises(Problem) as refusal:
        decode(bodies.ReservationRequest, json.dumps(WRONG_IN_EVERY_FIELD))
    errors = tuple((error.path, error.message) for error in refusal.value.errors)
    coordinator.refuse("POST /v1/reservations", 400, "INVALID_INPUT", refusal.value.detail, errors)

    result = await coordinator.muster("reserve", "--tenant", "a b", "--gpus", "1", "--for", "1h")

    flags = [
        line.removeprefix("Error: INVALID_INPUT:").strip().partition(":")[0] for line in result.stderr.splitlines()
    ]
    assert set(flags) >= {
        *("--tenant", "--pool", "--gpus", "--topology", "--model", "--memory-gib", "--gang", "--same"),
        *("--start", "--for", "--until", "--latest-start", "--node-selector rack", "--key"),
    }
    assert "pattern" not in result.stderr
    assert result.stderr.startswith(
        "Error: INVALID_INPUT: --tenant: takes 1 to 63 letters, digits and . _ / - ; the first a letter or digit\n"
    )


async def test_what_is_not_found_is_said_once(coordinator: Coordinator) -> None:
    detail = "there is no pool 'x'; `muster pools` lists them"
    coordinator.refuse("GET /v1/reservations", 404, "NOT_FOUND", detail, (("poolId", "unknown"),))

    result = await coordinator.muster("list", "--pool", "x")

    assert result.stderr == f"Error: NOT_FOUND: {detail}\nRequest id: req-1\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("reserv",), "No such command 'reserv'. Did you mean reserve or release?"),
        (("qqq",), "No such command 'qqq'."),
        (("reserve", "--tenant", "a", "--gpus", "1"), "Give one of --for and --until."),
        (
            ("reserve", "--tenant", "a", "--gpus", "1", "--for", "1h", "--until", "+2h"),
            "Give only one of --for and --until.",
        ),
    ],
)
async def test_a_misuse_says_what_was_meant(coordinator: Coordinator, args: tuple[str, ...], sentence: str) -> None:
    assert (await coordinator.muster(*args)).stderr.splitlines()[-1] == f"Error: {sentence}"


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    ctx = click.Context(group)
    yield path
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
async def test_every_command_tells_about_itself_with_h(coordinator: Coordinator, path: tuple[str, ...]) -> None:
    result = await coordinator.muster(*path, "-h")

    assert (result.exit_code, result.stdout.partition("[OPTIONS]")[0]) == (0, f"Usage: {' '.join(('muster', *path))} ")


async def test_a_refusal_by_something_on_the_way_is_told_by_its_status(coordinator: Coordinator) -> None:
    coordinator.answer(GET, b"<html>nothing here</html>", 404, {"Content-Type": "text/html"})

    result = await coordinator.muster("get", "rsv_1")

    assert (result.exit_code, result.stderr.splitlines()[0]) == (3, "Error: NOT_FOUND: HTTP 404 Not Found")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"{"])
async def test_what_is_no_coordinator_is_not_taken_for_one(coordinator: Coordinator, body: bytes) -> None:
    coordinator.answer(GET, body)

    result = await coordinator.muster("get", "rsv_1")

    assert (result.exit_code, result.stdout) == (6, "")


async def test_a_code_of_a_newer_coordinator_still_has_an_exit_code(coordinator: Coordinator) -> None:
    coordinator.refuse(GET, 409, "NO_SUCH_YEAR", "That code is not known here")

    result = await coordinator.muster("get", "rsv_1")

    assert (result.exit_code, result.stderr.splitlines()[0]) == (4, "Error: CONFLICT: That code is not known here")


async def test_nobody_there_ends_with_6(coordinator: Coordinator) -> None:
    result = await coordinator.muster("get", "rsv_1", "--coordinator", "http://127.0.0.1:1")

    assert result.exit_code == 6
    assert result.stderr.startswith("Error: No coordinator at http://127.0.0.1:1: ")


async def test_a_coordinator_below_a_path_is_asked_there(coordinator: Coordinator) -> None:
    coordinator.answer("GET /muster/v1/reservations/rsv_1", reservation())

    result = await coordinator.muster("get", "rsv_1", "--coordinator", f"{coordinator.url}/muster/", "-o", "name")

    assert (result.exit_code, result.stdout) == (0, "rsv_1\n")


RESERVE = ("reserve", "--tenant", "a", "--gpus", "1", "--for", "1h")
MISUSES = {
    "nothing asked": ("frobnicate",),
    "no such flag": ("list", "--colour"),
    "no tenant": ("reserve", "--gpus", "1", "--for", "1h"),
    "no GPUs": ("reserve", "--tenant", "a", "--for", "1h"),
    "zero GPUs": ("reserve", "--tenant", "a", "--gpus", "0", "--for", "1h"),
    "half a GPU": ("reserve", "--tenant", "a", "--gpus", "0.5", "--for", "1h"),
    "no length": ("reserve", "--tenant", "a", "--gpus", "1"),
    "two lengths": (*RESERVE, "--until", "+2h"),
    "empty window": ("reserve", "--tenant", "a", "--gpus", "1", "--for", "0s"),
    "negative window": ("reserve", "--tenant", "a", "--gpus", "1", "--for", "-1h"),
    "no duration": ("reserve", "--tenant", "a", "--gpus", "1", "--for", "soon"),
    "no instant": (*RESERVE, "--start", "tomorrow"),
    "no offset": (*RESERVE, "--start", "2026-09-28T08:00:00"),
    "no pair": (*RESERVE, "--label", "team"),
    "a pair twice": (*RESERVE, "--label", "a=1", "--label", "a=2"),
    "key with a space": (*RESERVE, "--key", "two words"),
    "key beyond ASCII": (*RESERVE, "--key", "schlüssel"),
    "unknown topology": (*RESERVE, "--topology", "ring"),
    "unknown state": (*RESERVE, "--wait", "running"),
    "timeout of nothing": (*RESERVE, "--timeout", "5m"),
    "unknown output": ("list", "-o", "yaml"),
    "no address": ("list", "--coordinator", "localhost:8470"),
    "no host": ("list", "--coordinator", "http://"),
    "port of letters": ("list", "--coordinator", "http://localhost:port"),
    "unclosed bracket": ("list", "--coordinator", "http://[::1"),
    "all of one state": ("list", "--all", "--state", "active"),
    "limit of a stream": ("events", "--follow", "--limit", "5"),
    "misspelt verb": ("nodes", "crodon", "gpu-01"),
    "many without a yes": ("release", "rsv_1", "rsv_2"),
}


@pytest.mark.parametrize("args", MISUSES.values(), ids=MISUSES.keys())
async def test_a_misuse_ends_with_2_and_one_clear_line_before_anything_is_sent(
    coordinator: Coordinator, args: tuple[str, ...]
) -> None:
    result = await coordinator.muster(*args)

    assert (result.exit_code, result.stdout, coordinator.asked) == (2, "", [])
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("token", ["a b", "a\nX-Role: operator", "schlüssel"])
async def test_a_token_cannot_smuggle_a_header(coordinator: Coordinator, token: str) -> None:
    result = await coordinator.muster("list", MUSTER_TOKEN=token)

    assert (result.exit_code, coordinator.asked) == (2, [])
    assert token not in result.stderr


async def test_arguments_that_are_no_text_are_sent_as_something_harmless(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": []})
    coordinator.refuse("GET /v1/reservations/?", 404, "NOT_FOUND", "No")

    result = await coordinator.muster("get", "\udcff")

    assert result.exit_code == 3


async def test_help_and_completion_need_no_coordinator(coordinator: Coordinator) -> None:
    assert (await coordinator.muster("--help")).exit_code == 0
    for shell in ("bash", "zsh", "fish"):
        assert "_MUSTER_COMPLETE" in (await coordinator.muster("completion", shell)).stdout
    for asked in ("version", "--version"):
        assert (await coordinator.muster(asked)).stdout == f"{version('gpu-muster')}\n"
    assert coordinator.asked == []


def installed(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "muster"
    return subprocess.run(
        [command, *args], capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=60
    )


def test_the_installed_command_ends_as_it_should() -> None:
    unreachable = installed("list", MUSTER_URL="http://127.0.0.1:1")
    misused = installed("list", "--colour")

    assert (unreachable.returncode, unreachable.stdout) == (6, "")
    assert (misused.returncode, misused.stdout) == (2, "")
    assert "Traceback" not in unreachable.stderr + misused.stderr


def test_a_shell_completes_commands() -> None:
    result = installed(_MUSTER_COMPLETE="bash_complete", COMP_WORDS="muster re", COMP_CWORD="1")

    assert result.stdout.split() == ["plain,reserve", "plain,repair", "plain,release"]


def test_a_command_loads_no_server_and_no_database() -> None:
    program = "import sys; from muster_cli.main import cli; cli(['list', '--help'], standalone_mode=False)\n"
    program += "print(sorted({'aiohttp', 'pydantic', 'rich', 'sqlalchemy', 'asyncio'} & set(sys.modules)))"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert result.stdout.splitlines()[-1] == "[]"
