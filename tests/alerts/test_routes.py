"""What Alertmanager does with the alerts by the shipped example: to whom each goes, and what keeps others quiet."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.alertmanager import alertmanager, asked, hurried, prometheus, raised, receiving
from tests.support.coordinator_api import api_on

Programs = Callable[[str], Path]

TOKEN, METRICS_TOKEN = "operators-token-00", "scrapers-token-000"
TO = {"page": "pager", "ticket": "tickets", "info": "log"}

BOOKINGS = ("BookingAtRisk", "BookingRepaired", "BookingRepairFailed", "BindingLate", "ReleaseOverdue")
QUIET = {
    "a storm": ("MusterStorm", (*BOOKINGS, "NodesHeld")),
    "a silent fleet": ("MusterFleetSilent", (*BOOKINGS, "NodesHeld", "Storm")),
    "a failed repair": ("MusterBookingRepairFailed", ("BookingAtRisk", "BookingRepaired", "NodesHeld")),
    "a booking at risk": ("MusterBookingAtRisk", ("NodesHeld",)),
    "no coordinator": ("MusterDown", (*BOOKINGS, "Storm", "FleetSilent", "PoolUnled")),
}


@pytest.fixture(scope="session")
def example(routes: Path) -> str:
    return routes.read_text()


def test_the_example_is_a_configuration(programs: Programs, routes: Path) -> None:
    ended = subprocess.run([programs("amtool"), "check-config", routes], check=False, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


def test_each_alert_goes_to_who_acts_on_its_severity(programs: Programs, rules: Path, routes: Path) -> None:
    severities = re.findall(r"alert: (\w+)[\s\S]*?severity: (\w+)", rules.read_text())
    assert len(severities) > 10

    for name, severity in severities:
        command = [str(programs("amtool")), "config", "routes", "test", f"--config.file={routes}"]
        labels = [f"alertname={name}", f"severity={severity}", "pool=p"]
        said = subprocess.run([*command, *labels], check=True, capture_output=True, text=True).stdout
        assert said.strip() == TO[severity], name


@pytest.mark.parametrize("scene", QUIET)
async def test_what_follows_from_an_alert_is_kept_quiet(
    programs: Programs, example: str, tmp_path: Path, scene: str
) -> None:
    cause, followers = QUIET[scene]
    in_pool = {"pool": "p", "severity": "ticket"}
    alerts = [{"alertname": cause, **in_pool}, *({"alertname": f"Muster{name}", **in_pool} for name in followers)]
    elsewhere = {"alertname": "MusterBookingAtRisk", "pool": "other", "severity": "page"}

    async with (
        receiving() as receiver,
        alertmanager(programs("alertmanager"), tmp_path, hurried(example, receiver)) as url,
    ):
        await raised(url, [*alerts, elsewhere])
        got = await receiver.firing(count=1 if cause == "MusterDown" else 2)

    expected = {(cause, "p")} | (set() if cause == "MusterDown" else {("MusterBookingAtRisk", "other")})
    assert {(labels["alertname"], labels["pool"]) for _, labels in got} == expected


async def test_many_silent_nodes_are_one_message_and_a_storm_silences_them(
    programs: Programs, example: str, tmp_path: Path
) -> None:
    silent = [
        {"alertname": "MusterNodeSilent", "pool": pool, "node": f"n{number}", "severity": "ticket"}
        for pool in ("quiet", "stormy")
        for number in range(20)
    ]
    storm = {"alertname": "MusterStorm", "pool": "stormy", "severity": "page"}

    async with (
        receiving() as receiver,
        alertmanager(programs("alertmanager"), tmp_path, hurried(example, receiver)) as url,
    ):
        await raised(url, [*silent, storm])
        await receiver.firing(count=2)
        messages = sorted((name, len(message["alerts"])) for name, message in receiver.got)

    assert messages == [("pager", 1), ("tickets", 20)]


async def test_a_repair_arrives_as_one_alert_that_says_what_to_do(
    programs: Programs, rules: Path, example: str, tmp_path: Path
) -> None:
    """A real Prometheus scrapes a coordinator that repairs, and a real Alertmanager tells a real receiver."""
    operator = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        api_on(str(tmp_path / "muster.db"), api_token=TOKEN, metrics_token=METRICS_TOKEN) as api,
        receiving() as receiver,
        alertmanager(programs("alertmanager"), tmp_path, hurried(example, receiver)) as alerted,
        prometheus(
            programs("prometheus"),
            tmp_path,
            rules=rules,
            scraped=api.url,
            token=METRICS_TOKEN,
            alertmanager_url=alerted,
        ) as url,
    ):
        for name in ("n1", "n2"):
            await api.join(name)
        booking = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h", "start": "+2h"}
        _, placed = await api.call("POST", "/v1/reservations", booking, **operator)
        await asked(url, 'muster_reservations{state="placed"}', until=1)

        api.clock.ms += 1_000
        await api.call("POST", f"/v1/nodes/{placed['members'][0]['nodeName']}/cordon", {}, **operator)
        got = await receiver.firing()
        (_, message), *_ = receiver.got

    assert [(name, labels["alertname"], labels["pool"]) for name, labels in got] == [
        ("log", "MusterBookingRepaired", "default")
    ]
    assert "muster events --type reservation.repaired" in message["alerts"][0]["annotations"]["action"]
