"""The whole HTTP API as one table."""

from typing import Final

from muster_coordinator.api.account_routes import ACCOUNT_OPERATIONS
from muster_coordinator.api.alert_routes import ALERT_OPERATIONS
from muster_coordinator.api.calendar_routes import CALENDAR_OPERATIONS
from muster_coordinator.api.capacity_routes import CAPACITY_OPERATIONS
from muster_coordinator.api.change_routes import CHANGES
from muster_coordinator.api.handlers import agents, events, health, nodes, reservations
from muster_coordinator.api.maintenance_routes import MAINTENANCE_OPERATIONS
from muster_coordinator.api.operation import Operation
from muster_coordinator.api.repair_routes import REPAIRS
from muster_coordinator.service.bodies import (
    NodeLabels,
    NodeSlots,
    NodeView,
    Page,
    PoolRequest,
    PoolView,
    PreviewView,
    Reason,
    ReservationRequest,
    ReservationView,
)
from muster_shared.errors import Code
from muster_shared.wire import REPORT_BYTES_MAX, Credential, DesiredState, Registration, Report, ReportAnswer

_MISSING: Final = (Code.NOT_FOUND,)
_REFUSED: Final = (Code.NOT_FOUND, Code.CONFLICT)

OPERATIONS: Final = (
    Operation("GET", "/healthz", "Is the process alive?", health.alive, answer=health.HealthView, audience="public"),
    Operation("GET", "/readyz", "Can it serve?", health.ready, answer=health.HealthView, audience="public"),
    Operation("GET", "/metrics", "How everything stands, for Prometheus", health.metrics, audience="scraper"),
    # --- reservations -------------------------------------------------------------------------------------------
    Operation(
        "POST",
        "/v1/reservations",
        "Reserve a gang, now or for a window",
        reservations.create,
        body=ReservationRequest,
        answer=ReservationView,
        status=201,
        errors=(Code.NOT_FOUND, Code.IDEMPOTENCY_MISMATCH, Code.QUOTA_EXCEEDED),
    ),
    Operation(
        "GET",
        "/v1/reservations",
        "List reservations",
        reservations.listed,
        query=reservations.ReservationQuery,
        answer=Page,
        errors=_MISSING,
    ),
    Operation(
        "GET",
        "/v1/reservations/{id}",
        "Show a reservation",
        reservations.shown,
        answer=ReservationView,
        errors=_MISSING,
    ),
    Operation(
        "POST",
        "/v1/reservations/{id}/cancel",
        "Cancel a reservation",
        reservations.cancelled,
        answer=ReservationView,
        errors=_REFUSED,
    ),
    Operation(
        "POST",
        "/v1/reservations/{id}/release",
        "Give devices back early",
        reservations.released,
        answer=ReservationView,
        errors=_REFUSED,
    ),
    Operation(
        "POST",
        "/v1/capacity/preview",
        "What would reserving this do now?",
        reservations.preview,
        body=ReservationRequest,
        answer=PreviewView,
        errors=_MISSING,
    ),
    *CHANGES,
    *REPAIRS,
    *CAPACITY_OPERATIONS,
    *ACCOUNT_OPERATIONS,
    # --- series -------------------------------------------------------------------------------------------------
    *CALENDAR_OPERATIONS,
    # --- nodes and pools ----------------------------------------------------------------------------------------
    Operation("GET", "/v1/nodes", "List nodes", nodes.listed, query=nodes.NodeQuery, answer=Page, errors=_MISSING),
    Operation("GET", "/v1/nodes/{id}", "Show a node", nodes.shown, answer=NodeView, errors=_MISSING),
    Operation(
        "POST",
        "/v1/nodes/{id}/uncordon",
        "Let new work in again",
        nodes.opened,
        body=Reason,
        answer=NodeView,
        errors=_MISSING,
        audience="operator",
    ),
    Operation(
        "POST",
        "/v1/nodes/{id}/cordon",
        "Keep new work off",
        nodes.cordoned,
        body=Reason,
        answer=NodeView,
        errors=_MISSING,
        audience="operator",
    ),
    Operation(
        "POST",
        "/v1/nodes/{id}/drain",
        "Empty a node",
        nodes.drained,
        body=Reason,
        answer=NodeView,
        errors=_MISSING,
        audience="operator",
    ),
    Operation(
        "POST",
        "/v1/nodes/{id}/fence",
        "Attest that a silent node holds nothing",
        nodes.fenced,
        body=Reason,
        answer=NodeView,
        errors=_REFUSED,
        audience="operator",
    ),
    Operation(
        "PUT",
        "/v1/nodes/{id}/labels",
        "Set operator labels",
        nodes.labelled,
        body=NodeLabels,
        answer=NodeView,
        errors=_MISSING,
        audience="operator",
    ),
    Operation(
        "PUT",
        "/v1/nodes/{id}/slots",
        "Cut GPUs into shares",
        nodes.cut,
        body=NodeSlots,
        answer=NodeView,
        errors=_REFUSED,
        audience="operator",
    ),
    Operation(
        "DELETE",
        "/v1/nodes/{id}",
        "Take a silent, empty node out for good",
        nodes.removed,
        query=nodes.RemovalQuery,
        errors=_REFUSED,
        audience="operator",
    ),
    Operation(
        "DELETE",
        "/v1/nodes/{id}/holds",
        "Declare a node's devices sound again",
        nodes.holds_cleared,
        query=nodes.HoldQuery,
        answer=NodeView,
        errors=_MISSING,
        audience="operator",
    ),
    Operation("GET", "/v1/pools", "List pools", nodes.pools, answer=Page),
    Operation("GET", "/v1/pools/{id}", "Show a pool", nodes.pool, answer=PoolView, errors=_MISSING),
    Operation(
        "POST",
        "/v1/pools",
        "Make a pool",
        nodes.pool_created,
        body=PoolRequest,
        answer=PoolView,
        status=201,
        errors=(Code.CONFLICT,),
        audience="operator",
    ),
    *MAINTENANCE_OPERATIONS,
    # --- events -------------------------------------------------------------------------------------------------
    Operation(
        "GET", "/v1/events", "What happened", events.listed, query=events.EventQuery, answer=Page, errors=_MISSING
    ),
    *ALERT_OPERATIONS,
    # --- agents -------------------------------------------------------------------------------------------------
    Operation(
        "POST",
        "/v1/nodes/register",
        "Join",
        agents.registered,
        body=Registration,
        answer=Credential,
        status=201,
        errors=_REFUSED,
        audience="public",  # the handler asks for the join token: nobody has a credential yet
    ),
    Operation(
        "POST",
        "/v1/nodes/{id}/report",
        "Report a node's whole state",
        agents.reported,
        body=Report,
        answer=ReportAnswer,
        errors=(Code.CONFLICT,),
        audience="node",
        max_body=REPORT_BYTES_MAX,
    ),
    Operation(
        "GET",
        "/v1/nodes/{id}/desired",
        "Wait for a node's desired state",
        agents.desired,
        query=agents.DesiredQuery,
        answer=DesiredState,
        audience="node",
    ),
)
