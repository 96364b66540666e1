"""`muster tokens`, `policy` and `audit` on a real coordinator."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result
from sqlalchemy import create_engine, text

from muster_cli.main import cli
from tests.support.callers import CREATE, ROOT, bearer
from tests.support.coordinator_api import Api, api_on

CAP = 'forbid (principal in Role::"tenant", action in Action::"book", resource) when { context.gpuCount > 8 };\n'


async def muster(api: Api, *args: str, token: str = ROOT, given: str | None = None) -> Result:
    runner = CliRunner(env={"MUSTER_URL": api.url, "MUSTER_TOKEN": token, "MUSTER_TENANT": None})
    return await asyncio.to_thread(runner.invoke, cli, args, input=given, prog_name="muster")


async def chained(api: Api) -> None:
    while json.loads((await muster(api, "audit", "--verify", "-o", "json")).stdout)["pending"]:
        pass


async def test_a_token_is_made_shown_once_used_and_revoked(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "m.db"), api_token=ROOT) as api:
        made = await muster(api, "tokens", "create", "ada", "--role", "tenant", "--tenant", "acme")
        token = made.stderr.partition("Shown this once: ")[2].strip()
        used = await muster(api, "reserve", "--tenant", "acme", "--gpus", "1", "--for", "1h", token=token)
        foreign = await muster(api, "reserve", "--tenant", "other", "--gpus", "1", "--for", "1h", token=token)
        listed = await muster(api, "tokens")
        asked = await muster(api, "tokens", "revoke", "ada")
        revoked = await muster(api, "tokens", "revoke", "ada", "--yes", "--reason", "left")
        after = await muster(api, "list", token=token)

    assert token.startswith("muster_")
    assert (made.exit_code, used.exit_code, foreign.exit_code, revoked.exit_code, after.exit_code) == (0, 0, 5, 0, 5)
    assert (asked.exit_code, token in listed.stdout) == (2, False)
    assert listed.stdout.splitlines()[1].split()[:4] == ["ada", "tenant", "acme", "live"]


async def test_a_host_is_let_in_by_a_token_that_is_listed_without_its_secret_and_ends(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "m.db"), api_token=ROOT) as api:
        made = await muster(api, "join-tokens", "create", "gpu-c1", "--for", "2h")
        listed = await muster(api, "join-tokens")
        name = (await muster(api, "join-tokens", "-o", "name")).stdout.strip()
        revoked = await muster(api, "join-tokens", "revoke", name, "--reason", "wrong rack")
        left = await muster(api, "join-tokens")
        everything = await muster(api, "join-tokens", "list", "--all")

    token = made.stderr.partition("Shown this once: ")[2].strip()
    assert token.startswith("muster_join_")
    assert listed.stdout.splitlines()[1].split()[:4] == [name, "gpu-c1", "default", "open"]
    assert token not in listed.stdout
    assert (revoked.exit_code, revoked.stderr) == (0, "gpu-c1 may no longer join by it.\n")
    assert (left.stdout, left.stderr) == ("", "Nothing found.\n")
    assert everything.stdout.splitlines()[1].split()[3] == "revoked"


async def test_a_policy_is_tried_added_shown_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "cap.cedar"
    path.write_text(CAP)
    question = ("policy", "test", "compute:reservation:create", "--role", "tenant", "--tenant", "acme")
    async with api_on(str(tmp_path / "m.db"), api_token=ROOT) as api:
        tried = await muster(api, *question, "--gpus", "8", "--gang", "2", "--file", str(path))
        before = await muster(api, *question, "--gpus", "8", "--gang", "2")
        added = await muster(api, "policy", "add", "cap-8", "-", given=CAP)
        after = await muster(api, *question, "--gpus", "8", "--gang", "2")
        shown = await muster(api, "policy", "show", "cap-8")
        bad = await muster(api, "policy", "add", "bad", "-", given="permit")
        removed = await muster(api, "policy", "remove", "cap-8", "--yes")
        named = await muster(api, "policy", "-o", "name")

    assert [one.exit_code for one in (tried, before, added, after, bad, removed)] == [5, 0, 0, 5, 2, 0]
    assert "compute:reservation:create is forbidden by cap-8." in after.stderr
    assert shown.stdout == CAP
    assert "cap-8" not in named.stdout


async def test_the_audit_log_tells_who_did_what_and_notices_what_was_changed(tmp_path: Path) -> None:
    database = tmp_path / "m.db"
    async with api_on(str(database), api_token=ROOT) as api:
        body = {**CREATE, "tenantId": "acme"}
        _, made = await api.call("POST", "/v1/reservations", body, **bearer(ROOT))
        await api.call("POST", f"/v1/reservations/{made['id']}/cancel", **bearer(ROOT))
        await api.call("POST", "/v1/pools", {"name": "x"}, **bearer("guessed"))
        await chained(api)
        table = await muster(api, "audit")
        rows = [json.loads(line) for line in (await muster(api, "audit", "--export")).stdout.splitlines()]
        denied = await muster(api, "audit", "--decision", "deny", "-o", "json")
        sound = await muster(api, "audit", "--verify")
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:  # while nobody serves it
        connection.execute(text("UPDATE audit SET actor = 'user:eve' WHERE seq = 2"))
    engine.dispose()
    async with api_on(str(database), api_token=ROOT) as api:
        broken = await muster(api, "audit", "--verify", "-o", "json")

    told = [(one["actor"], one["action"], one["object"], one["outcome"]) for one in rows]
    assert told == [
        ("service:root", "compute:reservation:create", made["id"], "OK"),
        ("service:root", "compute:reservation:cancel", made["id"], "OK"),
        ("nobody:nobody", "compute:pool:create", "", "UNAUTHENTICATED"),
    ]
    assert (rows[0]["before"], rows[0]["after"], rows[1]["before"]) == ({}, {made["id"]: 2}, {made["id"]: 2})
    assert (rows[0]["source"], rows[0]["policies"]) == ("127.0.0.1", ["operator"])
    assert len(json.loads(denied.stdout)["items"]) == 1
    assert (table.exit_code, sound.exit_code, broken.exit_code) == (0, 0, 1)
    assert json.loads(broken.stdout)["brokenAt"] == 2  # X26
