"""`muster nodes` and `muster pools`, run against a coordinator that answers fixed documents."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from muster_cli.drawing import drawn
from muster_cli.rows import table
from muster_coordinator.service import bodies
from muster_shared.codec import decode
from tests.support.canned import NOW_MS, Coordinator, coordinator_running, node, pool

XID = {"device": "GPU-0001", "cause": "xid", "code": 79, "sinceMs": NOW_MS, "clearsBy": "nodeRebootVerified"}
SILENT = node(id="node_2", name="gpu-02", reachable=False, intent="draining", holds=[XID, XID], gpusFree=0)
LOST = node(id="node_3", name="gpu-03", labels={}, fabricReason="gpusDisagree", lastReport=None, leased=True)


@pytest_asyncio.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    async with coordinator_running() as coordinator:
        yield coordinator


def test_the_canned_documents_are_documents_of_the_api() -> None:
    for document in (node(), SILENT, LOST):
        decode(bodies.NodeView, json.dumps(document))
    decode(bodies.PoolView, json.dumps(pool()))


@pytest.mark.parametrize("command", [("nodes",), ("nodes", "list"), ("nodes", "-o", "table")])
async def test_nodes_alone_lists_them(coordinator: Coordinator, command: tuple[str, ...]) -> None:
    coordinator.answer("GET /v1/nodes", {"items": [node(), SILENT, LOST]})

    result = await coordinator.muster(*command)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "NAME    STATE                 FREE  FABRIC          HOLDS      REPORTED\n"
        "gpu-01  ready                 6/8   f00d.1          -          4s ago\n"
        "gpu-02  draining,unreachable  0/8   f00d.1          xid:79 x2  4s ago\n"
        "gpu-03  leased                6/8   (gpusDisagree)  -          -\n"
    )


async def test_the_wide_form_names_held_devices_ids_and_labels(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/nodes", {"items": [node(holds=[XID])]})

    result = await coordinator.muster("nodes", "--pool", "default", "-o", "wide")

    assert coordinator.asked[0].call == "GET /v1/nodes?poolId=default"
    assert result.stdout == (
        "NAME    STATE  FREE  FABRIC  HOLDS               REPORTED              ID      POOL    AGENT  LABELS\n"
        "gpu-01  ready  6/8   f00d.1  xid:79 on GPU-0001  2026-09-28T07:59:56Z  node_1  pool_1  0.1.0  rack=r7\n"
    )


async def test_a_node_is_shown_with_its_devices_what_holds_them_and_its_labels(coordinator: Coordinator) -> None:
    gone = {**node()["gpus"][0], "uuid": "GPU-0002", "seen": False, "island": 1}
    sound = {**node()["gpus"][0], "uuid": "GPU-0003"}
    held = {**XID, "message": "fell off the bus"}
    coordinator.answer("GET /v1/nodes/gpu 01/x", node(gpus=[*node()["gpus"], gone, sound], holds=[held]))

    result = await coordinator.muster("nodes", "get", "gpu 01/x")

    assert coordinator.asked[0].call == "GET /v1/nodes/gpu%2001%2Fx"
    assert result.stdout.partition("\n\n")[2] == (
        "DEVICE    MODEL        MEMORY  ISLAND  PCI         STATE\n"
        "GPU-0001  NVIDIA H100  80GiB   0       0000:0f:00  held xid:79\n"
        "GPU-0002  NVIDIA H100  80GiB   1       0000:0f:00  lost\n"
        "GPU-0003  NVIDIA H100  80GiB   0       0000:0f:00  present\n"
        "\n"
        "HOLD    ON        SINCE  CLEARS-BY           MESSAGE\n"
        "xid:79  GPU-0001  now    nodeRebootVerified  fell off the bus\n"
        "\n"
        "LABEL          VALUE   SET-BY\n"
        "fabric.domain  f00d.1  agent\n"
        "rack           r7      operator\n"
    )


async def test_what_is_no_hold_and_should_be_known_is_told_beside_the_holds(coordinator: Coordinator) -> None:
    """Case A02: a fabric that has been in progress for too long holds nothing, and somebody must look."""
    stuck = {"cause": "fabricInProgress", "sinceMs": NOW_MS, "message": "look at the fabric manager"}
    struck = {"cause": "xid", "code": 31, "device": "GPU-0001", "count": 4, "sinceMs": NOW_MS, "message": "4 times"}
    coordinator.answer("GET /v1/nodes/gpu-01", node(findings=[stuck, struck]))

    *_, findings, _ = (await coordinator.muster("nodes", "get", "gpu-01")).stdout.split("\n\n")

    assert findings == (
        "FINDING           ON        SINCE  MESSAGE\n"
        "fabricInProgress  the node  now    look at the fabric manager\n"
        "xid:31            GPU-0001  now    4 times"
    )


NVML = {"cause": "nvmlDown", "code": 12, "sinceMs": NOW_MS, "clearsBy": "nvmlOk"}


@pytest.mark.parametrize(
    ("monitoring", "cause"),
    [
        ({"nvml": "libraryMissing", "events": "down", "kernelLog": "ok"}, "nvmlDown:libraryMissing"),
        ({"nvml": "ok", "events": "ok", "kernelLog": "ok"}, "nvmlDown"),
        (None, "nvmlDown"),
    ],
)
async def test_a_silent_nvml_is_told_in_words_and_holds_every_gpu(
    coordinator: Coordinator, monitoring: object, cause: str
) -> None:
    coordinator.answer("GET /v1/nodes/gpu-01", node(holds=[NVML], monitoring=monitoring))

    nodes, devices, holds, _ = (await coordinator.muster("nodes", "get", "gpu-01")).stdout.split("\n\n")

    assert nodes.splitlines()[1].split()[4] == cause
    assert devices.endswith(f"held {cause}")
    assert holds.splitlines()[1].startswith(f"{cause}  the node ")


def test_on_a_narrow_terminal_prose_is_folded_and_an_id_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    long_id, why = "rsv_" + "x" * 60, "no gang of two nodes fits in one fabric"

    lines = drawn(table("ID STATE REASON", [(long_id, "pending", why)])).splitlines()

    text = " ".join(lines).replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert len(lines) == 3
    assert f"{long_id}  pending" in text
    assert " ".join(text.split()).endswith("no gang of two nodes fits in one fabric")


async def test_nodes_are_named_by_their_names(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/nodes", {"items": [node(), SILENT]})

    assert (await coordinator.muster("nodes", "-o", "name")).stdout == "gpu-01\ngpu-02\n"


@pytest.mark.parametrize(
    ("verb", "said"),
    [("cordon", "Cordoned gpu-01."), ("uncordon", "Uncordoned gpu-01."), ("drain", "Draining gpu-01.")],
)
async def test_an_operators_order_carries_its_reason(coordinator: Coordinator, verb: str, said: str) -> None:
    coordinator.answer(f"POST /v1/nodes/gpu-01/{verb}", node())

    result = await coordinator.muster("nodes", verb, "gpu-01", "--reason", "rack move")

    assert (result.exit_code, result.stderr) == (0, f"{said}\n")
    assert coordinator.asked[0].body == {"reason": "rack move"}
    decode(bodies.Reason, json.dumps(coordinator.asked[0].body))


async def test_one_refused_node_does_not_keep_the_others_and_what_was_done_is_told(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/nodes/gpu-01/uncordon", node())
    coordinator.refuse("POST /v1/nodes/nope/uncordon", 404, "NOT_FOUND", "there is no node 'nope'")
    coordinator.answer("POST /v1/nodes/gpu-02/uncordon", node(name="gpu-02"))

    result = await coordinator.muster("nodes", "uncordon", "gpu-01", "nope", "gpu-02", "-o", "name")

    assert (result.exit_code, result.stdout) == (3, "gpu-01\ngpu-02\n")
    assert result.stderr.startswith("Error: NOT_FOUND: there is no node 'nope'\n")
    assert result.stderr.endswith("\nUncordoned gpu-01, gpu-02.\n")


async def test_where_every_node_is_refused_nothing_is_said_to_be_done(coordinator: Coordinator) -> None:
    coordinator.refuse("POST /v1/nodes/nope/drain", 404, "NOT_FOUND", "there is no node 'nope'")

    result = await coordinator.muster("nodes", "drain", "nope")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "Draining" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [("drain", "gpu-01", "gpu-02"), ("fence", "gpu-01"), ("clear-hold", "gpu-01")],
)
async def test_what_is_hard_to_take_back_needs_a_yes(coordinator: Coordinator, command: tuple[str, ...]) -> None:
    result = await coordinator.muster("nodes", *command)

    assert (result.exit_code, coordinator.asked) == (2, [])
    assert "--yes" in result.stderr


async def test_fencing_attests_with_a_yes(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/nodes/gpu-01/fence", node())

    result = await coordinator.muster("nodes", "fence", "gpu-01", "--yes")

    assert (result.exit_code, result.stderr) == (0, "Fenced gpu-01.\n")
    assert coordinator.asked[0].body == {}


async def test_labels_are_set_and_removed_in_one_call(coordinator: Coordinator) -> None:
    coordinator.answer("PUT /v1/nodes/gpu-01/labels", node())

    result = await coordinator.muster("nodes", "label", "gpu-01", "rack=r7", "row-", "zone=a-")

    assert (result.exit_code, result.stderr) == (0, "Labelled gpu-01.\n")
    assert coordinator.asked[0].body == {"labels": {"row": None, "rack": "r7", "zone": "a-"}}
    decode(bodies.NodeLabels, json.dumps(coordinator.asked[0].body))


@pytest.mark.parametrize("label", ["rack", "=r7", "rack=a rack=b"])
async def test_what_is_no_label_is_not_sent(coordinator: Coordinator, label: str) -> None:
    result = await coordinator.muster("nodes", "label", "gpu-01", *label.split(" "))

    assert (result.exit_code, coordinator.asked) == (2, [])


async def test_holds_are_cleared_by_device_and_cause(coordinator: Coordinator) -> None:
    coordinator.answer("DELETE /v1/nodes/gpu-01/holds", b"", 204)

    result = await coordinator.muster("nodes", "clear-hold", "gpu-01", "--device", "GPU-0001", "--cause", "xid")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Told gpu-01 that its holds are over.\n")
    assert coordinator.asked[0].call == "DELETE /v1/nodes/gpu-01/holds?device=GPU-0001&cause=xid"


async def test_pools_are_listed_in_whole_gpus(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/pools", {"items": [pool()]})

    result = await coordinator.muster("pools")

    assert result.stdout == (
        "NAME     NODES  TOTAL  ALLOCATABLE  ACTIVE  RESERVED  FREE  HELD   LARGEST-GANG\n"
        "default  4      32     31           8       16        15    xid=1  2\n"
    )


async def test_a_pool_is_shown_with_its_fabrics_and_policy(coordinator: Coordinator) -> None:
    coordinator.answer("GET /v1/pools/default", pool())

    result = await coordinator.muster("pools", "get", "default")

    assert result.stdout.split("\n\n")[1:] == [
        "FABRIC  FREE-NODES\nf00d.1  2\nf00d.2  1",
        "POLICY      VALUE\ntopN        1\nturnaround  0\n",
    ]


async def test_a_pool_is_made_by_name(coordinator: Coordinator) -> None:
    coordinator.answer("POST /v1/pools", pool(name="research"), 201)

    result = await coordinator.muster("pools", "create", "research", "-o", "name")

    assert (result.stdout, result.stderr) == ("pool_1\n", "Made pool research.\n")
    assert coordinator.asked[0].body == {"name": "research"}


async def test_a_split_gpu_shows_its_instances_and_a_cut_one_its_shares(coordinator: Coordinator) -> None:
    whole = node()["gpus"][0]
    instance = {"uuid": "MIG-1", "profile": "1g.10gb", "slices": 1, "memoryMib": 9_856}
    split = {**whole, "uuid": "GPU-0002", "migMode": True, "mig": [instance]}
    offers = {"slot": 4, "mig 1g.10gb": 1}
    shown = node(gpus=[whole, split], offers=offers, free={"slot": 3, "mig 1g.10gb": 1}, slots={"GPU-0001": 4})
    decode(bodies.NodeView, json.dumps(shown))
    coordinator.answer("GET /v1/nodes/gpu-01", shown)

    result = await coordinator.muster("nodes", "get", "gpu-01")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["mig", "1g.10gb", "1"] in lines
    assert [line[6:] for line in lines if line[:1] in (["GPU-0001"], ["GPU-0002"])] == [
        ["in", "4", "shares"],
        ["split"],
    ]
    assert ["MIG-1", "1g.10gb", "9GiB", "GPU-0002"] in lines
    assert "  1/1 mig 1g.10gb, 3/4 slot  " in result.stdout


async def test_a_name_where_a_verb_belongs_is_answered_with_the_verb_that_was_meant(coordinator: Coordinator) -> None:
    named = await coordinator.muster("nodes", "gpu-01")
    misspelt = await coordinator.muster("nodes", "cordn", "gpu-01")

    assert (named.exit_code, coordinator.asked) == (2, [])
    assert "No such command 'gpu-01'. Did you mean `muster nodes get gpu-01`?" in named.stderr
    assert "Did you mean cordon" in misspelt.stderr
