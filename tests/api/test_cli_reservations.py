"""`muster` for tenants, run against a coordinator that answers fixed documents."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from muster_coordinator.service import bodies
from muster_shared.codec import decode
from tests.support.canned import NOW_MS, Coordinator, coordinator_running, member, pending, reservation

RESERVE = ("reserve", "--tenant", "acme", "--gpus", "8", "--for", "12h")
GANG = [{"nodeId": "node_1", "nodeName": "gpu-01", "devices": ["GPU-0001", "GPU-0002"]}]
PREVIEW = {"fits": True, "start": NOW_MS, "end": NOW_MS + 1000, "members": GANG, "asOf": NOW_MS}


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def test_the_canned_documents_are_documents_of_the_api() -> None:
    for document in (reservation(), pending()):
        decode(bodies.ReservationView, json.dumps(document))
    decode(bodies.PreviewView, json.dumps(PREVIEW))


def reserved(coordinator: Coordinator, document: dict[str, Any]) -> None:
    coordinator.answer("POST /v1/reservations", document, 201)


async def test_the_designs_example_asks_for_what_it_says(coordinator: Coordinator) -> None:
    reserved(coordinator, reservation())

    result = await coordinator.muster(
        *("reserve", "--tenant", "acme", "--pool", "pool_01k", "--gpus", "8", "--for", "12h"),
        *("--start", "2026-09-28T08:00:00Z", "--key", "weekly-eval", "--gang", "4", "--same", "fabric.domain"),
        MUSTER_TOKEN="secret",
    )

    assert (result.exit_code, result.stderr) == (0, "")
    (asked,) = coordinator.asked
    assert asked.headers["Idempotency-Key"] == "weekly-eval"
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.body == {
        "tenantId": "acme",
        "poolId": "pool_01k",
        "devices": [{"class": "gpu", "count": 8, "topology": "any"}],
        "gang": {"size": 4, "topologyKey": "fabric.domain"},
        "start": "2026-09-28T08:00:00Z",
        "duration": "12h",
    }
    decode(bodies.ReservationRequest, json.dumps(asked.body))


async def test_every_flag_of_a_request_arrives_in_a_request_that_the_api_accepts(coordinator: Coordinator) -> None:
    reserved(coordinator, reservation())

    await coordinator.muster(
        *("reserve", "--gpus", "2", "--until", "+14h", "--start", "+2h", "--latest-start", "+3h", "--name", "eval 7"),
        *("--topology", "nvlink-all", "--model", "H100", "--memory-gib", "80", "--node-selector", "rack=r7"),
        *("--label", "team=vision", "--label", "cost=1=2"),
        MUSTER_TENANT="umbrella",
    )

    body = coordinator.asked[0].body
    assert body == {
        "tenantId": "umbrella",
        "devices": [{"class": "gpu", "count": 2, "topology": "nvlink-all", "model": "H100", "memoryGib": 80}],
        "gang": {"size": 1},
        "start": "+2h",
        "end": "+14h",
        "latestStart": "+3h",
        "nodeSelector": {"rack": "r7"},
        "labels": {"team": "vision", "cost": "1=2"},
        "name": "eval 7",
    }


async def test_a_placed_gang_is_shown_with_its_members(coordinator: Coordinator) -> None:
    reserved(coordinator, reservation())

    result = await coordinator.muster(*RESERVE)

    assert result.stdout == (
        "ID     TENANT  STATE   GPUS  START  END     TOPOLOGY  REASON\n"
        "rsv_1  acme    placed  2x8   in 3h  in 15h  f00d.1    -\n"
        "\n"
        "NODE    BINDING   DEVICES  ALLOCATION  REASON\n"
        "gpu-01  reserved  2        alc_gpu-01  -\n"
        "gpu-02  reserved  2        alc_gpu-02  -\n"
    )


async def test_a_pending_reservation_is_no_failure_but_says_so_and_why(coordinator: Coordinator) -> None:
    reserved(coordinator, pending())

    result = await coordinator.muster(*RESERVE)

    assert result.exit_code == 0
    assert result.stderr.startswith("Pending: nothing is booked yet.")
    assert result.stdout == (
        "ID     TENANT  STATE    GPUS  START  END     REASON\n"
        "rsv_2  acme    pending  2x8   in 3h  in 15h  doesNotFit: no gang of 2 nodes fits in one fabric.domain "
        "(at most 1 node fits together)\n"
        "\n"
        "BLOCKED-BY  NODES  UNTIL\n"
        "booked      3      in 5h\n"
        "cordoned    1      -\n"
    )


async def test_the_wide_form_has_exact_times_and_names_everything(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations/rsv_1", reservation(name="weekly"))

    result = await coordinator.muster("get", "rsv_1", "-o", "wide")

    assert result.stdout == (
        "ID     NAME    TENANT  STATE   GPUS  START                 END                   "
        "TOPOLOGY  REASON  POOL    NODES\n"
        "rsv_1  weekly  acme    placed  2x8   2026-09-28T11:00:00Z  2026-09-28T23:00:00Z  "
        "f00d.1    -       pool_1  gpu-01,gpu-02\n"
        "\n"
        "NODE    BINDING   DEVICES                    ALLOCATION  REASON\n"
        "gpu-01  reserved  GPU-gpu-01-a GPU-gpu-01-b  alc_gpu-01  -\n"
        "gpu-02  reserved  GPU-gpu-02-a GPU-gpu-02-b  alc_gpu-02  -\n"
    )


@pytest.mark.parametrize("document", [reservation(), pending(), reservation(unknownToThisCommand={"a": [1.5, None]})])
async def test_json_is_the_document_of_the_api(coordinator: Coordinator, document: dict[str, Any]) -> None:
    coordinator.answer("GET /v1/reservations/rsv_1", document)

    result = await coordinator.muster("get", "rsv_1", "-o", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == document


async def test_a_list_follows_its_pages_unless_limited(coordinator: Coordinator) -> None:
    first, last = {"items": [reservation()], "nextCursor": "c1"}, {"items": [pending()]}
    coordinator.answer("GET /v1/reservations", first)
    coordinator.answer("GET /v1/reservations", last)

    result = await coordinator.muster("list", "-o", "json", "--state", "pending", "--pool", "a b")

    assert json.loads(result.stdout) == {"items": [reservation(), pending()]}
    assert [asked.call for asked in coordinator.asked] == [
        "GET /v1/reservations?poolId=a+b&state=pending",
        "GET /v1/reservations?poolId=a+b&state=pending&cursor=c1",
    ]


async def test_a_limited_list_is_one_page_with_its_cursor(coordinator: Coordinator) -> None:
    page = {"items": [reservation()], "nextCursor": "c1"}
    coordinator.answer("GET /v1/reservations", page)

    result = await coordinator.muster("list", "-o", "json", "--all", "--limit", "1")

    assert json.loads(result.stdout) == page
    assert [asked.call for asked in coordinator.asked] == ["GET /v1/reservations?limit=1"]


REASONS = [
    (reservation(state="ended", reason="Preempted"), "Preempted"),
    (reservation(atRisk=["held", "unreachable"]), "at risk: held, unreachable"),
    (
        reservation(state="binding", members=[member("gpu-01", bindState="bound"), member("gpu-02")]),
        "waiting for gpu-02",
    ),
    (
        reservation(state="binding", atRisk=["gpu-02: silent"], members=[member("gpu-02")]),
        "at risk: gpu-02: silent; waiting for gpu-02",
    ),
    (
        reservation(state="ending", members=[member("gpu-01", bindState="unbinding")]),
        "waiting for gpu-01",
    ),
    (reservation(state="active"), "-"),
]


async def test_the_reason_of_every_state_stands_in_the_list(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": [document for document, _ in REASONS]})

    result = await coordinator.muster("list")

    header, *lines = result.stdout.splitlines()
    column = header.index("REASON")
    assert [line[column:] for line in lines] == [reason for _, reason in REASONS]


async def test_a_list_has_a_column_for_names_once_one_has_a_name(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": [reservation(), reservation(id="rsv_2", name="weekly")]})

    result = await coordinator.muster("list")

    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["ID", "NAME", "TENANT"],
        ["rsv_1", "-", "acme"],
        ["rsv_2", "weekly", "acme"],
    ]


async def test_a_member_at_risk_says_why_in_its_row(coordinator: Coordinator) -> None:
    risks = ["gpu-01: the node is silent", "gpu-011: a booked device is gone"]
    members = [member("gpu-01"), member("gpu-02", bindState="blocked", bindReason="foreignProcess")]
    coordinator.answer("GET /v1/reservations/rsv_1", reservation(atRisk=risks, members=members))

    result = await coordinator.muster("get", "rsv_1")

    assert result.stdout.partition("\n\n")[2] == (
        "NODE    BINDING   DEVICES  ALLOCATION  REASON\n"
        "gpu-01  reserved  2        alc_gpu-01  at risk: the node is silent\n"
        "gpu-02  blocked   2        alc_gpu-02  foreignProcess\n"
    )


WINDOWS = {
    "asked for now, still pending": (pending(start=NOW_MS + 500, end=NOW_MS + 3_600_500), ["-", "-"]),
    "asked for later, pending": (pending(), ["in 3h", "in 15h"]),
    "cancelled before it ran": (reservation(state="ended", reason="Cancelled"), ["-", "-"]),
    "released before its end": (
        reservation(state="ended", start=NOW_MS - 3_600_000, activated=NOW_MS - 3_500_000, ended=NOW_MS - 1_800_000),
        ["1h ago", "30m ago"],
    ),
    "completed": (
        reservation(state="ended", start=NOW_MS - 7_200_000, end=NOW_MS - 3_600_000, activated=NOW_MS - 7_100_000),
        ["2h ago", "1h ago"],
    ),
}


@pytest.mark.parametrize(("document", "window"), WINDOWS.values(), ids=WINDOWS.keys())
async def test_a_window_that_does_not_come_true_is_not_shown(
    coordinator: Coordinator, document: dict[str, Any], window: list[str]
) -> None:
    coordinator.answer("GET /v1/reservations", {"items": [document]})

    header, row = (await coordinator.muster("list")).stdout.splitlines()

    begin, end, after = (header.index(word) for word in ("START", "END", "REASON"))
    assert [row[begin:end].strip(), row[end:after].strip()] == window


async def test_what_has_ended_is_listed_only_when_asked_for(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": []})

    for flags in ((), ("--all",), ("--state", "ended")):
        await coordinator.muster("list", *flags)

    assert [asked.call.partition("?")[2] for asked in coordinator.asked] == [
        "state=pending%2Cplaced%2Cbinding%2Cactive%2Cending",
        "",
        "state=ended",
    ]


async def test_an_empty_list_prints_nothing_that_a_program_could_take_for_a_row(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": []})

    result = await coordinator.muster("list")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing found.\n")


async def test_names_alone_feed_other_commands(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations", {"items": [reservation(), pending()]})

    result = await coordinator.muster("list", "-o", "name")

    assert result.stdout == "rsv_1\nrsv_2\n"


async def test_no_name_steers_the_terminal(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/reservations/rsv_1", reservation(name="a\x1b[2Jb\u202ec", tenantId="[red]acme[/red]"))

    result = await coordinator.muster("get", "rsv_1", "-o", "wide")

    assert "a\ufffd[2Jb\ufffdc" in result.stdout
    assert "[red]acme[/red]" in result.stdout


@pytest.mark.parametrize("command", [(*RESERVE, "--dry-run"), ("preview", *RESERVE[1:])])
async def test_a_preview_that_fits_shows_the_gang(coordinator: Coordinator, command: tuple[str, ...]) -> None:
    coordinator.answer("POST /v1/capacity/preview", PREVIEW)

    result = await coordinator.muster(*command)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "FITS  START  END    TOPOLOGY  REASON\nyes   now    in 1s  -         -\n\nNODE    DEVICES\ngpu-01  2\n"
    )
    assert "idempotencyKey" not in coordinator.asked[0].body


@pytest.mark.parametrize(("form", "stdout"), [("name", ""), ("table", "FITS"), ("json", "{")])
async def test_a_preview_that_does_not_fit_ends_with_4(coordinator: Coordinator, form: str, stdout: str) -> None:
    condition = pending()["condition"]
    coordinator.answer("POST /v1/capacity/preview", {**PREVIEW, "fits": False, "members": [], "condition": condition})

    result = await coordinator.muster("preview", *RESERVE[1:], "-o", form)

    assert result.exit_code == 4
    assert result.stdout.startswith(stdout)
    assert result.stderr.startswith("Error: It does not fit now.\n")


async def test_a_preview_of_later_does_not_speak_of_now(coordinator: Coordinator) -> None:
    refused = {"fits": False, "members": [], "start": NOW_MS + 1, "condition": pending()["condition"]}
    coordinator.answer("POST /v1/capacity/preview", {**PREVIEW, **refused})

    result = await coordinator.muster("preview", *RESERVE[1:], "--start", "+1h")

    assert result.stderr.startswith("Error: It does not fit then.\n")


def never(*reasons: str) -> dict[str, Any]:
    blockers = [{"reason": reason, "nodes": 2} for reason in reasons]
    return {"type": "Unschedulable", "reason": "neverFits", "message": "no node fits", "blockers": blockers}


@pytest.mark.parametrize(
    ("reasons", "change"),
    [
        ((), "--pool"),
        (("labelMissing",), "--same, --segment or --pool"),
        (("booked", "labelMissing"), "--same, --segment, --gang or --pool"),
        (("noSuchIsland", "tooFewDevices"), "--topology, --gpus, --mig, --slots, --model, --memory-gib or --pool"),
    ],
)
async def test_what_can_never_fit_says_what_to_change(
    coordinator: Coordinator, reasons: tuple[str, ...], change: str
) -> None:
    refused = {"fits": False, "members": [], "condition": never(*reasons)}
    coordinator.answer("POST /v1/capacity/preview", {**PREVIEW, **refused})

    result = await coordinator.muster("preview", *RESERVE[1:])

    assert (result.exit_code, result.stderr) == (
        4,
        f"Error: It can never fit in this pool.\nNext: change {change}.\n",
    )


async def test_a_reservation_that_can_never_fit_says_that_waiting_is_in_vain(coordinator: Coordinator) -> None:
    reserved(coordinator, pending(condition=never("selectorMismatch")))

    result = await coordinator.muster(*RESERVE)

    assert (result.exit_code, result.stderr) == (
        0,
        """\
Pending, and waiting will not help unless the pool changes: it can never fit in this pool.
Next: muster cancel rsv_2, then change --node-selector or --pool.
""",
    )


async def test_a_reservation_may_be_called_by_its_name(coordinator: Coordinator) -> None:
    """The one that has not ended; of several, none is guessed; where none is left, the last that had it."""
    live = "pending,placed,binding,active,ending".replace(",", "%2C")
    named = f"GET /v1/reservations?name=train&state={live}"
    coordinator.answer("GET /v1/reservations", {"items": [reservation(id="rsv_7", name="train")]})
    coordinator.answer("GET /v1/reservations/rsv_7", reservation(id="rsv_7", name="train"))

    shown = await coordinator.muster("get", "train")

    assert shown.exit_code == 0, shown.stderr
    assert [asked.call for asked in coordinator.asked] == [named, "GET /v1/reservations/rsv_7"]


async def test_of_several_with_one_name_none_is_guessed(coordinator: Coordinator) -> None:
    twice = [reservation(id="rsv_7", name="train"), reservation(id="rsv_8", name="train", state="pending")]
    coordinator.answer("GET /v1/reservations", {"items": twice})

    refused = await coordinator.muster("cancel", "train")

    assert refused.exit_code == 4
    assert refused.stderr.startswith("Error: 2 reservations are named 'train': give an id.\n  rsv_7  acme  ")
    assert len(coordinator.asked) == 1


async def test_a_preview_shows_what_its_tenant_holds_of_its_quota(coordinator: Coordinator) -> None:
    limited = {**PREVIEW, "quotaMilli": 16_000, "quotaLimitMilli": 64_000, "quotaUsedMilli": 8_500}
    coordinator.answer("POST /v1/capacity/preview", limited)

    result = await coordinator.muster("preview", *RESERVE[1:])

    assert "COSTS  USED  QUOTA\n16     8.5   64\n" in result.stdout
