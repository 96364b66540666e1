"""Writes the figures as Prometheus reads them. No label has more values than there are pools, nodes, or words.

Source: the Prometheus text exposition format; naming by its best practices (base units, `_total` for counters).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import product
from typing import Final, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster_coordinator.clock import Clock
from muster_coordinator.core.model import Intent
from muster_coordinator.core.repair.brake import Mode
from muster_coordinator.metrics import Counts
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.outward.figures import Figures, PoolFigures, ReceiverFigures, figures
from muster_coordinator.service.outward.tally import Tally
from muster_coordinator.store.engine import Database

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
KEPT_MS: Final = 1_000  # two scrapers, or an impatient one, cost one look at the database
MODES: Final = tuple(mode for mode in get_args(Mode) if mode != "normal")
"""What the storm brake announces, from the mildest on."""

Pools = tuple[PoolFigures, ...]

_INTENTS: Final = get_args(Intent)
_REPAIRS: Final = {"repaired": "reservation.repaired", "failed": "reservation.repair_failed"}


class Exposition:
    """What a scrape is answered, kept for a second."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._one_look = asyncio.Lock()  # the tally is caught up by one reader at a time
        self._text = b""
        self._made_ms: int | None = None

    async def text(self, database: Database, clock: Clock, index: PoolIndex, counts: Counts) -> bytes:
        """Return all metrics, at most `KEPT_MS` old."""
        async with self._one_look:
            at = clock.moment()
            if self._made_ms is None or abs(at.ms - self._made_ms) >= KEPT_MS:
                found = await database.read(figures, at, index, self._tally)
                counts.look(asyncio.get_running_loop().time())
                # Thousands of series take a tenth of a second to write.
                self._text = await asyncio.to_thread(_written, found, counts.registry)
                self._made_ms = at.ms
            return self._text


class _Told(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _written(found: Figures, own: CollectorRegistry) -> bytes:
    stored = CollectorRegistry()
    stored.register(_Told(families(found)))
    return generate_latest(stored) + generate_latest(own)


def families(found: Figures) -> Iterator[Metric]:
    """Return what is stored as metrics."""
    build = _gauge("build_info", "Which version answers.", "version")
    build.add_metric((version("gpu-muster"),), 1)
    unpublished = _gauge("events_unpublished", "Events without a place in the stream yet.")
    unpublished.add_metric((), found.unpublished)
    yield from (build, unpublished)
    yield from _of_reservations(found.pools)
    yield from _of_nodes(found.pools)
    yield from _of_storms(found.pools)
    yield from _of_receivers(found.receivers)


def _of_reservations(pools: Pools) -> Iterator[Metric]:
    yield _each("pool_led", "Whether a coordinator runs the pool's background work.", pools, lambda one: one.is_led)
    yield _split("reservations", "Live reservations.", "state", pools, lambda one: one.states)
    yield _split("reservations_pending", "Reservations that wait, by reason.", "reason", pools, lambda one: one.pending)
    yield _each("reservations_at_risk", "Bookings with an unsound member.", pools, lambda one: one.at_risk)
    yield _split(
        "repairs",
        "Repairs of bookings since the pool was made; the event log keeps the count over restarts.",
        "outcome",
        pools,
        lambda one: {outcome: one.events.get(kind, 0) for outcome, kind in _REPAIRS.items()},
        CounterMetricFamily,
    )
    yield _split(
        "events", "Events since the pool was made.", "type", pools, lambda one: one.events, CounterMetricFamily
    )
    text = "Members that are not bound within the pool's bind timeout."
    yield _each("members_binding_late", text, pools, lambda one: one.binding_late)
    text = "Members whose node has not confirmed their release in time: their devices are nobody's."
    yield _each("releases_overdue", text, pools, lambda one: one.releases_overdue)


def _of_nodes(pools: Pools) -> Iterator[Metric]:
    text = "Nodes, by what the operator intends and whether they are heard from."
    nodes = _gauge("nodes", text, "pool", "intent", "reachable")
    silent = _gauge(
        "node_silent", "1 for each node not heard from, the first hundred by name.", "pool", "node", "domain", "intent"
    )
    for pool in pools:
        for intent, reachable in product(_INTENTS, (True, False)):
            nodes.add_metric((pool.view.name, intent, str(reachable).lower()), pool.nodes.get((intent, reachable), 0))
        for one in pool.silent:
            silent.add_metric((pool.view.name, one.name, one.domain, one.intent), 1)
    yield nodes
    yield silent
    yield _each("nodes_held", "Nodes with any hold.", pools, lambda one: one.nodes_held)
    yield _split("gpus", "Whole GPUs, as the pool's rollup tells them.", "state", pools, _gpus)
    text = "Whole GPUs that may not be booked, by cause; one with two causes counts for both."
    yield _split("gpus_held", text, "cause", pools, lambda one: one.view.held)


def _of_storms(pools: Pools) -> Iterator[Metric]:
    yield _split(
        "storm_domains",
        "Topology domains in which the storm brake is on; the whole pool counts as one.",
        "mode",
        pools,
        lambda one: {mode: list(one.storm.values()).count(mode) for mode in MODES},
    )
    text = "1 for each domain in which the storm brake is on; the empty domain is the whole pool."
    storm = _gauge("storm", text, "pool", "domain", "mode")
    for pool in pools:
        for domain, mode in sorted(pool.storm.items()):
            storm.add_metric((pool.view.name, domain, mode), 1)
    yield storm


def _of_receivers(receivers: Iterable[ReceiverFigures]) -> Iterator[Metric]:
    enabled = _gauge("webhook_enabled", "Whether a receiver is sent to.", "webhook")
    waiting = _gauge("webhook_deliveries_waiting", "Events that wait to be delivered.", "webhook")
    oldest = _gauge("webhook_oldest_waiting_seconds", "Age of the oldest event that waits.", "webhook")
    dead = _gauge("webhook_deliveries_dead", "Events that were given up, and not replayed.", "webhook")
    for one in receivers:
        name = (one.name,)
        enabled.add_metric(name, one.enabled)
        waiting.add_metric(name, one.waiting)
        oldest.add_metric(name, one.oldest_ms / 1000)
        dead.add_metric(name, one.dead)
    yield from (enabled, waiting, oldest, dead)


def _gpus(pool: PoolFigures) -> Mapping[str, float]:
    view = pool.view
    return {
        "total": view.total,
        "allocatable": view.allocatable,
        "reserved": view.reserved,
        "active": view.active,
        "free": view.free,
    }


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"muster_{name}", text, labels=labels)


def _each(name: str, text: str, pools: Pools, value: Callable[[PoolFigures], float]) -> Metric:
    """Return one figure of every pool."""
    family = _gauge(name, text, "pool")
    for pool in pools:
        family.add_metric((pool.view.name,), value(pool))
    return family


def _split(
    name: str,
    text: str,
    label: str,
    pools: Pools,
    values: Callable[[PoolFigures], Mapping[str, float]],
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Return a figure of every pool that is split by one label."""
    family = kind(f"muster_{name}", text, labels=("pool", label))
    for pool in pools:
        for value, count in sorted(values(pool).items()):
            family.add_metric((pool.view.name, value), count)
    return family
