from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.inventory import SETTLE_MS, InventoryFold
from muster_agent.core.readings import (
    GpuReading,
    HostReading,
    KernelLogReading,
    NodeReading,
    instance_name,
    one_line,
    pci_address,
)
from muster_agent.core.sighting import sighted
from muster_agent.drivers.fake import fake_host
from muster_shared.wire import FABRIC_DOMAIN, GPUS_MAX, Inventory

CLUSTER = "9277d399-0674-a4a9-b64e-d85bb19ce2b0"
ZERO = "00000000-0000-0000-0000-000000000000"
HOST = HostReading("gpu-01", "0123456789abcdef", "boot-1", 96, 2_000_000)
LOG = KernelLogReading("ok")
GOOD = fake_host("one", cluster=CLUSTER, clique=5)


def fold(*readings: NodeReading, every_ms: int = SETTLE_MS, start: InventoryFold | None = None) -> InventoryFold:
    state = start or InventoryFold()
    for number, reading in enumerate(readings):
        state = state.after(reading, HOST, 1_000_000 + number * every_ms, LOG)
    return state


def inventory(state: InventoryFold) -> Inventory:
    assert state.inventory is not None
    return state.inventory


def domain(state: InventoryFold) -> str | None:
    return inventory(state).labels.get(FABRIC_DOMAIN)


def with_gpu(reading: NodeReading, index: int, **fields: object) -> NodeReading:
    gpus = list(reading.gpus)
    gpus[index] = replace(gpus[index], **fields)  # type: ignore[arg-type]  # tests name fields of the reading
    return replace(reading, gpus=tuple(gpus))


def with_fabric(reading: NodeReading, index: int, **fields: object) -> NodeReading:
    fabric = reading.gpus[index].fabric
    assert fabric
    return with_gpu(reading, index, fabric=fabric.model_copy(update=fields))


def without(reading: NodeReading, *indexes: int) -> NodeReading:
    return replace(reading, gpus=tuple(gpu for number, gpu in enumerate(reading.gpus) if number not in indexes))


def test_two_equal_good_readings_five_seconds_apart_name_the_fabric_domain() -> None:
    once = fold(GOOD)
    early = fold(GOOD, GOOD, every_ms=SETTLE_MS - 1)
    twice = fold(GOOD, GOOD)

    assert [(domain(s), inventory(s).fabric_reason) for s in (once, early, twice)] == [
        (None, "settling"),
        (None, "settling"),
        (f"{CLUSTER}.5", None),
    ]


def test_many_readings_in_a_short_time_do_not_settle_a_fabric_sooner() -> None:
    states = [domain(fold(*[GOOD] * count, every_ms=1_000)) is not None for count in range(1, 8)]

    assert states == [False] * 5 + [True] * 2


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (with_fabric(GOOD, 7, state="inProgress"), "inProgress"),
        (with_fabric(GOOD, 7, state="notStarted"), "inProgress"),
        (with_fabric(GOOD, 7, state="unknown"), "error"),
        (with_fabric(GOOD, 7, status=999), "error"),
        (with_fabric(GOOD, 7, clique=6), "gpusDisagree"),
        (with_fabric(GOOD, 7, cluster="0" * 35 + "1"), "gpusDisagree"),
        (with_fabric(GOOD, 7, state="notSupported"), "gpusDisagree"),
        (with_gpu(GOOD, 7, fabric=None), "gpusDisagree"),
        (with_fabric(GOOD, 7, cluster=ZERO), "zeroUuid"),
        (with_fabric(GOOD, 7, health="unhealthy"), "unhealthy"),
        (with_fabric(GOOD, 7, health="limitedCapacity"), "unhealthy"),
        (with_gpu(GOOD, 7, lost=True), "gpuMissing"),
        (without(GOOD, 7), "gpuMissing"),
        (without(GOOD, *range(8)), "gpuMissing"),
        (fake_host("one"), "notSupported"),
        (NodeReading("hung"), "error"),
        (NodeReading("driverNotLoaded"), "error"),
    ],
)
def test_one_bad_reading_clears_the_fabric_domain_and_says_why(bad: NodeReading, reason: str) -> None:
    """Cases A01, A06, A10, A16: one GPU of eight is enough, and a lost one counts."""
    settled = fold(GOOD, GOOD)
    broken = fold(bad, start=settled)
    next_good = fold(GOOD, start=broken)

    assert domain(settled) is not None
    assert (domain(broken), inventory(broken).fabric_reason) == (None, reason)
    assert (domain(next_good), inventory(next_good).fabric_reason) == (None, "settling")


def test_a_changed_clique_must_settle_like_a_new_one() -> None:
    """Case A09."""
    moved = fake_host("one", cluster=CLUSTER, clique=9)

    states = [fold(GOOD, GOOD, moved), fold(GOOD, GOOD, moved, moved), fold(GOOD, moved, GOOD)]

    assert [domain(state) for state in states] == [None, f"{CLUSTER}.9", None]


def test_a_fabric_without_a_cluster_is_no_common_fabric() -> None:
    """Case A05: H100 hosts all say Completed with a zero cluster."""
    hosts = [fold(*[fake_host(name, cluster=ZERO)] * 2) for name in ("one", "two")]

    assert [(domain(state), inventory(state).fabric_reason) for state in hosts] == [(None, "zeroUuid")] * 2


def test_equal_cliques_of_two_clusters_are_two_domains() -> None:
    """Case A10."""
    one = fold(*[fake_host("one", cluster=CLUSTER, clique=5)] * 2)
    two = fold(*[fake_host("two", cluster="8" + CLUSTER[1:], clique=5)] * 2)

    assert domain(one) != domain(two)


def test_a_host_without_a_fabric_is_well_whatever_its_name() -> None:
    """Case A07: a GH200 without NVSwitch."""
    reading = fake_host("gh", gpus=1)
    state = fold(with_gpu(reading, 0, model="NVIDIA GH200 480GB"))

    assert (inventory(state).fabric_reason, state.missing) == ("notSupported", ())


def test_a_host_without_gpus_has_no_fabric_and_nothing_is_missing() -> None:
    state = fold(NodeReading("ok", events="ok"))

    assert (inventory(state).fabric_reason, inventory(state).gpus, state.missing) == ("notSupported", [], ())


@given(st.lists(st.sampled_from([GOOD, without(GOOD, 3), NodeReading("hung"), fake_host("one")]), min_size=1))
def test_a_named_domain_rests_on_two_equal_good_readings(readings: list[NodeReading]) -> None:
    state = fold(*readings, start=fold(fake_host("one")))  # all eight are known
    expected = readings[-2:] == [GOOD, GOOD]

    assert (domain(state) is not None) == expected
    assert (inventory(state).fabric_reason is None) == expected


def test_a_lost_gpu_stays_listed_with_its_last_facts() -> None:
    """Case A16."""
    uuid = GOOD.gpus[3].uuid
    before, after = fold(GOOD), fold(GOOD, without(GOOD, 3))

    assert len(inventory(after).gpus) == 8
    assert after.missing == (uuid,)
    [lost] = [gpu for gpu in inventory(after).gpus if not gpu.seen]
    [same] = [gpu for gpu in inventory(before).gpus if gpu.uuid == uuid]
    assert lost == same.model_copy(update={"seen": False, "fabric": None})
    assert inventory(after).labels["gpu.count"] == "8"


def test_a_restart_of_the_agent_forgets_no_gpu() -> None:
    before = fold(GOOD, GOOD)
    restarted = InventoryFold.from_dict(before.to_dict())
    after = fold(without(GOOD, 3), start=restarted)

    assert after.missing == (GOOD.gpus[3].uuid,)
    assert fold(GOOD, start=restarted).inventory == fold(GOOD).inventory


def restarted(before: InventoryFold, reading: NodeReading, host: HostReading = HOST) -> InventoryFold:
    return InventoryFold.from_dict(before.to_dict()).after(reading, host, 1_000_000 + 2 * SETTLE_MS, LOG)


def test_a_restart_of_the_agent_keeps_the_label_that_its_first_reading_confirms() -> None:
    assert domain(restarted(fold(GOOD, GOOD), GOOD)) == f"{CLUSTER}.5"


def test_a_restart_of_the_agent_keeps_no_label_that_its_first_reading_does_not_confirm() -> None:
    other = fake_host("one", cluster=CLUSTER, clique=6)

    assert domain(restarted(fold(GOOD, GOOD), other)) is None
    assert domain(restarted(fold(GOOD, without(GOOD, 3)), GOOD)) is None


def test_a_reboot_lets_the_label_settle_anew() -> None:
    assert domain(restarted(fold(GOOD, GOOD), GOOD, replace(HOST, boot_id="boot-2"))) is None


def test_a_saved_inventory_of_another_make_is_refused() -> None:
    with pytest.raises(ValueError, match="uuid"):
        InventoryFold.from_dict({"gpus": [{"name": "x"}]})


def test_while_nvml_is_down_the_gpus_stay_as_they_were_last_seen() -> None:
    """It is the eyes that are shut: the hold `nvmlDown` says so, the inventory keeps what it knows."""
    up = fold(GOOD, without(GOOD, 3))
    down = fold(NodeReading("hung", message="no answer"), start=up)

    assert inventory(down).gpus == inventory(up).gpus
    assert inventory(down).driver_version == "580.95.05"
    assert (inventory(down).monitoring.nvml, inventory(down).monitoring.message) == ("hung", "no answer")


def test_gpus_are_known_by_uuid_whatever_their_order() -> None:
    """Case A14: indexes move when a GPU drops."""
    shuffled = replace(GOOD, gpus=GOOD.gpus[::-1])

    assert fold(shuffled).hash == fold(GOOD).hash


def test_a_new_gpu_in_the_slot_of_a_lost_one_has_replaced_it() -> None:
    swapped = with_gpu(GOOD, 3, uuid="GPU-new00000")
    state = fold(GOOD, swapped)

    assert state.missing == ()
    assert {gpu.uuid for gpu in inventory(state).gpus} == {gpu.uuid for gpu in swapped.gpus}


def test_a_known_gpu_that_moved_to_the_slot_of_a_lost_one_has_not_replaced_it() -> None:
    moved = without(with_gpu(GOOD, 4, pci=GOOD.gpus[3].pci), 3)

    assert fold(GOOD, moved).missing == (GOOD.gpus[3].uuid,)


def test_a_host_whose_gpus_were_all_swapped_has_the_new_ones_only() -> None:
    """Case A18."""
    new = fake_host("another")

    assert {gpu.uuid for gpu in inventory(fold(GOOD, new)).gpus} == {gpu.uuid for gpu in new.gpus}


@given(st.lists(st.integers(0, 40), unique=True), st.lists(st.integers(0, 40), unique=True, max_size=GPUS_MAX))
def test_the_expected_set_has_all_that_answer_and_fits_the_wire(known: list[int], now: list[int]) -> None:
    gpus = [GpuReading(f"GPU-{number:04}", f"0000:{number:02x}:00") for number in now]
    sighting = sighted({f"GPU-{number:04}": f"0000:{number:02x}:00" for number in known[:GPUS_MAX]}, gpus)

    swapped = bool(now) and not set(known[:GPUS_MAX]) & set(now)  # A18: another host under the same disk

    assert set(sighting.answering) == {gpu.uuid for gpu in gpus} <= set(sighting.expected)
    assert len(sighting.expected) == (len(now) if swapped else min(GPUS_MAX, len({*known[:GPUS_MAX], *now})))
    assert set(sighting.missing) | set(sighting.answering) == set(sighting.expected)


@pytest.mark.parametrize(
    ("nameless", "missing", "unidentified"),
    [
        (["0000:0d:00"], 1, ()),  # the slot of a known GPU: that is the one
        ([""], 1, ()),  # no slot told: most likely the known one that is missing
        (["", ""], 1, ("",)),
        (["0000:99:00"], 1, ("0000:99:00",)),
        (["0000:0d:00", ""], 1, ("",)),
    ],
)
def test_a_lost_gpu_without_a_name_is_taken_for_the_one_that_is_missing(
    nameless: list[str], missing: int, unidentified: tuple[str, ...]
) -> None:
    known = {str(gpu.uuid): gpu.pci for gpu in GOOD.gpus}
    lost = tuple(GpuReading(None, pci, lost=True) for pci in nameless)
    sighting = sighted(known, (*without(GOOD, 3).gpus, *lost))

    assert (len(sighting.missing), sighting.unidentified) == (missing, unidentified)


def test_a_gpu_lost_before_anyone_knew_it_is_told_by_its_place() -> None:
    """Case A14: the other GPUs are inventoried."""
    state = fold(replace(GOOD, gpus=(*GOOD.gpus[:7], GpuReading(None, "0000:11:00", lost=True))))

    assert len(inventory(state).gpus) == 7
    assert inventory(state).fabric_reason == "gpuMissing"
    assert inventory(state).monitoring.message == "lost and never identified: GPU at 0000:11:00"


def test_labels_name_what_all_gpus_share() -> None:
    mixed = with_gpu(with_gpu(GOOD, 0, memory_mib=40_000), 1, model="NVIDIA A100")

    assert inventory(fold(GOOD)).labels == {
        "gpu.count": "8",
        "gpu.model": "NVIDIA H100 80GB HBM3",
        "gpu.memoryMib": "81559",
        "driver.version": "580.95.05",
    }
    assert inventory(fold(mixed)).labels.keys() == {"gpu.count", "driver.version"}


def test_what_a_driver_prints_always_fits_the_wire() -> None:
    odd = replace(with_gpu(fake_host("odd", gpus=1), 0, model="GPU (TM)\n\u202e" + "x" * 400), message="a\x00b")
    told = inventory(fold(odd))

    assert told.labels["gpu.model"] == ("GPU -TM-  " + "x" * 400)[:128]
    assert told.monitoring.message == "a b"


def test_equal_inventories_have_equal_hashes_and_others_do_not() -> None:
    assert fold(GOOD).hash == fold(GOOD).hash
    assert fold(GOOD).hash != fold(GOOD, GOOD).hash
    assert len(fold(GOOD).hash) == 64
    assert InventoryFold().hash == ""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000009:01:00.0", "0009:01:00"),
        ("0009:01:00", "0009:01:00"),
        ("00010000:AB:1F.0", "10000:ab:1f"),
        ("01:00.0", "0000:01:00"),
        ("GPU-1", None),
        ("0009:001:00", None),
    ],
)
def test_pci_addresses_are_compared_as_numbers(text: str, address: str | None) -> None:
    """Case A26: NVML and the kernel write the same place in two ways."""
    assert pci_address(text) == address


def test_a_mig_instance_has_one_name_whichever_source_tells_of_it() -> None:
    assert [instance_name(1, None), instance_name(1, 0), instance_name(11, 2)] == ["1/", "1/0", "11/2"]


@given(st.text())
def test_any_text_is_made_one_line(text: str) -> None:
    line = one_line(text)

    assert len(line) <= 256
    assert line == "" or line.isprintable()
