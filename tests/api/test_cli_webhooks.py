"""`muster webhooks` on a real coordinator with a real receiver: added, tried, switched, replayed, removed."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from muster_cli.main import cli
from tests.support.coordinator_api import Api, api_on
from tests.support.receiving import Receiver, receiving


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_on(str(tmp_path / "muster.db"), webhook_allow=("127.0.0.1",)) as api:
        yield api


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def muster(api: Api, *args: str) -> Result:
    runner = CliRunner(env={"MUSTER_URL": api.url, "MUSTER_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, cli, ["webhooks", *args], prog_name="muster")


async def test_a_receiver_is_added_with_its_secret_shown_once_and_listed(api: Api, receiver: Receiver) -> None:
    added = await muster(api, "add", "ops", receiver.url, "--type", "node.", "--type", "reservation.repaired")
    alone = await muster(api)
    named = await muster(api, "-o", "name")

    assert added.exit_code == 0
    assert "Its secret, shown this once: whsec_" in added.stderr
    assert alone.stdout.splitlines()[1].split() == [
        "ops",
        "on",
        "0",
        "-",
        "0",
        "node.",
        "reservation.repaired",
        receiver.url,
    ]
    assert named.stdout == "ops\n"


async def test_what_cannot_be_added_says_what_to_write(api: Api) -> None:
    result = await muster(api, "add", "ops", "http://169.254.169.254/")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "webhook_allow" in result.stderr


async def test_a_test_ends_with_1_where_the_receiver_does_not_take_it(api: Api, receiver: Receiver) -> None:
    await muster(api, "add", "ops", receiver.url)
    taken = await muster(api, "test", "ops")
    receiver.status = 500
    refused = await muster(api, "test", "ops", "-o", "json")

    assert (taken.exit_code, refused.exit_code) == (0, 1)
    assert json.loads(refused.stdout)["error"] == "it answered 500"


async def test_a_secret_is_changed_in_two_steps(api: Api, receiver: Receiver) -> None:
    await muster(api, "add", "ops", receiver.url)
    first = await muster(api, "rotate", "ops")
    early = await muster(api, "rotate", "ops")
    done = await muster(api, "rotate", "ops", "--finish")

    assert "muster webhooks rotate ops --finish" in first.stderr
    assert "two secrets" in first.stdout
    assert early.exit_code == 4
    assert "two secrets" not in done.stdout


async def test_a_receiver_is_switched_off_and_on_and_gets_what_it_missed(api: Api, receiver: Receiver) -> None:
    await muster(api, "add", "ops", receiver.url, "--type", "node.joined")
    off = await muster(api, "disable", "ops", "--reason", "upgrade")
    await api.join("n1")
    on = await muster(api, "enable", "ops")
    await joined(api)
    replayed = await muster(api, "replay", "ops", "--after", "0")
    await receiver.until(1)
    nothing = await muster(api, "replay", "ops")

    assert off.stdout.splitlines()[1].split()[:2] == ["ops", "off"]
    assert on.stdout.splitlines()[1].split()[:2] == ["ops", "on"]
    assert replayed.stderr == "Queued 1 events for ops.\n"
    assert nothing.stderr == "Queued 0 events for ops.\n"
    assert [got.event["type"] for got in receiver.got] == ["node.joined"]


async def joined(api: Api) -> None:
    """Return once a node's coming has its number."""
    headers = {"Accept": "text/event-stream"}
    async with api.client.get("/v1/events", headers=headers, params={"type": "node.joined"}) as stream:
        async for line in stream.content:
            if line.startswith(b"id: "):
                return


async def test_deliveries_tell_what_a_receiver_answered(api: Api, receiver: Receiver) -> None:
    receiver.status = 503
    await muster(api, "add", "ops", receiver.url, "--type", "node.joined")
    await api.join("n1")
    await receiver.until(1)
    while "503" not in (listed := await muster(api, "deliveries", "ops", "--state", "waiting")).stdout:
        pass

    header, row = listed.stdout.splitlines()
    assert header.split() == ["SEQ", "TYPE", "SUBJECT", "STATE", "ATTEMPTS", "WHEN", "ERROR"]
    assert [row.split()[place] for place in (1, 3, 4)] == ["node.joined", "waiting", "1"]
    assert "it answered 503" in row


async def test_a_receiver_is_removed_after_a_question(api: Api, receiver: Receiver) -> None:
    await muster(api, "add", "ops", receiver.url)
    asked = await muster(api, "remove", "ops")
    said = await muster(api, "remove", "ops", "--yes")
    gone = await muster(api, "get", "ops")

    assert (asked.exit_code, said.exit_code, gone.exit_code) == (2, 0, 3)
    assert "muster webhooks" in gone.stderr


@pytest.mark.parametrize(
    "verb", ["add", "list", "get", "test", "rotate", "disable", "enable", "remove", "deliveries", "replay"]
)
async def test_every_verb_explains_itself(api: Api, verb: str) -> None:
    result = await muster(api, verb, "--help")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 5
