"""A whole Muster of real processes on loopback: one coordinator on SQLite and agents on hosts that we script.

Used by the end-to-end tests and by the demo. Nothing here asserts; it starts, stops, freezes and asks.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from muster_agent.core.readings import GpuEvent, NodeReading
from muster_agent.drivers.fake import append_event, fake_host, write_state
from tests.support.stub import StubHost

CLUSTER_A = "9277d3990674a4a9b64ed85bb19ce2b0"
CLUSTER_B = "0b7f1ad2c4e84f6d8a2b6c0d9e5f3a17"


class Host(Protocol):
    """A host whose GPUs a script owns: on the stub library, or on the fake driver."""

    def environment_for(self, library_dir: Path | None) -> dict[str, str]:
        """Variables for its agent."""
        ...

    def uuid(self, gpu: int) -> str:
        """The UUID of one GPU."""
        ...

    def fail(self, gpu: int, xid: int) -> None:
        """Let an XID happen, told by every source that the host has."""
        ...


class NvmlHost(StubHost):
    """GPUs that the unmodified NVML binding reads from the stub library."""

    def environment_for(self, library_dir: Path | None) -> dict[str, str]:
        assert library_dir is not None
        return {
            **self.environment(library_dir),
            "MUSTER_AGENT_NVML_LIBRARY_DIR": str(library_dir),
            "MUSTER_AGENT_KERNEL_LOG": str(self.kernel_log),
        }

    def fail(self, gpu: int, xid: int) -> None:
        self.xid(gpu, xid)
        self.kernel_xid(gpu, xid)


class FakeHost:
    """GPUs that the fake driver reads from a file."""

    def __init__(self, folder: Path, reading: NodeReading) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "gpus.json"
        self._events = folder / "events"
        self._events.touch()
        self._kernel_log = folder / "kmsg"
        self._kernel_log.touch()
        self.reading = reading
        write_state(self._state, reading)

    def environment_for(self, library_dir: Path | None) -> dict[str, str]:
        assert library_dir is None
        return {
            "MUSTER_AGENT_GPU_DRIVER": "fake",
            "MUSTER_AGENT_FAKE_STATE": str(self._state),
            "MUSTER_AGENT_FAKE_EVENTS": str(self._events),
            "MUSTER_AGENT_KERNEL_LOG": str(self._kernel_log),
        }

    def uuid(self, gpu: int) -> str:
        uuid = self.reading.gpus[gpu].uuid
        assert uuid is not None
        return uuid

    def fail(self, gpu: int, xid: int) -> None:
        gpu_pci = self.reading.gpus[gpu].pci
        append_event(self._events, GpuEvent("nvml", xid, self.uuid(gpu), gpu_pci, boot_ms=0))


def host(folder: Path, name: str, library_dir: Path | None, *, cluster: str | None, clique: int = 1) -> Host:
    """Make a healthy host of 8 GPUs; without a cluster it has no NVLink fabric."""
    if library_dir is None:
        dashed = cluster and f"{cluster[:8]}-{cluster[8:12]}-{cluster[12:16]}-{cluster[16:20]}-{cluster[20:]}"
        return FakeHost(folder, fake_host(name, cluster=dashed, clique=clique))
    made = NvmlHost(folder, name=name, cluster=cluster or CLUSTER_A, clique=clique)
    if cluster is None:
        made.set_all(fabric_state=0, cluster=None, clique=None, links=0)
    return made


def disagreeing_host(folder: Path, name: str, library_dir: Path | None) -> Host:
    """Make a host whose last GPU sits in another clique than the rest."""
    made = host(folder, name, library_dir, cluster=CLUSTER_A, clique=7)
    if isinstance(made, NvmlHost):
        made.set(7, clique=8)
        return made
    other = fake_host(name, cluster="9277d399-0674-a4a9-b64e-d85bb19ce2b0", clique=8)
    reading = fake_host(name, cluster="9277d399-0674-a4a9-b64e-d85bb19ce2b0", clique=7)
    gpus = (*reading.gpus[:7], other.gpus[7])
    return FakeHost(folder, NodeReading("ok", gpus, reading.driver_version, events="ok"))


class Program:
    """One real process with its log in a file."""

    def __init__(self, module: str, environment: Mapping[str, str], log: Path, *arguments: str) -> None:
        self._arguments = [sys.executable, "-m", module, "run", *arguments]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
        self._environment = {**clean, **environment}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: no chance to finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, and wait; a process that stays is killed."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class ApiError(Exception):
    """The coordinator refused."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail", "refused"))
        self.problem = problem


class Fleet:
    """One coordinator and its agents; on a PostgreSQL also more coordinators."""

    def __init__(
        self,
        folder: Path,
        port: int,
        library_dir: Path | None,
        policy: Mapping[str, int],
        database: str | None = None,
    ) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._library_dir = library_dir
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "coordinator.toml"
        table = "\n".join(f"{name} = {value}" for name, value in policy.items())
        stored = database or folder / "muster.db"
        self._settings.write_text(f'listen_port = {port}\ndatabase = "{stored}"\ntick_ms = 200\n[policy]\n{table}\n')
        self.coordinator = self.replica(port)
        self.hosts: dict[str, Host] = {}
        self.agents: dict[str, Program] = {}

    def replica(self, port: int) -> Program:
        """Make a coordinator with the fleet's settings that listens there."""
        log, environment = self.folder / f"coordinator-{port}.log", {"MUSTER_COORDINATOR_LISTEN_PORT": str(port)}
        return Program("muster_coordinator", environment, log, "--config", str(self._settings))

    def add(self, name: str, made: Host) -> Program:
        """Give a host its agent; it is started by the caller."""
        folder = self.folder / name
        (folder / "machine-id").write_text(f"{abs(hash_of(name)):032x}\n")
        (folder / "boot-id").write_text(f"{name}-boot-1\n")
        environment = {
            "MUSTER_AGENT_COORDINATOR_URL": self.url,
            "MUSTER_AGENT_NAME": name,
            "MUSTER_AGENT_STATE_DIR": str(folder / "state"),
            "MUSTER_AGENT_RUN_DIR": str(folder / "run"),
            "MUSTER_AGENT_CDI_DIR": str(folder / "cdi"),
            "MUSTER_AGENT_SCAN_INTERVAL": "1s",
            "MUSTER_AGENT_MACHINE_ID_FILE": str(folder / "machine-id"),
            "MUSTER_AGENT_BOOT_ID_FILE": str(folder / "boot-id"),
            **made.environment_for(self._library_dir),
        }
        self.hosts[name] = made
        self.agents[name] = Program("muster_agent", environment, folder / "agent.log")
        return self.agents[name]

    def start(self) -> None:
        """Start everything, the coordinator first: agents that find nobody come back at ever longer intervals."""
        self.coordinator.start()
        until(lambda: self.get("/readyz"), 30)
        for agent in self.agents.values():
            agent.start()

    def stop(self) -> None:
        """Stop everything, agents first."""
        for agent in self.agents.values():
            agent.terminate()
        self.coordinator.terminate()

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self.call("POST", path, body)

    def call(self, method: str, path: str, body: object = None, *, url: str | None = None) -> Any:
        """Ask the coordinator, or the one at `url`.

        Raises:
            ApiError: It refused.
            OSError: It cannot be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            (url or self.url) + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ApiError(json.load(error)) from None

    def events(self) -> list[dict[str, Any]]:
        """All that happened so far."""
        found: list[dict[str, Any]] = []
        while page := self.get(f"/v1/events?limit=500&after={found[-1]['seq'] if found else 0}")["items"]:
            found += page
        return found


def hash_of(name: str) -> int:
    """A number for a name, the same in every process."""
    return int.from_bytes(name.encode().ljust(16, b"\x5a")[:16], "big")


def until(condition: Any, timeout_s: float, poll_s: float = 0.05) -> Any:
    """Ask until the answer is true, and return it; None when the time is over. For processes that live in real time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if answer := condition():
                return answer
        except OSError:
            pass
        if time.monotonic() >= deadline:
            return None
        time.sleep(poll_s)
