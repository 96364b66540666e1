"""Every route of the document by every role, on what is theirs and on what is not: no route is without a rule."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio

from muster_coordinator.service.access.actions import ACTIONS, PUBLIC
from muster_shared.codec import encode
from tests.support.callers import CREATE, ROLES, ROOT, SERIES, Callers, callers_of
from tests.support.coordinator_api import Api, api_on

OPERATOR = {"operator"}
OWNER = {"operator", "tenant"}
STAFF = {"operator", "auditor"}
MACHINES = {"operator", "auditor", "reader"}
SEEN = {"operator", "tenant", "auditor", "reader", "reader of acme"}
NODE = {"node"}
RULES = {
    **dict.fromkeys(("reservation:list", "reservation:read", "series:list", "series:read", "event:list"), SEEN),
    **dict.fromkeys(("pool:list", "pool:read", "capacity:read"), SEEN),
    **dict.fromkeys(("node:list", "node:read", "maintenance:list", "maintenance:read"), MACHINES),
    **dict.fromkeys(("webhook:list", "webhook:read", "webhook:deliveries", "token:list", "join-token:list"), STAFF),
    **dict.fromkeys(("policy:list", "policy:read", "policy:test", "audit:read", "audit:verify"), STAFF),
    **dict.fromkeys(("quota:list", "usage:list"), SEEN),
    "doctor:read": STAFF,
    **dict.fromkeys(("quota:limit", "quota:lift"), OPERATOR),
    "metrics:read": {*STAFF, "metrics"},
    **dict.fromkeys(("reservation:create", "reservation:extend", "reservation:shrink", "reservation:repair"), OWNER),
    **dict.fromkeys(("reservation:cancel", "reservation:release", "capacity:preview"), OWNER),
    **dict.fromkeys(("series:create", "series:change", "series:skip", "series:unskip", "series:cancel"), OWNER),
    **dict.fromkeys(("node:cordon", "node:uncordon", "node:drain", "node:fence", "node:label", "node:cut"), OPERATOR),
    **dict.fromkeys(("node:remove", "node:clear-holds", "pool:create", "capacity:whatif"), OPERATOR),
    **dict.fromkeys(("maintenance:create", "maintenance:preview", "maintenance:cancel", "maintenance:end"), OPERATOR),
    **dict.fromkeys(("webhook:create", "webhook:remove", "webhook:test", "webhook:rotate", "webhook:settle"), OPERATOR),
    **dict.fromkeys(("webhook:enable", "webhook:disable", "webhook:replay"), OPERATOR),
    **dict.fromkeys(("token:create", "token:revoke", "policy:add", "policy:remove"), OPERATOR),
    **dict.fromkeys(("join-token:create", "join-token:revoke"), OPERATOR),
    **dict.fromkeys(("node:report", "node:desired"), NODE),
}
"""Who may take which action, written down a second time: not read from the policies that it checks."""

BODIES: dict[str, dict[str, Any]] = {
    "compute:reservation:create": CREATE,
    "compute:capacity:preview": CREATE,
    "compute:series:create": SERIES,
    "compute:reservation:extend": {"dryRun": True, "by": "1h"},
    "compute:reservation:shrink": {"dryRun": True, "to": 1},
    "compute:series:change": {"duration": "2h"},
}
REFUSED = {401, 403}
TENANTS = {role: asked["tenantId"] for role, asked in ROLES.items() if "tenantId" in asked}


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    action: str
    takes_body: bool

    @property
    def noun(self) -> str:
        return self.path.split("/")[2] if self.path.startswith("/v1/") else ""


@dataclass(frozen=True)
class Things:
    """Ids of what belongs to a tenant, and of the node."""

    of_acme: dict[str, str]
    of_other: dict[str, str]
    occurrence: int
    node: dict[str, str]


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_on(str(tmp_path / "muster.db"), api_token=ROOT) as api:
        yield api


async def routes(api: Api) -> list[Route]:
    _, document = await api.call("GET", "/v1/openapi.json")
    return [
        Route(method.upper(), path, operation["x-action"], "requestBody" in operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def things(callers: Callers) -> Things:
    node = await callers.api.join("a1")
    found: dict[str, dict[str, str]] = {}
    occurrence = 0
    for tenant in ("acme", "other"):
        one = await callers.made("root", "/v1/reservations", {**CREATE, "tenantId": tenant, "start": "+5h"})
        series = await callers.made("root", "/v1/series", {**SERIES, "tenantId": tenant})
        occurrence = series["occurrences"][-1]["occurrence"]
        found[tenant] = {"reservations": one["id"], "series": series["id"]}
    credential = callers.api.tokens[node.node_id]
    callers.tokens["node"] = credential
    return Things(found["acme"], found["other"], occurrence, {"nodes": node.node_id})


def body_of(route: Route, known: Things, tenant: str) -> dict[str, Any] | None:
    if not route.takes_body:
        return None
    body = dict(BODIES.get(route.action, {}))
    if route.action.endswith((":create", ":preview")) and route.noun in {"reservations", "series", "capacity"}:
        body["tenantId"] = tenant
    if route.action == "compute:series:change":
        body["occurrence"] = known.occurrence
    return body


async def status_of(callers: Callers, role: str | None, route: Route, known: Things, *, own: bool) -> int:
    ids = {**known.node, **(known.of_acme if own else known.of_other)}
    path = route.path.replace("{id}", ids.get(route.noun, "nothing"))
    body = body_of(route, known, "acme" if own else "other")
    status, _ = await callers.call(role, route.method, path, body)
    return status


def wanted(role: str | None, route: Route, *, own: bool) -> str:
    """Return what a caller is to be told: that they are let in, refused, or that nothing like that is there."""
    allowed = RULES[route.action.removeprefix("compute:")]  # a KeyError here is a route without a rule
    tenant = TENANTS.get(role or "")
    is_foreign = tenant is not None and tenant != ("acme" if own else "other")
    if is_foreign and route.noun in {"reservations", "series"} and "{id}" in route.path:
        return "missing"
    if ("tenant" if role == "stranger" else role) not in allowed:
        return "refused"
    names_tenant = route.action in {"compute:reservation:create", "compute:series:create", "compute:capacity:preview"}
    return "refused" if is_foreign and names_tenant else "let in"


def told(status: int, expected: str) -> str:
    if status in REFUSED:
        return "refused"
    return "missing" if status == 404 and expected == "missing" else "let in"


async def test_every_route_lets_in_whom_its_rule_names_and_nobody_else_x01(api: Api) -> None:
    callers = await callers_of(api)
    known = await things(callers)
    wrong: list[str] = []
    for route in await routes(api):
        if route.action in PUBLIC:
            continue
        for role in (*ROLES, "node", None):
            for own in (True, False):
                expected = wanted(role, route, own=own)
                status = await status_of(callers, role, route, known, own=own)
                if told(status, expected) != expected:
                    whose = "acme" if own else "other"
                    wrong.append(f"{role} {route.method} {route.path} of {whose}: {status}, not {expected}")

    assert wrong == []


async def test_each_operation_has_an_action_that_policies_know_and_each_action_an_operation(api: Api) -> None:
    found = {route.action for route in await routes(api)}

    assert found == {*ACTIONS, *PUBLIC}
    assert {name.removeprefix("compute:") for name in ACTIONS} == set(RULES)


async def test_each_call_that_changes_or_is_refused_to_change_is_one_row_of_the_audit_log(api: Api) -> None:
    callers = await callers_of(api)
    known = await things(callers)
    before = len(await audit_rows(api))
    calls = 0
    for route in await routes(api):
        action = ACTIONS.get(route.action)
        if action is None or action.kind != "change":
            continue
        for role in ("tenant", "auditor", "operator"):
            body = body_of(route, known, "acme") or {}
            calls += not body.get("dryRun", False)
            await status_of(callers, role, route, known, own=True)

    assert len(await audit_rows(api)) - before == calls
    await chained(callers)
    _, verdict = await callers.call("auditor", "GET", "/v1/audit/verify")
    assert (verdict["sound"], verdict["rows"], verdict["pending"]) == (True, before + calls, 0)


async def test_a_node_speaks_for_itself_alone_x10(api: Api) -> None:
    callers = await callers_of(api)
    await things(callers)
    other = await api.join("a2")
    report = encode(other.next_report())

    status, _ = await callers.call("node", "POST", f"/v1/nodes/{other.node_id}/report", report)

    assert status == 403


async def audit_rows(api: Api) -> list[tuple[Any, ...]]:
    return (await api.look())["audit"]


async def chained(callers: Callers) -> None:
    """Wait until the relay has chained everything."""
    async with asyncio.timeout(20):
        while (await callers.call("auditor", "GET", "/v1/audit/verify"))[1]["pending"]:  # noqa: ASYNC110 - no event of ours crosses HTTP
            await asyncio.sleep(0)  # the next look is a call of its own
