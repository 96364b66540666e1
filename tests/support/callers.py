"""Callers of every role on a coordinator whose configuration has a token, and things that are theirs or are not."""

from dataclasses import dataclass
from typing import Any

from tests.support.coordinator_api import Api

ROOT = "root-token-of-the-configuration"
ROLES: dict[str, dict[str, Any]] = {
    "operator": {"roles": ["operator"]},
    "tenant": {"roles": ["tenant"], "tenantId": "acme"},
    "stranger": {"roles": ["tenant"], "tenantId": "other"},
    "auditor": {"roles": ["auditor"]},
    "reader": {"roles": ["read-only"]},
    "reader of acme": {"roles": ["read-only"], "tenantId": "acme"},
    "metrics": {"roles": ["metrics"]},
}
CREATE: dict[str, Any] = {"devices": [{"count": 1}], "duration": "1h"}
SERIES: dict[str, Any] = {"devices": [{"count": 1}], "duration": "1h", "rule": "FREQ=DAILY;COUNT=3", "at": "08:00"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Callers:
    """Whoever calls a coordinator."""

    api: Api
    tokens: dict[str, str]  # by role

    async def call(self, role: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call as somebody; as nobody where no role is given."""
        headers = {} if role is None else bearer(self.tokens[role])
        if path == "/metrics":
            async with self.api.client.get(path, headers=headers) as answer:
                return answer.status, await answer.text()
        return await self.api.call(method, path, body, **headers)

    async def made(self, role: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create something, and return it."""
        status, document = await self.call(role, "POST", path, body)
        assert status == 201, document
        return dict(document)


async def callers_of(api: Api) -> Callers:
    """Give everybody a token."""
    tokens = {"root": ROOT}
    callers = Callers(api, tokens)
    for role, asked in ROLES.items():
        made = await callers.made("root", "/v1/tokens", {"name": role.replace(" ", "-"), **asked})
        tokens[role] = made["token"]
    return callers
