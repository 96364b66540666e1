"""`GET /metrics`: what is stored as figures, the same after a restart, and no label without bounds."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from muster_coordinator.api.exposition import KEPT_MS
from tests.support.coordinator_api import Api, api_on

BODY = {"tenantId": "acme", "devices": [{"count": 8}], "duration": "1h"}
TOKEN, METRICS_TOKEN = "operators-token-00", "scrapers-token-000"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scraped(api: Api, **headers: str) -> Samples:
    """Scrape now, whatever was kept of an earlier scrape; samples by name and labels."""
    api.clock.ms += KEPT_MS
    async with api.client.get("/metrics", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        text = await answer.text()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    """Return one figure of the default pool, or the only one of its name."""
    wanted = tuple(sorted(labels.items()))
    pooled = tuple(sorted({"pool": "default", **labels}.items()))
    return samples.get((f"muster_{name}", pooled), samples.get((f"muster_{name}", wanted), -1))


async def test_metrics_tell_what_is_stored(api: Api) -> None:
    for name in ("n1", "n2", "n3"):
        await api.join(name)
    await api.call("POST", "/v1/nodes/n3/cordon", {})
    await api.call("POST", "/v1/reservations", {**BODY, "start": "+2h"})
    await api.call("POST", "/v1/reservations", {**BODY, "gang": {"size": 9}})

    found = await scraped(api)

    assert of(found, "reservations", state="placed") == 1
    assert of(found, "reservations_pending", reason="neverFits") == 1
    assert of(found, "nodes", intent="schedulable", reachable="true") == 2
    assert of(found, "nodes", intent="cordoned", reachable="true") == 1
    assert [of(found, "gpus", state=state) for state in ("total", "allocatable", "reserved", "free")] == [24, 16, 8, 16]
    assert of(found, "http_requests_total", operation="POST /v1/reservations", status="201") == 2
    assert of(found, "build_info", version="0.1.0") == 1
    assert of(found, "pool_led") == 1
    assert of(found, "loop_rounds_total", loop="relay", outcome="ok") > 0
    # What an alert compares with is there from the beginning.
    assert of(found, "repairs_total", outcome="repaired") == 0
    assert of(found, "repairs_total", outcome="failed") == 0
    assert of(found, "storm_domains", mode="poolDark") == 0
    assert of(found, "fenced_total", fence="epoch") == 0


async def test_every_metric_says_what_it_is_by_its_makers_rules(api: Api) -> None:
    async with api.client.get("/metrics") as answer:
        text = await answer.text()
        kind = answer.headers["Content-Type"]

    described = set(re.findall(r"# HELP (\S+) \S", text))
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    assert kind.startswith("text/plain; version=")
    assert bare - described == set()
    assert not [name for name in names if name.endswith("_created")]


async def test_repairs_are_counted_over_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "muster.db")
    async with api_on(path) as api:
        for name in ("n1", "n2"):
            await api.join(name)
        _, placed = await api.call("POST", "/v1/reservations", {**BODY, "start": "+2h"})
        await api.call("POST", f"/v1/nodes/{placed['members'][0]['nodeName']}/cordon", {})
        await numbered(api)
        before = await scraped(api)

    async with api_on(path) as api:
        after = await scraped(api)

    assert of(before, "repairs_total", outcome="repaired") == 1
    assert of(after, "repairs_total", outcome="repaired") == 1
    assert of(after, "events_total", type="reservation.repaired") == 1
    assert of(after, "http_requests_total", operation="POST /v1/reservations", status="201") == -1


async def numbered(api: Api) -> None:
    """Return once the relay has numbered everything there is."""
    headers = {"Accept": "text/event-stream"}
    async with api.client.get("/v1/events", headers=headers, params={"type": "reservation.repaired"}) as answer:
        async for line in answer.content:
            if line.startswith(b"id: "):
                return


async def test_a_scrape_within_a_second_is_answered_by_the_one_before(api: Api) -> None:
    await scraped(api)
    await api.join("n1")
    async with api.client.get("/metrics") as answer:
        kept = await answer.text()

    assert 'muster_nodes{intent="schedulable",pool="default",reachable="true"} 0.0' in kept
    assert of(await scraped(api), "nodes", intent="schedulable", reachable="true") == 1


async def test_metrics_ask_for_a_token_that_is_good_for_nothing_else(tmp_path: Path) -> None:
    scraper, operator = ({"Authorization": f"Bearer {token}"} for token in (METRICS_TOKEN, TOKEN))
    async with api_on(str(tmp_path / "muster.db"), api_token=TOKEN, metrics_token=METRICS_TOKEN) as api:
        statuses = [
            (await api.client.get(path, headers=headers)).status
            for path, headers in (
                ("/metrics", {}),
                ("/metrics", scraper),
                ("/metrics", operator),
                ("/v1/pools", scraper),
                ("/v1/events", scraper),
            )
        ]

    assert statuses == [401, 200, 200, 401, 401]


async def test_a_call_that_nothing_serves_adds_no_label(api: Api) -> None:
    for path in ("/v1/nowhere/1", "/v1/nowhere/2", "/v1/reservations/rsv_1", "/v1/reservations/rsv_2"):
        await api.client.get(path)

    found = await scraped(api)

    assert of(found, "http_requests_total", operation="other", status="404") == 2
    assert of(found, "http_requests_total", operation="GET /v1/reservations/{id}", status="404") == 2
