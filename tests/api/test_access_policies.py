"""Policies: what operators cap is capped in the transaction that grants it, and the refusal names the policy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.callers import ROOT, Callers, callers_of
from tests.support.coordinator_api import Api, api_on

CAP = """
forbid (principal in Role::"tenant", action in Action::"book", resource)
when { context.gpuCount > 8 };
"""
CAP_EQUIVALENT = """
forbid (principal in Role::"tenant", action in Action::"book", resource)
when { context.gpuEquivalentMilli > 8000 };
"""


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_on(str(tmp_path / "muster.db"), api_token=ROOT) as api:
        yield api


@pytest_asyncio.fixture
async def callers(api: Api) -> Callers:
    callers = await callers_of(api)
    for role in ("operator", "tenant"):
        await callers.call(role, "GET", "/v1/pools")  # their first use is noted
    return callers


async def cap(callers: Callers, text: str = CAP, name: str = "cap-8") -> None:
    await callers.made("operator", "/v1/policies", {"name": name, "text": text})


def asked(gpus: Any, size: Any, **others: Any) -> dict[str, Any]:
    return {
        "tenantId": "acme",
        "devices": [{"count": gpus}],
        "gang": {"size": size},
        "duration": "1h",
        "start": "+1h",
        **others,
    }


@pytest.mark.parametrize(("gpus", "size", "status"), [(8, 1, 201), (8, 2, 403), (4, 2, 201), (1, 9, 403), (1, 8, 201)])
async def test_a_cap_of_eight_counts_the_whole_gang_x02(callers: Callers, gpus: int, size: int, status: int) -> None:
    await cap(callers)
    before = await callers.api.rows()

    found, answer = await callers.call("tenant", "POST", "/v1/reservations", asked(gpus, size))
    foreseen, _ = await callers.call("tenant", "POST", "/v1/capacity/preview", asked(gpus, size))

    assert (found, foreseen) == (status, 200 if status == 201 else 403)
    if status == 403:
        assert answer["code"] == "FORBIDDEN"
        assert "'cap-8'" in answer["detail"]
        assert await callers.api.rows() == before


@pytest.mark.parametrize("size", [0, -1, True, "2", 2**31, 10**9])
async def test_a_size_that_is_none_never_comes_to_a_decision(callers: Callers, size: object) -> None:
    await cap(callers)

    status, answer = await callers.call("tenant", "POST", "/v1/reservations", asked(1, size))

    assert (status, answer["code"]) == (400, "INVALID_INPUT")


async def test_what_the_caller_says_of_its_weight_is_no_field_at_all(callers: Callers) -> None:
    await cap(callers)

    status, answer = await callers.call("tenant", "POST", "/v1/reservations", asked(8, 2, gpuCount=1))

    assert (status, answer["code"]) == (400, "INVALID_INPUT")


async def test_mig_instances_are_no_whole_gpus_but_have_an_equivalent(callers: Callers) -> None:
    await cap(callers)
    slices = asked(1, 1) | {"devices": [{"class": "mig", "count": 56, "profile": "3g.40gb"}]}
    uncapped, _ = await callers.call("tenant", "POST", "/v1/reservations", slices)
    await cap(callers, CAP_EQUIVALENT, "cap-equivalent")
    capped, answer = await callers.call("tenant", "POST", "/v1/reservations", slices)

    assert (uncapped, capped) == (201, 403)
    assert "gpuEquivalentMilli 24024" in answer["detail"]  # 56 times 429, three sevenths rounded up


async def test_an_extension_is_decided_anew_by_its_whole_length(callers: Callers) -> None:
    made = await callers.made("tenant", "/v1/reservations", asked(1, 1))
    text = 'forbid (principal, action in Action::"book", resource) when { context.duration > 7200000 };'
    await cap(callers, text, "two-hours")
    path = f"/v1/reservations/{made['id']}/extend"

    short, _ = await callers.call("tenant", "POST", path, {"by": "1h"})
    long, answer = await callers.call("tenant", "POST", path, {"by": "1h"})
    dry, _ = await callers.call("tenant", "POST", path, {"by": "1h", "dryRun": True})

    assert (short, long, dry) == (200, 403, 403)
    assert "'two-hours'" in answer["detail"]


async def test_a_gang_may_always_shrink_below_what_caps_bookings(callers: Callers) -> None:
    made = await callers.made("tenant", "/v1/reservations", asked(8, 4))
    await cap(callers)

    status, _ = await callers.call("tenant", "POST", f"/v1/reservations/{made['id']}/shrink", {"to": 2})

    assert status == 200


async def test_a_series_is_weighed_when_it_is_made(callers: Callers) -> None:
    await cap(callers)
    body = asked(8, 2) | {"rule": "FREQ=DAILY;COUNT=2", "at": "08:00"}
    del body["start"]

    status, answer = await callers.call("tenant", "POST", "/v1/series", body)

    assert (status, "'cap-8'" in answer["detail"]) == (403, True)


async def test_a_policy_may_name_a_pool_and_an_action_of_one_reservation(callers: Callers) -> None:
    made = await callers.made("tenant", "/v1/reservations", asked(1, 1))
    text = 'forbid (principal, action == Action::"compute:reservation:cancel", resource in Pool::"default");'
    await cap(callers, text, "keep")

    path = f"/v1/reservations/{made['id']}/cancel"
    found = [(await callers.call(role, "POST", path))[0] for role in ("tenant", "operator", "root")]

    assert found == [403, 403, 403]


async def test_a_policy_holds_from_the_next_call_on_until_it_is_removed(callers: Callers) -> None:
    found = []
    for step in ("", "added", "changed", "removed"):
        if step == "added":
            await cap(callers)
        elif step == "changed":
            await cap(callers, CAP.replace("> 8", "> 16"))
        elif step == "removed":
            await cap(callers)
            await callers.call("operator", "DELETE", "/v1/policies/cap-8")
        found.append((await callers.call("tenant", "POST", "/v1/reservations", asked(8, 2)))[0])

    assert found == [201, 403, 201, 201]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("permit (principal, action,", "unexpected end"),
        ("// nothing", "there is no statement in it"),
        ('permit (principal, action == Action::"compute:reservaton:create", resource);', "unrecognized action"),
        ("forbid (principal, action, resource) when { context.gpus > 8 };", "`gpus` in context"),
        ("permit (principal == ?principal, action, resource);", "template"),
    ],
)
async def test_what_is_no_policy_is_refused_with_what_is_wrong(callers: Callers, text: str, words: str) -> None:
    before = await callers.api.rows()

    status, answer = await callers.call("operator", "POST", "/v1/policies", {"name": "bad", "text": text})

    assert (status, answer["code"]) == (400, "INVALID_INPUT")
    assert words in answer["detail"]
    assert await callers.api.rows() == before


async def test_shipped_policies_are_shown_and_stay(callers: Callers) -> None:
    _, page = await callers.call("auditor", "GET", "/v1/policies")
    names = [one["name"] for one in page["items"]]
    changed, _ = await callers.call("operator", "POST", "/v1/policies", {"name": "tenant", "text": CAP})
    removed, _ = await callers.call("operator", "DELETE", "/v1/policies/tenant")

    assert names == ["auditor", "metrics", "node", "operator", "read-only", "tenant"]
    assert (changed, removed) == (409, 409)


async def test_a_question_is_answered_with_the_policies_that_decide(callers: Callers) -> None:
    question = {"action": "compute:reservation:create", "roles": ["tenant"], "tenantId": "acme", "gpus": 8}
    found = []
    for changed in ({}, {"gang": 2, "text": CAP}, {"owner": "other"}, {"roles": ["auditor"], "tenantId": None}):
        body = {key: value for key, value in (question | changed).items() if value is not None}
        _, answer = await callers.call("auditor", "POST", "/v1/policies/test", body)
        found.append((answer["allowed"], answer["policies"], answer["context"]["gpuCount"]))

    assert found == [
        (True, ["tenant"], 8), (False, ["(the given text)"], 16), (False, [], 8), (False, [], 8),
    ]  # fmt: skip


async def test_a_policy_that_cannot_be_judged_denies_and_is_named(callers: Callers) -> None:
    runs_over = 'forbid (principal, action in Action::"book", resource) when { context.duration * 9223372036854 > 1 };'
    await cap(callers, runs_over, "runs-over")

    status, answer = await callers.call("tenant", "POST", "/v1/reservations", asked(1, 1, duration="30d"))
    short, _ = await callers.call("tenant", "POST", "/v1/reservations", asked(1, 1))
    question = {"action": "compute:reservation:create", "roles": ["operator"], "duration": "30d"}
    _, tested = await callers.call("auditor", "POST", "/v1/policies/test", question)

    assert (status, short, tested["allowed"]) == (403, 403, False)
    assert "runs-over" in answer["detail"]
    assert "runs-over" in tested["explanation"]


async def test_whoever_holds_the_configuration_takes_back_what_locks_out_everybody(callers: Callers) -> None:
    await cap(callers, "forbid (principal, action, resource);", "slip")

    locked_out, _ = await callers.call("operator", "DELETE", "/v1/policies/slip")
    elsewhere, _ = await callers.call("root", "GET", "/v1/pools")
    listed, _ = await callers.call("root", "GET", "/v1/policies")
    removed, _ = await callers.call("root", "DELETE", "/v1/policies/slip")
    after, _ = await callers.call("operator", "GET", "/v1/pools")

    assert (locked_out, elsewhere, listed, removed, after) == (403, 403, 200, 204, 200)


async def test_one_that_is_forbidden_in_a_turn_of_many_spoils_it_for_nobody(callers: Callers) -> None:
    await cap(callers)

    wanted = [(1, 1), (8, 2), (2, 1), (8, 3), (1, 1)]
    answers = await asyncio.gather(*(callers.call("tenant", "POST", "/v1/reservations", asked(*one)) for one in wanted))

    assert [status for status, _ in answers] == [201, 403, 201, 403, 201]
