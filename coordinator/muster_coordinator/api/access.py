"""Who may call what: nodes by their own credential, people by the coordinator's token or from the same machine."""

from collections.abc import Mapping

from muster_coordinator.api.operation import Authorize, Operation, Principal
from muster_coordinator.service.nodes import join
from muster_coordinator.store.engine import Database
from muster_shared.errors import Code, Problem


def authorizer(database: Database, api_token: str | None, metrics_token: str | None = None) -> Authorize:
    """Return the check that every call passes first.

    Args:
        database: Where the nodes' credentials are.
        api_token: What people and programs must show. None only where the coordinator listens on loopback: the
            configuration refuses anything else.
        metrics_token: Good for the metrics alone, so that a scraper need not hold a token that can do more.
    """

    async def authorize(operation: Operation, token: str | None, path: Mapping[str, str]) -> Principal:
        match operation.audience:
            case "public":
                return Principal("public")
            case "node":
                return await _node(database, token, path["id"])
            case "scraper" if metrics_token is not None and join.is_same_secret(token or "", metrics_token):
                return Principal("scraper")
            case role:
                if api_token is not None and not join.is_same_secret(token or "", api_token):
                    raise Problem(
                        Code.UNAUTHENTICATED, "show the coordinator's API token: set MUSTER_TOKEN, or pass --token"
                    )
                return Principal(role)

    return authorize


async def _node(database: Database, token: str | None, node_id: str) -> Principal:
    found = None if token is None else await database.read(join.node_of_token, token)
    if found is None:
        raise Problem(Code.UNAUTHENTICATED, "no node has this credential: register again")
    if found != node_id:
        raise Problem(Code.FORBIDDEN, "a node's credential is good for its own routes only")
    return Principal("node", found)
