"""One agent, joined of its parts and run; knows all of them, decides nothing."""

from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Final

import structlog

from muster_agent.clock import Clock
from muster_agent.config import Config
from muster_agent.core import machine
from muster_agent.core.readings import HostReading
from muster_agent.core.records import EXPOSED
from muster_agent.door.status_file import StatusFile
from muster_agent.drivers.bind import BindDriver, BindError
from muster_agent.drivers.bind.cdi import Cdi
from muster_agent.drivers.bind.envfile import EnvFile
from muster_agent.drivers.bind.hooks import Hooks
from muster_agent.drivers.bind.imex import Imex
from muster_agent.drivers.bind.systemd import SystemdDevices
from muster_agent.drivers.device_nodes import DeviceNodes
from muster_agent.drivers.gpu import GpuDriver
from muster_agent.drivers.kmsg import KernelLogReader
from muster_agent.drivers.leavings import Leavings
from muster_agent.drivers.sentry import Sentry
from muster_agent.holders.processes import Allowed, ProcessTable
from muster_agent.journal import Journal
from muster_agent.loop.agent import Agent
from muster_agent.loop.hands import Hands
from muster_agent.loop.reporter import Reporter
from muster_agent.loop.resetting import Quietened, Resetting
from muster_agent.loop.senses import Senses
from muster_agent.sdnotify import Notifier
from muster_agent.uplink.http import HttpTransport, session
from muster_agent.uplink.patience import Uplink
from muster_shared.wire import GPUS_MAX, Credential, Registration

VERSION: Final = version("gpu-muster")
_log = structlog.get_logger(part="app")


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
    nodes = DeviceNodes(config.nvidia_driver_dir, config.dev_dir)
    drivers = bind_drivers(config, nodes)
    sentry = Sentry(config.run_dir, nodes, drivers, allowed(config), host.boot_id, clock.boot_ms)
    if complete:  # else the missing record may be one that is only set aside: nothing is taken away blindly
        _sweep(drivers, records)
        sentry.sweep({key for key, record in records.items() if record.state in EXPOSED})
    senses = Senses(host, journal, clock)
    quietened = Quietened(gpus)
    status_file = StatusFile(config.run_dir, clock)
    leavings = Leavings(nodes, ProcessTable(allowed=allowed(config)))
    resetting = Resetting(quietened, senses.note_reset, clock) if config.gpu_reset else None
    agent = Agent(
        machine.awake(host.boot_id, records, fence, complete=complete),
        gpus=quietened,
        kernel_log=kernel_log,
        senses=senses,
        hands=Hands(journal, drivers, clock, leavings=leavings, sentry=sentry, resetting=resetting),
        reporter=Reporter(senses, clock, VERSION),
        notifier=notifier,
        clock=clock,
        scan_ms=config.scan_interval,
        show=status_file.show,
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
        async with AsyncExitStack() as resources:
            http = await resources.enter_async_context(session())
            if config.metrics_listen:
                from muster_agent.door.metrics import offering  # noqa: PLC0415 - a web server is 3 MiB, for few hosts

                figures = offering(config.metrics_listen, lambda: status_file.latest, clock.boot_ms)
                host_name, port = await resources.enter_async_context(figures)
                _log.info("metrics", url=f"http://{host_name}:{port}/metrics")
            transport = HttpTransport(http, config.coordinator_url, config.join_token)
            await agent.run(Uplink(transport, clock, registration, accept, credential))
    finally:
        kernel_log.close()


def bind_drivers(config: Config, nodes: DeviceNodes) -> tuple[BindDriver, ...]:
    """Make the bind drivers that the operator chose, in the order in which they grant."""
    made: dict[str, BindDriver] = {
        "env": EnvFile(config.run_dir),
        "cdi": Cdi(config.cdi_dir, nodes),
        "systemd": SystemdDevices(config.tenant_unit, nodes),
        "hooks": Hooks(config.hooks_dir, config.state_dir / "hooks", config.hook_limit, isolates=config.hooks_isolate),
    }
    imex = Imex(nodes, config.imex_nodes_config, config.imex_query, config.imex_restart, config.imex_make_channel)
    # Hooks last: they find all else as the tenant will, and their undoing comes first.
    return (imex, *(driver for name, driver in made.items() if name in config.bind_drivers))


def _sweep(drivers: Iterable[BindDriver], records: Collection[str]) -> None:
    for driver in drivers:
        try:
            for allocation_id in driver.sweep(records):
                _log.warning("artefact without a record removed", allocation=allocation_id)
        except BindError as error:
            _log.error("artefact without a record stays", trouble=str(error))


def allowed(config: Config) -> Allowed:
    """Tell who may be on any GPU at any time."""
    return Allowed(frozenset(config.allowed_processes), config.allowed_cgroups)
