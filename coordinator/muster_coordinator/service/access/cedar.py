"""Decisions by Cedar: the schema of what policies may speak of, policies with names, and what they say to a call.

Deny wins, and what nothing permits is denied. A policy that cannot be judged, since its arithmetic runs over, denies:
Cedar itself would leave it out, and what it was to forbid would be open. Source: the Cedar policy language, version 4.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, cast

import cedarpy

from muster_coordinator.service.access.actions import ACTIONS, Action
from muster_coordinator.service.access.caller import LOCAL, ROOT, Caller, Resource
from muster_coordinator.service.access.weight import Weight
from muster_shared.codec import dumps, loads

_KEPT_MAX: Final = 8_192  # decisions that are remembered: a large fleet's nodes, twice each
_NUMBER: Final = "#"  # parts the name of a policy from the number of a statement in it

BY_CONFIGURATION: Final = "(the configuration)"
"""Stands for a policy where none is asked."""

_KEYS: Final = frozenset({"compute:policy:list", "compute:policy:read", "compute:policy:remove", "compute:policy:test"})
_WITH_KEYS: Final = frozenset({ROOT, LOCAL})
# A policy that forbids everything is a slip of the pen: whoever holds the configuration can take it back.

_ENTITIES: Final = """
entity Role;
entity Tenant;
entity User in [Role, Tenant] = { name: String, tenant?: String };
entity Service in [Role] = { name: String };
entity Pool = { name?: String };
entity Node in [Role, Pool] = { name?: String };
entity Reservation in [Pool, Tenant] = { tenant?: String };
entity Series in [Pool, Tenant] = { tenant?: String };
entity Muster;
type Weight = {
  gpuCount: Long, gangSize: Long, gpuEquivalentMilli: Long, duration: Long, start: Long, binding: String, spot: Bool
};
"""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy as somebody wrote it: one statement or several, under one name."""

    name: str
    text: str
    is_shipped: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policies say."""

    is_allowed: bool
    policies: tuple[str, ...] = ()  # names of those that decided; none where nothing permits
    errors: tuple[str, ...] = ()  # of policies that could not be judged: it is denied for that


@cache
def schema_text() -> str:
    """Return what policies may speak of, in Cedar's own words."""
    groups = sorted({group for action in ACTIONS.values() for group in action.groups})
    declared = ", ".join(f'"{group}"' for group in groups)
    return "\n".join([_ENTITIES, f"action {declared};", *map(_declared, ACTIONS.values())])


def _declared(action: Action) -> str:
    groups = ", ".join(f'"{group}"' for group in action.groups)
    principals = "Node" if action.kind == "node" else "User, Service"
    context = "Weight" if action.is_weighed else "{}"
    applies = f"principal: [{principals}], resource: [{', '.join(_subjects(action))}], context: {context}"
    return f'action "{action.name}" in [{groups}] appliesTo {{ {applies} }};'


def _subjects(action: Action) -> Sequence[str]:
    # What is not there is about nothing that has attributes.
    return (action.subject,) if action.is_weighed or action.subject == "Muster" else (action.subject, "Muster")


@cache
def _schema() -> cedarpy.Schema:
    return cedarpy.Schema.from_str(schema_text())


def faults(text: str) -> list[str]:
    """Return what is wrong with a policy as somebody wrote it; nothing where it can be used."""
    try:
        static = _static(text)
    except ValueError as error:
        return [str(error)]
    if not static:
        return ["there is no statement in it: write permit (...) or forbid (...)"]
    return [error.error for error in cedarpy.validate_policies(text, _schema()).errors]  # pyright: ignore[reportUnknownMemberType] - its dicts are bare


def _static(text: str) -> Mapping[str, Any]:
    document: dict[str, Any] = loads(cedarpy.policies_to_json_str(text))
    if document.get("templates"):
        raise ValueError("it is a template: write whom and what it is about instead of ?principal and ?resource")
    return cast("Mapping[str, Any]", document["staticPolicies"])


@cache
def shipped() -> tuple[NamedPolicy, ...]:
    """Return the policies that come with the program."""
    folder = files("muster_coordinator") / "service" / "access" / "shipped"
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".cedar")), key=lambda one: one.name)
    return tuple(NamedPolicy(one.name.removesuffix(".cedar"), one.read_text(), is_shipped=True) for one in found)


class Policies:
    """All policies at one version. Decisions on calls that weigh nothing are remembered as long as it stands."""

    def __init__(self, version: int, added: Iterable[NamedPolicy] = ()) -> None:
        """Take in the policies that operators have added, beside the shipped ones.

        Args:
            version: Rises with every change.
            added: Each of which `faults` has found nothing wrong with.
        """
        self.version: Final = version
        self.added: Final = tuple(added)
        statements = {
            f"{policy.name}{_NUMBER}{number}": statement
            for policy in (*shipped(), *self.added)
            for number, statement in enumerate(_static(policy.text).values(), 1)
        }
        document: dict[str, Any] = {"templates": {}, "staticPolicies": statements, "templateLinks": []}
        self._set = cedarpy.PolicySet.from_json_str(dumps(document).decode())
        self._kept: dict[tuple[Caller, str, Resource], Decision] = {}
        self._lock = threading.Lock()  # bodies run in threads

    def decide(self, caller: Caller, action: str, resource: Resource, weight: Weight | None = None) -> Decision:
        """Tell whether somebody may do something. An action that nobody knows is denied."""
        if action not in ACTIONS:
            return Decision(is_allowed=False, errors=(f"there is no action {action!r}",))
        if caller in _WITH_KEYS and action in _KEYS:
            return Decision(is_allowed=True, policies=(BY_CONFIGURATION,))
        if weight is not None:
            return self._decided(caller, action, resource, weight)
        key = (caller, action, resource)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._decided(caller, action, resource, None)
            with self._lock:
                if len(self._kept) >= _KEPT_MAX:
                    self._kept.clear()
                self._kept[key] = kept
        return kept

    def _decided(self, caller: Caller, action: str, resource: Resource, weight: Weight | None) -> Decision:
        entities = {(one["uid"]["type"], one["uid"]["id"]): one for one in resource.entities()}
        entities |= {(one["uid"]["type"], one["uid"]["id"]): one for one in caller.entities()}
        request: dict[str, Any] = {
            "principal": caller.uid,
            "action": {"type": "Action", "id": action},
            "resource": resource.uid,
            "context": {} if weight is None else weight.context(),
        }
        answer = cedarpy.is_authorized(request, self._set, list(entities.values()), _schema())  # pyright: ignore[reportUnknownMemberType] - its dicts are bare
        told = answer.diagnostics
        names = dict.fromkeys(reason.partition(_NUMBER)[0] for reason in told.reasons)
        errors = tuple(map(str, told.errors))
        if answer.allowed and errors:
            return Decision(is_allowed=False, errors=errors)
        return Decision(answer.allowed, tuple(sorted(names)), errors)
