"""The command `muster-agent`: joins configuration, drivers and loop; knows all of them, decides nothing."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import orjson
import structlog
from pydantic import ValidationError

from muster_agent import config as configuration
from muster_agent.clock import Clock, SystemClock
from muster_agent.config import Config, ConfigError
from muster_agent.core.readings import HostReading
from muster_agent.door.check import Findings, examined
from muster_agent.door.status_file import STALE_MS, StatusError, read_picture
from muster_agent.door.tables import picture_lines
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.drivers.fake import FakeGpus
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.drivers.host import read_host
from muster_agent.drivers.late_driver import driver_arrives
from muster_agent.drivers.nvml_process import NvmlProcess
from muster_agent.journal import AlreadyRunningError, Journal
from muster_agent.sdnotify import Notifier
from muster_agent.serving import VERSION, bind_drivers, serve
from muster_shared.codec import dumps, encode
from muster_shared.time import format_duration
from muster_shared.wire import Registration

_KEYS: Final = {"name": "name", "machine_id": "machine_id_file"}  # which setting mends a field of the request to join
_UNIT: Final = "INVOCATION_ID"  # systemd sets it for what it runs
_log = structlog.get_logger(part="app")


@click.group()
@click.version_option(VERSION, message="%(version)s")
def main() -> None:
    """Muster's agent: reports a host's GPUs to the coordinator and hands them to tenants."""


_config_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"TOML file; {configuration.DEFAULT_FILE} where it exists.",
)
_output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="For people, or for programs."
)


@main.command()
@_config_option
@_output_option
def status(file: Path | None, output: str) -> None:
    """Show how the agent on this host fares: GPUs, holds, assignments and when they end.

    Ends with 1 where the agent does not run.
    """
    config = _loaded(file)
    clock = SystemClock()
    try:
        boot_id = read_host(config.machine_id_file, config.boot_id_file).boot_id
        picture, age_ms = read_picture(config.run_dir, boot_id, clock.boot_ms())
    except (StatusError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(encode(picture))
    else:
        click.echo("\n".join(picture_lines(picture)))
    if age_ms >= STALE_MS:
        raise click.ClickException(
            f"this was {format_duration(age_ms // 1_000 * 1_000)} ago, and the agent has been silent since: "
            "systemctl status muster-agent"
        )


@main.command()
@_config_option
@_output_option
def check(file: Path | None, output: str) -> None:
    """Explain what the agent sees on this host and would report. Asks no coordinator and writes nothing.

    Takes five seconds more than a reading where there are GPUs, for a fabric's label to settle. Ends with 1 where
    something wants an operator's hand.
    """
    config = _loaded(file)
    try:
        host = read_host(config.machine_id_file, config.boot_id_file)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    found = asyncio.run(_examine(config, host))
    drivers = bind_drivers(config, DeviceNodes(config.nvidia_driver_dir, config.dev_dir))
    click.echo(dumps(found.document(drivers)) if output == "json" else "\n".join(found.lines(drivers)))
    if found.troubles:
        raise SystemExit(1)


async def _examine(config: Config, host: HostReading) -> Findings:
    clock = SystemClock()
    gpus = _gpus(config, clock)
    try:
        return await examined(config, host, gpus, clock)
    finally:
        await gpus.close()


def _loaded(file: Path | None) -> Config:
    try:
        return configuration.load(file, os.environ)
    except ConfigError as error:
        raise click.UsageError(f"the configuration is wrong:\n{error}") from error


@main.command()
@_config_option
def run(file: Path | None) -> None:
    """Serve until SIGTERM. What is bound then stays bound.

    Every key of the file can be overruled by a variable: MUSTER_AGENT_STATE_DIR overrules state_dir. Logs go to
    standard output, one JSON document a line. Runs without GPUs or driver too, and says so.
    """
    config = _loaded(file)
    try:
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
    late = asyncio.create_task(_begin_again_with_driver(serving, clock))
    try:
        await serve(config, journal, host, applicant, gpus, notifier, clock)
    finally:
        late.cancel()
        await gpus.close()


async def _begin_again_with_driver(serving: asyncio.Task[None], clock: Clock) -> None:
    if _UNIT not in os.environ:
        return  # nobody would start us again, and nobody keeps us from the devices
    await driver_arrives(clock)
    _log.info("restarting", sentence="the driver came after us, and systemd lets us at its devices from a new start")
    serving.cancel()


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
