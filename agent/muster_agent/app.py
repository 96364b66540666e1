"""The command `muster-agent`: joins configuration, drivers and loop; knows all of them, decides nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import orjson
import structlog
from pydantic import ValidationError

from muster_agent import config as configuration
from muster_agent.clock import Clock, SystemClock
from muster_agent.config import Config, ConfigError
from muster_agent.core import machine
from muster_agent.core.readings import HostReading
from muster_agent.drivers.bind import BindDriver, BindError
from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.fake import FakeGpus
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.drivers.host import read_host
from muster_agent.drivers.kmsg import KernelLogReader
from muster_agent.drivers.nvml_process import NvmlProcess
from muster_agent.journal import AlreadyRunningError, Journal
from muster_agent.loop.agent import Agent
from muster_agent.loop.hands import Hands
from muster_agent.loop.reporter import Reporter
from muster_agent.loop.senses import Senses
from muster_agent.sdnotify import Notifier
from muster_agent.uplink.http import HttpTransport, session
from muster_agent.uplink.patience import Uplink
from muster_shared.wire import GPUS_MAX, Credential, Registration

VERSION: Final = version("gpu-muster")
_KEYS: Final = {"name": "name", "machine_id": "machine_id_file"}  # which setting mends a field of the request to join
_log = structlog.get_logger(part="app")


@click.group()
@click.version_option(VERSION, message="%(version)s")
def main() -> None:
    """Muster's agent: reports a host's GPUs to the coordinator and hands them to tenants."""


@main.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"TOML file; {configuration.DEFAULT_FILE} where it exists.",
)
def run(file: Path | None) -> None:
    """Serve until SIGTERM. What is bound then stays bound.

    Every key of the file can be overruled by a variable: MUSTER_AGENT_STATE_DIR overrules state_dir. Logs go to
    standard output, one JSON document a line. Runs without GPUs or driver too, and says so.
    """
    try:
        config = configuration.load(file, os.environ)
        journal = Journal.open(config.state_dir)
        host = read_host(config.machine_id_file, config.boot_id_file)
        applicant = _applicant(config, host)
    except ConfigError as error:
        raise click.UsageError(f"the configuration is wrong:\n{error}") from error
    except (AlreadyRunningError, OSError) as error:
        raise click.ClickException(str(error)) from error
    _log_to_stdout()
    notifier = Notifier.from_environment()
    with suppress(asyncio.CancelledError):
        asyncio.run(_until_told(config, journal, host, applicant, notifier))
    notifier.stopping()
    journal.close()
    _log.info("stopped", sentence="what is bound stays bound")


async def _until_told(
    config: Config, journal: Journal, host: HostReading, applicant: Registration, notifier: Notifier
) -> None:
    serving = asyncio.current_task()
    assert serving is not None  # asyncio.run runs us in one
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    clock = SystemClock()
    gpus = _gpus(config, clock)
    try:
        await serve(config, journal, host, applicant, gpus, notifier, clock)
    finally:
        await gpus.close()


async def serve(
    config: Config,
    journal: Journal,
    host: HostReading,
    applicant: Registration,
    gpus: GpuDriver,
    notifier: Notifier,
    clock: Clock,
) -> None:
    """Run one agent until cancelled.

    Args:
        config: Checked.
        journal: Open; closed by the caller.
        host: Read once: none of it changes within a boot.
        applicant: What the node joins with, its GPUs aside.
        gpus: The GPU driver; closed by the caller.
        notifier: Where systemd listens, if it does.
        clock: Time and chance.
    """
    kernel_log = KernelLogReader(config.kernel_log, clock, any_facility=config.kernel_log_any_facility)
    records, fence = journal.records(), journal.fence()
    complete = not any(bad.binding for bad in journal.bad())
    drivers = _bind_drivers(config)
    if complete:  # else the missing record may be one that is only set aside: nothing is taken away blindly
        _sweep(drivers, records)
    senses = Senses(host, journal, clock)
    agent = Agent(
        machine.awake(host.boot_id, records, fence, complete=complete),
        gpus=gpus,
        kernel_log=kernel_log,
        senses=senses,
        hands=Hands(journal, drivers, clock),
        reporter=Reporter(senses, clock, VERSION),
        notifier=notifier,
        clock=clock,
        scan_ms=config.scan_interval,
    )

    def registration() -> Registration:
        gpu_uuids = [gpu.uuid for gpu in senses.inventory.gpus] if senses.inventory else []
        return applicant.model_copy(update={"gpus": tuple(gpu_uuids[:GPUS_MAX])})

    def accept(credential: Credential) -> str | None:
        if why := agent.join(credential.cluster_id, credential.node_id):
            return f"{why}: to change clusters, stop the agent and empty {config.state_dir}"
        try:
            journal.save_credential(credential)
        except OSError as error:
            return f"the identity cannot be saved: {error}"
        return None

    credential = journal.credential()
    if credential and agent.join(credential.cluster_id, credential.node_id):
        credential = None  # the fence is of another cluster than the identity, so ask who we are
    _log.info("started", version=VERSION, coordinator=config.coordinator_url, records=len(records), boot=host.boot_id)
    try:
        async with session() as http:
            transport = HttpTransport(http, config.coordinator_url, config.join_token)
            await agent.run(Uplink(transport, clock, registration, accept, credential))
    finally:
        kernel_log.close()


def _applicant(config: Config, host: HostReading) -> Registration:
    """Return what the node joins with.

    Raises:
        ConfigError: The host name or machine id is none that a node can have.
    """
    try:
        return Registration(
            name=config.name or host.hostname, machine_id=host.machine_id, pool=config.pool, agent_version=VERSION
        )
    except ValidationError as error:
        mistakes = (
            f"{_KEYS[str(item['loc'][0])]}: the host's own will not do, set another: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise ConfigError("\n".join(mistakes)) from error


def _gpus(config: Config, clock: Clock) -> GpuDriver:
    if config.gpu_driver == "fake":
        assert config.fake_state  # config.load has seen to both
        assert config.fake_events
        return FakeGpus(config.fake_state, config.fake_events, clock)
    return NvmlProcess(clock, config.nvml_library_dir)


def _sweep(drivers: Iterable[BindDriver], records: Collection[str]) -> None:
    for driver in drivers:
        try:
            for allocation_id in driver.sweep(records):
                _log.warning("artefact without a record removed", allocation=allocation_id)
        except BindError as error:
            _log.error("artefact without a record stays", trouble=str(error))


def _bind_drivers(config: Config) -> tuple[BindDriver, ...]:
    return (EnvFile(config.run_dir), Cdi(config.cdi_dir))


def _log_to_stdout() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
    )


def _dumps(document: dict[str, Any], **_: object) -> bytes:
    return orjson.dumps(document, default=str)
