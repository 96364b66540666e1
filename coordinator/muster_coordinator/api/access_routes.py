"""The part of the API's table that is about who may do what: tokens, policies, and the audit log."""

from typing import Final

from muster_coordinator.api.handlers import access
from muster_coordinator.api.operation import Operation
from muster_coordinator.service.access.bodies import (
    PolicyAnswer,
    PolicyQuestion,
    PolicyRequest,
    PolicyView,
    TokenRequest,
    TokenSecret,
    TokenView,
    VerifiedView,
)
from muster_coordinator.service.bodies import Page, Reason
from muster_shared.errors import Code

_MISSING: Final = (Code.NOT_FOUND,)
_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

ACCESS_OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/tokens",
        "Make a token, shown this once",
        access.token_created,
        body=TokenRequest,
        answer=TokenSecret,
        status=201,
        errors=(Code.CONFLICT,),
        audience="operator",
        action="compute:token:create",
    ),
    Operation(
        "GET",
        "/v1/tokens",
        "List tokens",
        access.tokens_listed,
        query=access.TokenQuery,
        answer=Page,
        audience="operator",
        action="compute:token:list",
    ),
    Operation(
        "POST",
        "/v1/tokens/{id}/revoke",
        "End a token at once",
        access.token_revoked,
        body=Reason,
        answer=TokenView,
        errors=_REFUSED,
        audience="operator",
        action="compute:token:revoke",
    ),
    Operation(
        "POST",
        "/v1/policies",
        "Add a policy, or change one",
        access.policy_added,
        body=PolicyRequest,
        answer=PolicyView,
        status=201,
        errors=(Code.CONFLICT,),
        audience="operator",
        action="compute:policy:add",
    ),
    Operation(
        "GET",
        "/v1/policies",
        "List policies",
        access.policies_listed,
        answer=Page,
        audience="operator",
        action="compute:policy:list",
    ),
    Operation(
        "POST",
        "/v1/policies/test",
        "What would the policies say?",
        access.policy_tested,
        body=PolicyQuestion,
        answer=PolicyAnswer,
        audience="operator",
        action="compute:policy:test",
    ),
    Operation(
        "GET",
        "/v1/policies/{id}",
        "Show a policy",
        access.policy_shown,
        answer=PolicyView,
        errors=_MISSING,
        audience="operator",
        action="compute:policy:read",
    ),
    Operation(
        "DELETE",
        "/v1/policies/{id}",
        "Take a policy back",
        access.policy_removed,
        query=access.PolicyRemoval,
        errors=_REFUSED,
        audience="operator",
        action="compute:policy:remove",
    ),
    Operation(
        "GET",
        "/v1/audit",
        "Who has changed what, and who was refused",
        access.audit_listed,
        query=access.AuditQuery,
        answer=Page,
        audience="operator",
        action="compute:audit:read",
    ),
    Operation(
        "GET",
        "/v1/audit/verify",
        "Is the audit log as it was written?",
        access.audit_verified,
        answer=VerifiedView,
        audience="operator",
        action="compute:audit:verify",
    ),
)
