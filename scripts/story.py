"""The story that scripts/demo tells: each step is done by the product, watched from outside, and must happen."""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import stub
from tests.support.fleet import CLUSTER_A, CLUSTER_B, ApiError, Fleet, disagreeing_host, host, until

FABRICS = {"a": CLUSTER_A, "b": CLUSTER_B}
_RACKS = "abcd"  # of which the names of the nodes speak
_POLICY = {
    "heartbeat_ms": 1_000,
    "unreachable_after_beats": 20,  # ten agents on one machine: it is busy, not silent
    "healthy_after_ms": 10_000,  # nobody watches a demo for the ten minutes of the default
}
NODES_EACH = 4
GPUS_EACH = 8
PORT = 8470  # where `muster` looks by default
FALLEN_OFF_THE_BUS = 79  # the XID of a GPU that is gone until its host is rebooted
STEP_S = 120  # a step that takes longer, on however busy a machine, has not happened


class StepError(Exception):
    """A step of the story did not happen."""


class Story:
    """Steps with numbers, sentences and the time they took."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._step = 0
        self._color = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def title(self, text: str) -> None:
        """Begin a step."""
        self._step += 1
        print(f"\n{self._styled('1', f'{self._step}. {text}')}", flush=True)

    def say(self, text: str) -> None:
        """Explain what is seen."""
        print(f"   {text}", flush=True)

    def wait(self, what: str, condition: Callable[[], Any], timeout_s: float = STEP_S) -> Any:
        """Wait for a step to happen; the story ends where one does not."""
        began = time.monotonic()
        answer = until(condition, timeout_s)
        if not answer:
            raise StepError(f"{what}: not within {timeout_s:.0f} s")
        self.say(f"{self._styled('32', 'ok')} {what} {self._styled('2', f'({time.monotonic() - began:.1f} s)')}")
        return answer

    def muster(self, *arguments: str) -> None:
        """Run the command line as a person would, and show what it shows."""
        print(f"   {self._styled('36', '$ muster ' + ' '.join(arguments))}", flush=True)
        environment = {**os.environ, "MUSTER_URL": self.fleet.url, "COLUMNS": "140"}
        ran = subprocess.run(
            [sys.executable, "-m", "muster_cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in (ran.stdout + ran.stderr).splitlines():
            print(f"     {line}", flush=True)
        if ran.returncode != 0:
            raise StepError(f"muster {arguments[0]} ended with {ran.returncode}")

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text


def tell(story: Story) -> None:
    """Tell it from the first report to the repaired booking."""
    fleet = story.fleet
    _inventory(story)
    running = _gang(story)
    booked = _calendar(story)
    _repair(story, booked)
    story.title("What stands now")
    story.muster("list")
    still = fleet.get(f"/v1/reservations/{running}")["state"]
    if still != "active":
        raise StepError(f"the running gang is {still}, not active: the repair must not touch it")


def _inventory(story: Story) -> None:
    fleet = story.fleet
    story.title("Ten agents join and report what their hosts really have")
    story.say("Ten Python processes start here at once; a busy machine takes a minute for it.")
    story.wait("ten nodes with 8 GPUs each", lambda: _count(fleet, lambda node: node["gpusTotal"] == GPUS_EACH) == 10)
    story.wait(
        "eight of them are sure of their NVLink fabric (two equal readings, 5 s apart)",
        lambda: _count(fleet, lambda node: "fabric.domain" in node["labels"]) == len(FABRICS) * NODES_EACH,
    )
    story.wait(
        "one has GPUs that disagree, one has no NVLink: neither gets a fabric.domain, both say why",
        lambda: {"gpusDisagree", "notSupported"} <= {node.get("fabricReason") for node in _nodes(fleet)},
    )
    for name in (node["name"] for node in _nodes(fleet)):
        rack = f"r{_RACKS.index(name.removeprefix('gpu-')[0]) + 1}"
        fleet.call("PUT", f"/v1/nodes/{name}/labels", {"labels": {"rack": rack}})
    story.say("An operator says in which rack each of them stands: gpu-a1 to a4 in r1, b1 to b4 in r2.")
    story.muster("nodes")


def _gang(story: Story) -> str:
    fleet = story.fleet
    story.title("A gang of 4 nodes x 8 GPUs on one fabric: previewed, reserved, bound member by member")
    asked = ("--gang", "4", "--same", "fabric.domain", "--gpus", "8", "--for", "2h")
    story.muster("preview", "--tenant", "acme", *asked)
    preview = fleet.post("/v1/capacity/preview", _request(4, "acme", duration="2h"))
    last = preview["members"][-1]["nodeName"]
    story.say(f"One of these hosts is slow today: the agent of {last} is stopped for a while.")
    fleet.agents[last].signal(signal.SIGSTOP)
    made = fleet.post("/v1/reservations", _request(4, "acme", duration="2h", name="training"))
    path = f"/v1/reservations/{made['id']}"
    story.wait("3 of 4 members are bound", lambda: _bound(fleet, path) == 3)
    state = fleet.get(path)["state"]
    if state != "binding":
        raise StepError(f"with 3 of 4 members bound the gang is {state}")
    story.say("The gang is `binding`, not active: nobody is told to start on three quarters of a gang.")
    fleet.agents[last].signal(signal.SIGCONT)
    story.wait("active with the 4th", lambda: fleet.get(path)["state"] == "active" and _bound(fleet, path) == 4)
    story.muster("get", made["id"])
    return str(made["id"])


def _calendar(story: Story) -> str:
    fleet = story.fleet
    story.title("A gang of 3 is booked for later")
    made = fleet.post("/v1/reservations", _request(3, "globex", start="+1h", duration="12h", name="weekly-eval"))
    if made["state"] != "placed":
        raise StepError(f"the calendar gang is {made['state']}: {made.get('condition')}")
    story.muster("get", made["id"])
    return str(made["id"])


def _repair(story: Story, reservation_id: str) -> None:
    fleet = story.fleet
    path = f"/v1/reservations/{reservation_id}"
    booked = fleet.get(path)
    victim = booked["members"][0]["nodeName"]
    story.title(f"A GPU of {victim} falls off the bus (XID {FALLEN_OFF_THE_BUS}), before anybody would notice")
    fleet.hosts[victim].fail(0, FALLEN_OFF_THE_BUS)
    event = story.wait(
        "BookingRepair has moved the booking: reservation.repaired",
        lambda: [
            event
            for event in fleet.events()
            if event["type"] == "reservation.repaired" and event["subject"] == reservation_id
        ],
    )[0]
    after = fleet.get(path)
    names = {node["id"]: node["name"] for node in _nodes(fleet)}
    story.say(f"from {_named(event['data']['from'], names)}; now on {_named(event['data']['nodeIds'], names)}")
    if after["state"] != "placed" or victim in {member["nodeName"] for member in after["members"]}:
        raise StepError(f"after the repair the gang is {after['state']} on {after['members']}")
    if after["start"] != booked["start"] or after["end"] != booked["end"]:
        raise StepError("the repair changed the window")
    story.say("Same window, same owner, nothing to do for anybody.")
    story.muster("get", reservation_id)
    story.muster("events", "--after", str(event["seq"] - 4), "--limit", "6")


def _request(size: int, tenant: str, **rest: str) -> dict[str, Any]:
    return {
        "tenantId": tenant,
        "devices": [{"class": "gpu", "count": GPUS_EACH}],
        "gang": {"size": size, "topologyKey": "fabric.domain"},
        **rest,
    }


def _nodes(fleet: Fleet) -> list[dict[str, Any]]:
    return list(fleet.get("/v1/nodes")["items"])


def _count(fleet: Fleet, wanted: Callable[[dict[str, Any]], bool]) -> int:
    return sum(map(wanted, _nodes(fleet)))


def _bound(fleet: Fleet, path: str) -> int:
    return sum(member["bindState"] == "bound" for member in fleet.get(path)["members"])


def _named(node_ids: list[str], names: dict[str, str]) -> str:
    return ", ".join(names[node_id] for node_id in node_ids)


def _built(folder: Path) -> Fleet:
    library_dir = stub.build(Path(tempfile.gettempdir()) / f"muster-nvml-stub-{os.getuid()}")
    if library_dir is None:
        print("No C compiler here: the agents read their GPUs from the fake driver instead of NVML.")
    else:
        print("GPUs are played by a stub of libnvidia-ml.so.1; the agents read them with the real NVML binding.")
    fleet = Fleet(folder, _port(), library_dir, _POLICY)
    for fabric, cluster in FABRICS.items():
        for number in range(1, NODES_EACH + 1):
            name = f"gpu-{fabric}{number}"
            fleet.add(name, host(folder / name, name, library_dir, cluster=cluster))
    fleet.add("gpu-c1", disagreeing_host(folder / "gpu-c1", "gpu-c1", library_dir))
    fleet.add("gpu-d1", host(folder / "gpu-d1", "gpu-d1", library_dir, cluster=None))
    return fleet


def _port() -> int:
    for wanted in (PORT, 0):
        with socket.socket() as probe:
            # What a demo before this one has left in TIME-WAIT is no reason to move.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StepError("no free port on loopback")


def _stay(fleet: Fleet) -> None:
    if not fleet.url.endswith(f":{PORT}"):
        print(f"\nPort {PORT} is taken here. In other terminals say first: export MUSTER_URL={fleet.url}")
    print(f"\nMuster stays up at {fleet.url} until Ctrl-C. In another terminal, from this folder:\n")
    for line in (
        "export PATH=$PWD/.venv/bin:$PATH",
        "muster nodes",
        "muster preview --tenant you --gang 2 --same fabric.domain --gpus 4 --for 1h --start +4h",
        "muster reserve --tenant you --gpus 4 --topology nvlink-all --for 30m --name first-try",
        "muster list",
        "muster timeline",
        "muster whatif --lose rack=r1",
        "muster maintenance create --selector rack=r2 --start +2d --for 4h --reason 'new fans' --dry-run",
        "muster events --follow",
    ):
        print(f"  {line}")
    print(f"\nLogs and state: {fleet.folder}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    print("\nStopping.", flush=True)


def main() -> int:
    """Tell the story; 0 when every step happened."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Shows Muster at work on this machine: a coordinator and ten agents, with GPUs that are played.",
    )
    parser.add_argument("--exit", action="store_true", help="end after the story instead of staying up")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    # SIGTERM ends the story as Ctrl-C does: nothing of it may go on without it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fleet = _built(folder)
    ok = keep = False
    try:
        fleet.start()
        tell(Story(fleet))
        ok = True
        if not arguments.exit:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            _stay(fleet)
    except (StepError, ApiError, OSError) as error:
        keep = True
        print(f"\nThe story broke off: {error}\nLogs: {folder}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
    finally:
        fleet.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
