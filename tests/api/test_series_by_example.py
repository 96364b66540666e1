"""The examples of the page about the coordinator do what it says, command by command, in a shell."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

from tests.support.coordinator_api import Api

PAGE = Path(__file__).parents[2] / "coordinator" / "README.md"
MUSTER = f'muster() {{ "{sys.executable}" -m muster_cli "$@"; }}\n'


async def run(api: Api, title: str) -> tuple[str, list[str]]:
    """Run the commands below a title of the page, as they stand there; return what they print, and the events."""
    (commands,) = re.findall(rf"### {title}\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", MUSTER + commands),
        env={**os.environ, "MUSTER_URL": api.url, "MUSTER_TOKEN": "", "MUSTER_TENANT": ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    rows = sorted((row for row in (await api.rows())["event"] if row[5].startswith("series_")), key=lambda row: row[6])
    return printed.decode(), [str(row[2]) for row in rows]


async def test_the_nightly_batch_is_booked_for_every_working_night_skipped_once_and_taken_back(api: Api) -> None:
    await api.join("a1")

    printed, events = await run(api, "The nightly batch")

    _, page = await api.call("GET", "/v1/series")
    (series,) = page["items"]
    _, view = await api.call("GET", f"/v1/series/{series['id']}?occurrences=20")
    assert (view["name"], view["rule"], view["zone"]) == (
        "nightly-batch", "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR", "Europe/Berlin",
    )  # fmt: skip
    assert [(one["wall"], one["state"]) for one in view["occurrences"][:5]] == [
        (f"2027-01-{day}T22:00:00+01:00", "placed") for day in (15, 18, 19, 20, 21)
    ]
    assert view["skipped"] == []
    assert "2027-01-20T22:00:00+01:00  skipped" in printed
    assert printed.rstrip().splitlines()[-1].count(series["id"]) == 1  # muster list, which shows the series
    _, one = await api.call("GET", f"/v1/reservations/{view['occurrences'][3]['reservationId']}")
    assert (one["seriesId"], one["latestStart"] - one["start"]) == (series["id"], 2 * 3_600_000)
    assert events == ["series.created", "series.skipped", "series.unskipped"]


async def test_the_monday_run_is_changed_once_skipped_once_and_ends_when_it_is_told_to(api: Api) -> None:
    for name in ("a1", "a2"):
        await api.join(name, fabric="fabric-a.1")

    printed, events = await run(api, "The Monday training run")

    view = json.loads(printed[printed.rindex("\n{") :])
    assert [(one["wall"][:10], one["state"], one["end"] - one["start"]) for one in view["occurrences"]] == [
        ("2027-01-18", "placed", 12 * 3_600_000),
        ("2027-01-25", "placed", 10 * 3_600_000),
        ("2027-02-01", "skipped", 12 * 3_600_000),
    ]
    assert view["occurrences"][1]["start"] - view["occurrences"][1]["occurrence"] == 2 * 3_600_000
    _, gang = await api.call("GET", f"/v1/reservations/{view['occurrences'][1]['reservationId']}")
    assert (len(gang["members"]), gang["topologyValue"], gang["seriesId"]) == (2, "fabric-a.1", view["id"])
    assert events == ["series.created", "series.changed", "series.skipped", "series.cut"]
