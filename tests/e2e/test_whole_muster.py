"""Both programs as real processes on loopback: a gang's life, and SIGKILL at each step of it."""

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import stub
from tests.support.fleet import CLUSTER_A, Fleet, host, until

NODES = ("n1", "n2", "n3", "n4", "n5")
STEP_S = 60  # a busy machine may take long; a step that hangs must not hang the suite


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("muster")
    library_dir = stub.build(folder / "library")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    # Silence of 20 s: an agent that is killed and started again on a busy machine is not gone.
    policy = {"heartbeat_ms": 1_000, "unreachable_after_beats": 20, "reconnect_grace_ms": 5_000}
    made = Fleet(folder, port, library_dir, policy)
    for name in NODES:
        made.add(name, host(folder / name, name, library_dir, cluster=CLUSTER_A))
    made.start()
    try:
        assert until(lambda: _fabrics(made) == len(NODES), STEP_S), _logs(made)
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def calm(fleet: Fleet) -> None:
    """What the test before did is over: every node reports, is sure of its fabric, and is free."""
    assert until(lambda: _fabrics(fleet) == len(NODES) and _free(fleet) == 8 * len(NODES), STEP_S), _logs(fleet)


def test_a_gang_is_active_only_with_its_last_member(fleet: Fleet) -> None:
    last = _previewed(fleet, 4)[-1]
    fleet.agents[last].signal(signal.SIGSTOP)
    reservation = _reserve(fleet, 4)
    assert _reaches(fleet, reservation, lambda now: _bound(now) == 3)
    before = fleet.get(reservation)
    fleet.agents[last].signal(signal.SIGCONT)
    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    after = fleet.get(reservation)

    assert before["state"] == "binding"
    assert _bound(after) == 4
    assert all(_artefacts(fleet, member) for member in after["members"])
    _end(fleet, reservation)
    assert not any(_artefacts(fleet, member) for member in after["members"])


def test_a_coordinator_killed_between_binding_and_the_answers_finishes_the_job(fleet: Fleet) -> None:
    """R06: what is under way is found again by state and clock."""
    for agent in fleet.agents.values():
        agent.signal(signal.SIGSTOP)
    reservation = _reserve(fleet, 4)
    assert fleet.get(reservation)["state"] == "binding"
    fleet.coordinator.kill()
    for agent in fleet.agents.values():
        agent.signal(signal.SIGCONT)
    fleet.coordinator.start()

    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    assert fleet.get(reservation)["generation"] == 1
    _end(fleet, reservation)


def test_a_coordinator_killed_after_each_answer_has_lost_nothing(fleet: Fleet) -> None:
    reservation = _reserve(fleet, 2)
    _restart(fleet)
    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    _restart(fleet)
    assert fleet.get(reservation)["state"] == "active"
    fleet.post(f"{reservation}/release")
    _restart(fleet)
    assert _reaches(fleet, reservation, lambda now: now["state"] == "ended")

    # The event is published a moment after the state that it tells of.
    assert until(lambda: _count(fleet, reservation, "reservation.ended") == 1, STEP_S)
    assert _count(fleet, reservation, "reservation.active") == 1
    assert fleet.get(reservation)["reason"] == "Released"


def test_an_agent_killed_while_it_binds_binds_once_and_loses_nothing(fleet: Fleet) -> None:
    victim = _previewed(fleet, 4)[0]
    fleet.agents[victim].signal(signal.SIGSTOP)
    reservation = _reserve(fleet, 4)
    fleet.agents[victim].kill()
    fleet.agents[victim].start()

    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    now = fleet.get(reservation)
    assert now["generation"] == 1
    assert [len(_artefacts(fleet, member)) for member in now["members"]] == [2, 2, 2, 2]
    _end(fleet, reservation)


def test_an_agent_killed_while_bound_keeps_the_binding(fleet: Fleet) -> None:
    reservation = _reserve(fleet, 4)
    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    victim = fleet.get(reservation)["members"][0]
    artefacts = _artefacts(fleet, victim)
    reported = _node(fleet, victim)["lastReport"]
    fleet.agents[victim["nodeName"]].kill()
    fleet.agents[victim["nodeName"]].start()
    assert until(lambda: _node(fleet, victim)["lastReport"] > reported, STEP_S)

    now = fleet.get(reservation)
    assert now["state"] == "active"
    assert now["atRisk"] == []
    assert _artefacts(fleet, victim) == artefacts
    _end(fleet, reservation)


def test_an_agent_killed_while_it_lets_go_still_lets_go(fleet: Fleet) -> None:
    reservation = _reserve(fleet, 2)
    assert _reaches(fleet, reservation, lambda now: now["state"] == "active")
    victim = fleet.get(reservation)["members"][0]
    fleet.agents[victim["nodeName"]].signal(signal.SIGSTOP)
    fleet.post(f"{reservation}/release")
    fleet.agents[victim["nodeName"]].kill()
    held = fleet.get(reservation)["state"]
    fleet.agents[victim["nodeName"]].start()

    assert held == "ending"
    assert _reaches(fleet, reservation, lambda now: now["state"] == "ended")
    assert not _artefacts(fleet, victim)


def test_an_xid_moves_a_booking_before_its_start(fleet: Fleet) -> None:
    reservation = _reserve(fleet, 4, start="+3h")
    victim = fleet.get(reservation)["members"][0]["nodeName"]
    fleet.hosts[victim].fail(0, 79)

    repaired = until(
        lambda: [event for event in _story(fleet, reservation) if event["type"] == "reservation.repaired"], STEP_S
    )
    assert repaired, _logs(fleet)
    now = fleet.get(reservation)
    assert now["state"] == "placed"
    assert victim not in {member["nodeName"] for member in now["members"]}
    assert len({member["nodeId"] for member in now["members"]}) == 4
    assert repaired[0]["data"]["nodeIds"] == sorted(member["nodeId"] for member in now["members"])
    assert fleet.post(f"{reservation}/cancel")["state"] == "ended"


def _reserve(fleet: Fleet, size: int, **rest: str) -> str:
    asked = {
        "tenantId": "acme",
        "devices": [{"class": "gpu", "count": 8}],
        "gang": {"size": size, "topologyKey": "fabric.domain"},
        "duration": "1h",
        **rest,
    }
    return f"/v1/reservations/{fleet.post('/v1/reservations', asked)['id']}"


def _previewed(fleet: Fleet, size: int) -> list[str]:
    asked = {
        "tenantId": "acme",
        "devices": [{"class": "gpu", "count": 8}],
        "gang": {"size": size, "topologyKey": "fabric.domain"},
        "duration": "1h",
    }
    return [member["nodeName"] for member in fleet.post("/v1/capacity/preview", asked)["members"]]


def _reaches(fleet: Fleet, reservation: str, condition: Any) -> bool:
    return bool(until(lambda: condition(fleet.get(reservation)), STEP_S))


def _end(fleet: Fleet, reservation: str) -> None:
    fleet.post(f"{reservation}/release")
    assert _reaches(fleet, reservation, lambda now: now["state"] == "ended")


def _restart(fleet: Fleet) -> None:
    fleet.coordinator.kill()
    fleet.coordinator.start()
    assert until(lambda: fleet.get("/readyz"), STEP_S)


def _story(fleet: Fleet, reservation: str) -> list[dict[str, Any]]:
    return [event for event in fleet.events() if reservation.endswith(event["subject"])]


def _count(fleet: Fleet, reservation: str, kind: str) -> int:
    return sum(event["type"] == kind for event in _story(fleet, reservation))


def _bound(reservation: dict[str, Any]) -> int:
    return sum(member["bindState"] == "bound" for member in reservation["members"])


def _node(fleet: Fleet, member: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = fleet.get(f"/v1/nodes/{member['nodeId']}")
    return found


def _fabrics(fleet: Fleet) -> int:
    return sum("fabric.domain" in node["labels"] for node in fleet.get("/v1/nodes")["items"])


def _free(fleet: Fleet) -> int:
    return sum(node["gpusFree"] for node in fleet.get("/v1/nodes")["items"])


def _artefacts(fleet: Fleet, member: dict[str, Any]) -> dict[str, str]:
    """What tenants of a member could use: its CDI spec and its environment file."""
    folder = fleet.folder / member["nodeName"]
    found = {path: path.read_text() for path in (*folder.glob("cdi/*.json"), *folder.glob("run/reservations/*.env"))}
    return {path.name: text for path, text in found.items() if member["allocationId"] in path.name}


def _logs(fleet: Fleet) -> str:
    return json.dumps({path.name: path.read_text()[-2_000:] for path in fleet.folder.glob("**/*.log")}, indent=1)
