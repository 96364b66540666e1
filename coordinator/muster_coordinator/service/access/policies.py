"""Policies that operators add to the shipped ones, and the question what all of them would say."""

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from muster_coordinator.clock import Moment
from muster_coordinator.service.access.actions import ACTIONS
from muster_coordinator.service.access.bodies import PolicyAnswer, PolicyQuestion, PolicyRequest, PolicyView
from muster_coordinator.service.access.book import AccessBook, access_changed
from muster_coordinator.service.access.caller import WHOLE, Caller, Resource
from muster_coordinator.service.access.cedar import Decision, NamedPolicy, Policies, faults, shipped
from muster_coordinator.service.access.weight import Weight
from muster_coordinator.service.when import instant, length
from muster_coordinator.store import commit
from muster_coordinator.store.commit import Fact
from muster_coordinator.store.ledger_tables import ACCESS_POLICY
from muster_coordinator.store.tables import CLUSTER, EVENT
from muster_shared.devices import MILLI_PER_GPU
from muster_shared.errors import Code, FieldError, Problem, invalid

_FAULTS_MAX = 5  # one mistake is told for every action that it concerns
_ADDED_MAX = 200  # every decision looks at all of them


def add(connection: Connection, at: Moment, asked: PolicyRequest) -> PolicyView:
    """Add a policy, or give the one of that name another text.

    Raises:
        Problem: `INVALID_INPUT` for what is no policy, with what is wrong; `CONFLICT` for the name of a shipped one.
    """
    _refuse_faults(asked.text)
    if asked.name in {one.name for one in shipped()}:
        raise Problem(Code.CONFLICT, f"{asked.name!r} is the name of a shipped policy: choose another")
    connection.execute(select(CLUSTER.c.id).with_for_update()).all()  # one after the other
    former = _row(connection, asked.name)
    if former is not None and former["text"] == asked.text:
        return _view(former)
    if former is None:
        if len(list(connection.execute(select(ACCESS_POLICY.c.name)))) >= _ADDED_MAX:
            raise Problem(Code.CONFLICT, f"there are {_ADDED_MAX} policies; remove one that nobody needs first")
        version = _next_version(connection, asked.name)
        row = {"name": asked.name, "text": asked.text, "version": version, "changed_ms": at.ms}
        connection.execute(insert(ACCESS_POLICY).values(row))
    else:
        version = former["version"] + 1
        mine = update(ACCESS_POLICY).where(ACCESS_POLICY.c.name == asked.name)
        connection.execute(mine.values(text=asked.text, version=version, changed_ms=at.ms))
    fact = Fact("policy.changed" if former else "policy.added", {"name": asked.name, "text": asked.text})
    _tell(connection, at, asked.name, version, fact)
    return PolicyView(name=asked.name, text=asked.text, shipped=False, version=version, changed=at.ms)


def remove(connection: Connection, at: Moment, name: str, reason: str | None) -> None:
    """Take a policy back; the event keeps its text.

    Raises:
        Problem: `NOT_FOUND`; `CONFLICT` for a shipped one.
    """
    if name in {one.name for one in shipped()}:
        raise Problem(Code.CONFLICT, f"{name!r} comes with the program; add one that forbids, which outweighs it")
    connection.execute(select(CLUSTER.c.id).with_for_update()).all()
    row = _row(connection, name)
    if row is None:
        raise _missing(name)
    connection.execute(delete(ACCESS_POLICY).where(ACCESS_POLICY.c.name == name))
    fact = Fact("policy.removed", {"name": name, "text": row["text"], "reason": reason})
    _tell(connection, at, name, row["version"] + 1, fact)


def listed(connection: Connection) -> list[PolicyView]:
    """List the policies that operators have added, then the shipped ones, each by name."""
    rows = connection.execute(select(ACCESS_POLICY).order_by(ACCESS_POLICY.c.name)).mappings()
    return [*(_view(row) for row in rows), *map(_shipped_view, shipped())]


def shown(connection: Connection, name: str) -> PolicyView:
    """Show one policy.

    Raises:
        Problem: `NOT_FOUND`.
    """
    found = next((view for view in listed(connection) if view.name == name), None)
    if found is None:
        raise _missing(name)
    return found


def test(connection: Connection, at: Moment, asked: PolicyQuestion, book: AccessBook) -> PolicyAnswer:
    """Tell what the policies say to a call that nobody makes.

    Raises:
        Problem: `INVALID_INPUT` for an action that is none, or a text that is no policy.
    """
    action = ACTIONS.get(asked.action)
    if action is None:
        raise invalid("action", f"there is no {asked.action!r}; there are {', '.join(sorted(ACTIONS))}")
    policies = book.current(connection).policies
    if asked.text is not None:
        _refuse_faults(asked.text)
        policies = Policies(policies.version, [*policies.added, NamedPolicy("(the given text)", asked.text)])
    caller = Caller("User", "somebody", "somebody", tuple(asked.roles), asked.tenant_id)
    weight = _weight(asked, at.ms) if action.is_weighed else None
    resource = WHOLE
    if action.subject == "Pool" and asked.pool is not None:
        resource = Resource("Pool", asked.pool, name=asked.pool)
    elif action.subject in {"Reservation", "Series"}:
        resource = Resource(action.subject, "something", asked.pool, asked.owner or asked.tenant_id)
    decision = policies.decide(caller, action.name, resource, weight)
    return PolicyAnswer(
        allowed=decision.is_allowed,
        policies=list(decision.policies),
        errors=list(decision.errors),
        context={} if weight is None else weight.context(),
        explanation=_explained(decision, action.name),
    )


def _explained(decision: Decision, action: str) -> str:
    named = ", ".join(decision.policies)
    if decision.is_allowed:
        return f"{action} is permitted by {named}, and nothing forbids it"
    if named:
        return f"{action} is forbidden by {named}"
    if decision.errors:
        return f"{action} is denied, since a policy could not be judged: {decision.errors[0]}"
    return f"no policy permits {action}, so it is denied"


def _weight(asked: PolicyQuestion, now_ms: int) -> Weight:
    gpus = asked.gpus * asked.gang
    milli = asked.gpu_equivalent_milli
    return Weight(
        gpu_count=gpus,
        gang_size=asked.gang,
        gpu_equivalent_milli=gpus * MILLI_PER_GPU if milli is None else milli,
        duration_ms=length("duration", asked.duration),
        start_ms=instant("start", asked.start, now_ms),
        binding=asked.binding,
        spot=asked.spot,
    )


def _refuse_faults(text: str) -> None:
    found = faults(text)[:_FAULTS_MAX]
    if found:
        raise Problem(Code.INVALID_INPUT, f"text: {found[0]}", tuple(FieldError("text", fault) for fault in found))


def _tell(connection: Connection, at: Moment, name: str, version: int, fact: Fact) -> None:
    access_changed(connection)
    commit.emit(connection, at, fact, subject=_subject(name), version=version, pool_id=None)


def _next_version(connection: Connection, name: str) -> int:
    """Count on where an earlier policy of this name has left off: no version of a subject comes twice."""
    known = select(EVENT.c.version).where(EVENT.c.subject == _subject(name)).order_by(EVENT.c.version.desc()).limit(1)
    return (connection.execute(known).scalar() or 0) + 1


def _subject(name: str) -> str:
    return f"policy:{name}"


def _row(connection: Connection, name: str) -> RowMapping | None:
    return connection.execute(select(ACCESS_POLICY).where(ACCESS_POLICY.c.name == name)).mappings().first()


def _missing(name: str) -> Problem:
    return Problem(Code.NOT_FOUND, f"there is no policy {name!r}; `muster policy` lists them")


def _view(row: RowMapping) -> PolicyView:
    return PolicyView(
        name=row["name"], text=row["text"], shipped=False, version=row["version"], changed=row["changed_ms"]
    )


def _shipped_view(policy: NamedPolicy) -> PolicyView:
    return PolicyView(name=policy.name, text=policy.text, shipped=True)
