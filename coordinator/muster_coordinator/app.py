"""The composition root: configuration, database, loops, API, signals. It knows everything and decides nothing."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
import structlog
from aiohttp import web

from muster_coordinator.api.access import Doorway
from muster_coordinator.api.routes import OPERATIONS
from muster_coordinator.api.server import build_app, runner_of
from muster_coordinator.api.services import Services
from muster_coordinator.api.turns import Turns
from muster_coordinator.clock import Clock, SystemClock
from muster_coordinator.config import Config, ConfigError, load
from muster_coordinator.core.webhook.targets import allowed
from muster_coordinator.loops.every import every
from muster_coordinator.loops.pools import PoolPass
from muster_coordinator.loops.post import Post
from muster_coordinator.loops.relay import AuditRelay, Relay
from muster_coordinator.loops.revs import Revs
from muster_coordinator.loops.systemd import notify, ping_watchdog
from muster_coordinator.loops.webhooks import Deliveries
from muster_coordinator.metrics import Counts
from muster_coordinator.notifier import Notifier
from muster_coordinator.service.admit import DEFAULT_POOL
from muster_coordinator.service.index import PoolIndex
from muster_coordinator.service.nodes.operate import prepare
from muster_coordinator.store import migrate
from muster_coordinator.store.engine import Database, DatabaseInUseError

_ALONE_S: Final = 10.0  # a safety net: in one process every change is a beat
_RELAY_APART_S: Final = 0.1  # a burst of events is numbered together: nobody who watches them sees the difference
_CHAIN_APART_S: Final = 0.25  # nobody waits for a row of the audit log to be chained
_RETRIES_S: Final = 1.0  # how late a delivery may be that is tried again
_log = structlog.get_logger("muster_coordinator")


@dataclass(frozen=True, slots=True)
class Running:
    """A coordinator that serves."""

    url: str
    loops: Collection[asyncio.Task[None]]  # none of them ends by itself


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-muster")
def main() -> None:
    """Book gangs of GPUs, activate and repair them. Nodes join it; `muster` talks to it."""


@main.command()
@click.option("--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with the settings.")
def run(path: Path | None) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C)."""
    try:
        config = load(path)
    except ConfigError as error:
        raise click.ClickException(f"the configuration is not usable:\n{error}") from None
    _log_as_json()
    try:
        asyncio.run(serve(config, SystemClock()))
    except (DatabaseInUseError, migrate.SchemaError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot serve: {error}") from None


@main.command()
@click.option("--alertmanager", is_flag=True, help="The example for Alertmanager, instead of the rules.")
def alerts(*, alertmanager: bool) -> None:
    """Print the alert rules for Prometheus."""
    name = "alertmanager.example.yml" if alertmanager else "muster.rules.yml"
    click.echo((files("muster_coordinator") / "alerts" / name).read_text(), nl=False)


async def serve(config: Config, clock: Clock) -> None:
    """Run a coordinator until a signal."""
    async with running(config, clock) as coordinator:
        notify("READY=1")
        await _until_signal(coordinator.loops)
        notify("STOPPING=1")
        _log.info("stopping")


@asynccontextmanager
async def running(config: Config, clock: Clock) -> AsyncGenerator[Running]:
    """Open the database, start the loops and the API, and stop them all after the block.

    Raises:
        DatabaseInUseError: Another process has the SQLite file.
        SchemaError: The database cannot be served by this program.
        OSError: The port or the database's folder is not to be had.
    """
    async with AsyncExitStack() as stack:
        database = Database(config.database_url)
        stack.push_async_callback(database.close)
        await database.write(migrate.upgrade)
        await database.write(prepare, clock.moment(), DEFAULT_POOL, config.policy)
        recorded, published = Notifier(), Notifier()
        changed = Notifier(also=recorded)
        revs = Revs(database)
        index = PoolIndex()
        await database.read(index.load, clock.moment())
        gc.freeze()  # what lives as long as the process is not walked at each collection: 0.2 s with 10,000 nodes
        post, counts = Post(allowed(config.webhook_allow)), Counts()
        stack.push_async_callback(post.close)
        services = Services(
            database,
            clock,
            changed,
            recorded,
            published,
            revs,
            index,
            Turns(),
            config.join_token,
            counts,
            post=post,
            has_root=config.api_token is not None,
        )
        await database.read(services.book.current)
        holder = f"{socket.gethostname()}-{os.getpid()}-{clock.moment().chance.getrandbits(32):08x}"
        pools = PoolPass(database, clock, changed, index, holder)
        await pools.lead()
        tick_s = config.tick_ms / 1000
        # Whatever this process commits wakes these two; only another replica's changes need a look of their own.
        look_s = _ALONE_S if database.is_sqlite else tick_s
        chain_s = min(_CHAIN_APART_S, tick_s / 2)
        relay, chain = Relay(database, published), AuditRelay(database, services.book)
        deliveries = Deliveries(database, clock, post, counts, recorded)
        stack.push_async_callback(deliveries.close)
        rounds = {
            "pools": every(pools.run_once, tick_s, changed, "pools", counts, pools.begin_anew),
            "revs": every(revs.run_once, look_s, changed, "revs", counts),
            "relay": every(relay.run_once, look_s, recorded, "relay", counts, apart_s=_RELAY_APART_S),
            "audit": every(chain.run_once, look_s - chain_s, recorded, "audit", counts, apart_s=chain_s),
            "webhooks": every(deliveries.run_once, _RETRIES_S, published, "webhooks", counts),
            "watchdog": ping_watchdog(),
        }
        loops = [asyncio.create_task(work, name=name) for name, work in rounds.items()]
        for loop in loops:
            stack.push_async_callback(_cancelled, loop)
        doorway = Doorway(database, clock, services.book, recorded, config.api_token, config.metrics_token)
        app = build_app(OPERATIONS, services.acting_for, doorway.enter, _log, counts)
        runner = runner_of(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        # A fleet that reconnects at once needs more room than the default backlog of 128.
        site = web.TCPSite(runner, config.listen_host, config.listen_port, backlog=4096)
        await site.start()
        _log.info("serving", url=_url(config, runner), database=_shown(config), holder=holder)
        yield Running(_url(config, runner), loops)


async def _until_signal(loops: Collection[asyncio.Task[None]]) -> None:
    """Return on SIGTERM or SIGINT. A loop that failed takes the process with it: half a coordinator looks healthy."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait(), name="signal")
    done, _ = await asyncio.wait({stopped, *loops}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    for task in done - {stopped}:
        task.result()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _url(config: Config, runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port or config.listen_port}"


def _shown(config: Config) -> str:
    # A PostgreSQL URL carries a password.
    return config.database.rsplit("@", 1)[-1]


def _log_as_json() -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
    )
