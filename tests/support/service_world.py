"""A small world for the services: one coordinator or two, scripted agents, and a clock that moves when told."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, func, select

from muster_coordinator.api.admission import created
from muster_coordinator.api.services import Services
from muster_coordinator.api.turns import Turns
from muster_coordinator.clock import Moment
from muster_coordinator.loops.pools import PoolPass
from muster_coordinator.loops.revs import Revs
from muster_coordinator.notifier import Notifier
from muster_coordinator.service import look
from muster_coordinator.service.bodies import DeviceRequest, GangRequest, ReservationRequest, ReservationView
from muster_coordinator.service.changes import cancel as change
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.nodes import desired, join, operate
from muster_coordinator.service.nodes.report import report
from muster_coordinator.store.engine import Database
from muster_coordinator.store.tables import EVENT
from muster_shared.codec import loads
from muster_shared.wire import FABRIC_DOMAIN, DesiredState, Registration, Report, ReportAnswer
from tests.support.coordinator import Rows, door, rows
from tests.support.coordinator_agent import ScriptedAgent

P = ParamSpec("P")
R = TypeVar("R")

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
START_MS = 1_800_000_000_000
_BEATS_MAX = 12  # a gang needs four to come to rest


class WorldClock:
    """Time stands still until a test moves it; chance is a seed's."""

    def __init__(self, ms: int = START_MS, seed: int = 0) -> None:
        self.ms = ms
        self._chance = Random(seed)
        self._secrets = 0

    def moment(self) -> Moment:
        return Moment(self.ms, self._chance)

    def new_secret(self) -> str:
        self._secrets += 1
        return f"secret-{self._secrets:026d}"


def asks(
    size: int = 1,
    *,
    gpus: int = 8,
    same: str | None = FABRIC_DOMAIN,
    start: str | int | None = None,
    duration: str = "1h",
    tenant: str = "acme",
    key: str | None = None,
    **others: Any,
) -> ReservationRequest:
    """Write a request: `size` nodes of one fabric that each give `gpus`, for an hour from now."""
    return ReservationRequest(
        tenant_id=tenant,
        devices=[DeviceRequest(count=gpus)],
        gang=GangRequest(size=size, topology_key=same if size > 1 else None),
        start=start,
        duration=None if "end" in others else duration,
        idempotency_key=key,
        **others,
    )


def start_of(view: ReservationView) -> int:
    """Return when a reservation starts, ms UTC."""
    assert view.start is not None, "every reservation is stored with its start"
    return view.start


def end_of(view: ReservationView) -> int:
    """Return when a reservation ends, ms UTC."""
    return start_of(view) + view.duration


class Coordinator:
    """One process: its own database door and memory. Losing it loses nothing else."""

    def __init__(self, url: str, clock: WorldClock, holder: str, opener: Callable[[str], Database] = door) -> None:
        self.database = opener(url)
        self.clock = clock
        self.revs = Revs(self.database)
        self.index = PoolIndex()
        self.services = Services(
            self.database, clock, Notifier(), Notifier(), Notifier(), self.revs, self.index, Turns(), None
        )
        self.passes = PoolPass(self.database, clock, self.services.changed, self.index, holder)

    async def write(
        self, body: Callable[Concatenate[Connection, Moment, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a transaction body now."""
        return await self.database.write(body, self.clock.moment(), *args, **kwargs)

    async def reserve(self, request: ReservationRequest) -> ReservationView:
        """Do what the API does for a create."""
        return await created(self.services, request)

    async def get(self, reservation_id: str) -> ReservationView:
        return await self.database.read(look.reservation, reservation_id)

    async def cancel(self, reservation_id: str) -> ReservationView:
        await self.write(change.cancel, reservation_id, self.index)
        return await self.get(reservation_id)

    async def release(self, reservation_id: str) -> ReservationView:
        await self.write(change.release, reservation_id, self.index)
        return await self.get(reservation_id)

    async def operate(
        self, body: Callable[Concatenate[Connection, Moment, P], tuple[str, ...]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Do what the API does for an operator's order."""
        await self.services.advance_all(await self.write(body, *args, **kwargs))

    async def rev_of(self, node_id: str) -> int:
        return await self.database.read(desired.desired_rev, node_id)

    async def desired_of(self, node_id: str) -> DesiredState:
        return await self.write(desired.desired, node_id)

    async def take_report(self, node_id: str, sent: Report) -> ReportAnswer:
        heard = await self.write(report, node_id, sent)
        await self.services.advance_heard(heard.reservation_ids)
        return heard.answer


class World:
    """A coordinator, its agents, and the time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = WorldClock()
        self.coordinator = Coordinator(url, self.clock, "first")
        self.agents: dict[str, ScriptedAgent] = {}
        self._restarts = 0

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.clock.ms

    async def beat(self) -> None:
        """Let every agent take its turn, then the background pass once."""
        for agent in list(self.agents.values()):
            await agent.turn()
        await self.coordinator.passes.run_once()

    async def settle(self) -> None:
        """Beat until nothing happens any more; the clock stands still."""
        for _ in range(_BEATS_MAX):
            before = await self.count_events()
            await self.beat()
            if await self.count_events() == before and not any(map(_is_busy, self.agents.values())):
                return
        raise RuntimeError("the world does not come to rest")

    async def wait(self, ms: int) -> None:
        """Let time pass at once, as if nobody had looked at the clock meanwhile, then settle."""
        self.clock.ms += ms
        await self.settle()

    async def until(self, ms: int) -> None:
        """Move the clock to an instant, then settle."""
        await self.wait(ms - self.clock.ms)

    # --- who takes part --------------------------------------------------------------------------------------------

    async def join(
        self, name: str, *, fabric: str | None = None, gpus: int = 8, pool: str | None = None
    ) -> ScriptedAgent:
        """Let a node register and report."""
        registration = Registration(name=name, machine_id=f"machine-{name}", agent_version="1", pool=pool)
        credential = await self.coordinator.write(join.register, registration, self.clock.new_secret())
        agent = ScriptedAgent(name, credential.node_id, _Through(self), gpus=gpus, fabric=fabric)
        self.agents[name] = agent
        await agent.turn()
        return agent

    async def join_all(self, names: str, *, fabric: str | None = None, gpus: int = 8) -> list[ScriptedAgent]:
        """Let several nodes join: names with blanks between them."""
        return [await self.join(name, fabric=fabric, gpus=gpus) for name in names.split()]

    async def restart(self, opener: Callable[[str], Database] = door) -> None:
        """Kill the coordinator and start another on the same database."""
        await self.coordinator.database.close()
        self._restarts += 1
        self.coordinator = Coordinator(self.url, self.clock, f"restart-{self._restarts}", opener)

    # --- what tenants and operators do -----------------------------------------------------------------------------

    async def reserve(self, request: ReservationRequest) -> ReservationView:
        return await self.coordinator.reserve(request)

    async def get(self, reservation_id: str) -> ReservationView:
        return await self.coordinator.get(reservation_id)

    async def cordon(self, agent: ScriptedAgent) -> None:
        await self.coordinator.operate(operate.set_intent, agent.node_id, "cordoned", None)

    async def uncordon(self, agent: ScriptedAgent) -> None:
        await self.coordinator.operate(operate.set_intent, agent.node_id, "schedulable", None)

    async def label(self, agent: ScriptedAgent, **labels: str | None) -> None:
        await self.coordinator.operate(operate.set_labels, agent.node_id, labels)

    # --- what can be seen ------------------------------------------------------------------------------------------

    async def state(self, reservation_id: str) -> str:
        return (await self.get(reservation_id)).state

    async def nodes_of(self, reservation_id: str) -> str:
        """Return the names of a reservation's nodes, sorted, with blanks between them."""
        return " ".join(sorted(member.node_name for member in (await self.get(reservation_id)).members))

    async def binds(self, reservation_id: str) -> dict[str, str | None]:
        """Return the bind state of each member by the name of its node."""
        return {member.node_name: member.bind_state for member in (await self.get(reservation_id)).members}

    async def story(self, subject: str) -> list[str]:
        """Return the types of what happened to a reservation or node, without the prefix, in order."""
        wanted = select(EVENT.c.type).where(EVENT.c.subject == subject).order_by(EVENT.c.version)
        kinds = await self.coordinator.database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [str(kind).partition(".")[2] for kind in kinds]

    async def told(self, subject: str, kind: str) -> list[dict[str, Any]]:
        """Return what the events of one type say about a subject, in order."""
        wanted = select(EVENT.c.data).where(EVENT.c.subject == subject, EVENT.c.type == kind).order_by(EVENT.c.version)
        data = await self.coordinator.database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [loads(one) for one in data]

    async def count_events(self) -> int:
        counted = select(func.count()).select_from(EVENT)
        return int(await self.coordinator.database.read(lambda connection: connection.execute(counted).scalar_one()))

    async def rows(self) -> Rows:
        """Return everything that is stored."""
        return await self.coordinator.database.read(rows)


class _Through:
    """Agents talk to whoever is the coordinator now."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def rev_of(self, node_id: str) -> int:
        return await self._world.coordinator.rev_of(node_id)

    async def desired_of(self, node_id: str) -> DesiredState:
        return await self._world.coordinator.desired_of(node_id)

    async def take_report(self, node_id: str, sent: Report) -> ReportAnswer:
        return await self._world.coordinator.take_report(node_id, sent)


def _is_busy(agent: ScriptedAgent) -> bool:
    return agent.is_up and any(
        (state == "unbinding" and agent.lets_go) or (state == "binding" and agent.confirms and agent.refusal is None)
        for _, state in agent.has.values()
    )


@asynccontextmanager
async def world_on(url: str, policy: Mapping[str, int] | None = None) -> AsyncIterator[World]:
    """Open a world on a migrated, empty database."""
    world = World(url)
    try:
        await world.coordinator.write(operate.prepare, "default", policy)
        await world.coordinator.passes.run_once()  # its epoch begins here
        yield world
    finally:
        await world.coordinator.database.close()
