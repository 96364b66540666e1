"""Faults and lost GPUs, case by case, as the coordinator and the operator are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.marks import PROBE_MS
from muster_agent.core.readings import GpuEvent, GpuReading, KernelLogReading, NodeReading
from muster_agent.core.records import Instance
from muster_agent.core.suspects import WINDOW_MS
from muster_agent.drivers.fake import fake_host, with_mig
from muster_shared.wire import Clearance, MemoryHealth
from tests.support.sensing import GPU, OTHER, WELL, Node, bound, with_gpu

ABSENT = replace(WELL, gpus=WELL.gpus[1:])
SWITCH = "0000:c1:00"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path).look()
    yield made
    made.journal.close()


def memory(**counts: int | bool) -> NodeReading:
    return with_gpu(WELL, 0, memory_health=MemoryHealth(ecc=True, **counts))  # type: ignore[arg-type]  # names of fields


# GPUs that are lost, or others


def test_a14_a_gpu_without_a_handle_is_told_by_its_place_and_the_others_are_inventoried(tmp_path: Path) -> None:
    node = Node(tmp_path / "new").look(replace(ABSENT, gpus=(*ABSENT.gpus, GpuReading(None, "0000:0a:00", lost=True))))

    assert len(node.inventory.gpus) == 7
    assert node.inventory.monitoring.message == "lost and never identified: GPU at 0000:0a:00"
    node.journal.close()


def test_a15_a_gpu_that_is_lost_in_the_middle_of_a_scan_is_held_and_the_others_are_not(node: Node) -> None:
    node.look(with_gpu(WELL, 2, lost=True, error="nvmlDeviceGetComputeRunningProcesses: GPU is lost"))

    assert node.held == [(WELL.gpus[2].uuid, "deviceLost", None)]
    assert [gpu.seen for gpu in node.inventory.gpus] == [number != 2 for number in range(8)]


def test_a16_a_gpu_that_is_missing_stays_listed_under_its_last_uuid(node: Node) -> None:
    node.look(ABSENT).restart().look(ABSENT)

    assert [gpu.uuid for gpu in node.inventory.gpus if not gpu.seen] == [GPU]
    assert node.held == [(GPU, "deviceLost", None)]
    assert node.reason == "gpuMissing"


def test_a18_a_host_that_was_swapped_has_the_new_gpus_only_and_says_so(node: Node) -> None:
    """Also where the new ones sit at other places; what the old ones were held for went with them."""
    other = fake_host("another", gpus=4)
    moved = replace(
        other, gpus=tuple(replace(gpu, pci=f"0009:{number:02x}:00") for number, gpu in enumerate(other.gpus))
    )
    node.nvml(64).look().restart("boot-2").look(moved)

    assert [gpu.uuid for gpu in node.inventory.gpus] == [gpu.uuid for gpu in moved.gpus]
    assert node.held == []
    assert node.finding("hardwareReplaced").count == 8
    assert node.look(moved, times=3).causes == ["hardwareReplaced"]  # for a day


def test_a21_a_node_that_would_not_see_a_fault_takes_no_new_work(node: Node) -> None:
    node.log = KernelLogReading("down", "no permission")
    node.look(replace(WELL, events="down"))

    assert node.held == [(None, "monitoringDown", None)]
    assert (node.inventory.monitoring.events, node.inventory.monitoring.kernel_log) == ("down", "down")


def test_a54_mig_instances_are_inventoried_and_are_the_devices_in_place_of_their_gpu(node: Node) -> None:
    split = with_mig(WELL, 0, 3, 3)
    node.look(split)
    told = node.inventory.gpus[0]

    assert (told.mig_mode, told.mig_slices_max) == (True, 7)
    assert [(one.profile, one.slices) for one in told.mig] == [("3g.30gb", 3)] * 2
    assert node.senses.facts is not None
    assert {one.uuid for one in told.mig} < node.senses.facts.devices
    assert GPU not in node.senses.facts.devices

    before = node.senses.inventory_hash
    assert node.look(with_mig(WELL, 0, 3)).senses.inventory_hash != before


# Who tells of faults, and how often


def test_a25_a_number_whose_line_says_nonfatal_holds_nothing(node: Node) -> None:
    node.nvml(145).wait(1_000).line(145, fatal=False).look(times=5)

    assert node.held == []
    assert node.finding("xid").code == 145


def test_a27_faults_of_one_assignments_program_hold_nothing_and_are_told(node: Node) -> None:
    node.records = (bound("alloc_1", "acme", GPU),)
    for _ in range(50):
        for code in (31, 13, 43, 45):
            node.nvml(code).line(code)
    node.look()

    assert node.held == []
    told = {finding.code: (finding.device, finding.count) for finding in node.inventory.findings}
    assert told == dict.fromkeys((13, 31, 43, 45), (GPU, 32))  # at least 32 of the 50


def test_a27_a_gpu_on_which_three_assignments_of_two_tenants_failed_within_a_day_is_suspect(node: Node) -> None:
    for number, tenant in enumerate(("acme", "acme", "umbrella")):
        assert node.held == []
        node.records = (bound(f"alloc_{number}", tenant, GPU), bound("alloc_x", "other", OTHER))
        node.nvml(31).wait(WINDOW_MS // 3)

    assert node.held == [(GPU, "suspect", 31)]
    assert node.restart().look().held == [(GPU, "suspect", 31)]
    [hold] = node.senses.holds
    node.senses.obey([Clearance(device=GPU, cause="suspect", code=31, since_ms=hold.since_ms)])
    assert node.nvml(31).look().held == []  # acquitted of what was before


def test_a27_one_tenants_bug_makes_no_gpu_suspect_and_is_wondered_at(node: Node) -> None:
    """Else a tenant could take every GPU out of service, job by job."""
    for number in range(5):
        node.records = (bound(f"alloc_{number}", "acme", GPU),)
        node.nvml(31)
    node.look()

    assert node.held == []
    assert (node.finding("suspect").device, node.finding("suspect").count) == (GPU, 5)


def test_a27_faults_a_day_apart_and_faults_that_several_could_have_had_count_for_nobody(node: Node) -> None:
    for number, tenant in enumerate(("acme", "umbrella", "stark")):
        node.records = (bound(f"alloc_{number}", tenant, GPU),)
        node.nvml(31).wait(WINDOW_MS // 2 + 1)
    for number, tenant in enumerate(("a", "b", "c")):
        node.records = (bound(f"alloc_s{number}", tenant, GPU), bound("alloc_t", "t", GPU, shared=True))
        node.nvml(31)

    assert node.held == []


def test_a27_a_fault_of_a_mig_instance_is_its_tenants(node: Node) -> None:
    parts = [Instance(f"MIG-000{number}", GPU, number, 0) for number in (1, 2)]
    for number, tenant in enumerate(("acme", "umbrella", "stark")):
        node.records = (
            bound(f"alloc_{number}", tenant, parts[0].uuid, instances=(parts[0],)),
            bound("alloc_n", "neighbour", parts[1].uuid, instances=(parts[1],)),
        )
        node.nvml(31, instance="1/0").nvml(13, instance="2/0")

    assert node.held == [(GPU, "suspect", 31)]


def test_a28_a_worse_fault_is_not_hidden_by_the_one_after_it(node: Node) -> None:
    node.nvml(62).nvml(45).nvml(31).nvml(31).look()

    assert node.held == [(GPU, "xid", 62)]
    assert {finding.code: finding.count for finding in node.inventory.findings} == {31: 2, 45: 1, 62: 1}


def test_a29_a_fault_that_was_repaired_is_history_and_no_hold(node: Node) -> None:
    node.nvml(119).look(ABSENT).look()

    assert node.held == []
    assert (node.finding("xid").code, node.finding("xid").count) == (119, 1)


def test_a30_a_hold_is_on_disk_before_the_next_reading(node: Node) -> None:
    assert node.nvml(48).restart().look().held == [(GPU, "xid", 48)]


def test_a31_a_gpu_comes_back_by_its_rule_without_a_restart(node: Node) -> None:
    node.nvml(94).look(ABSENT)
    assert node.look().held == []


def test_a32_a_storm_changes_what_is_told_a_few_times_only(node: Node) -> None:
    """Two hundred thousand lines of one fault."""
    told = set[str]()
    for _ in range(20):
        for _ in range(10):
            node.line(95, count=1_000)
        node.look()
        told.add(node.senses.inventory_hash)

    assert node.held == [(GPU, "xid", 95)]
    assert len(told) <= 6
    assert node.finding("xid").count == 131_072


def test_a34_a_gap_in_the_kernel_log_is_told_and_the_reading_says_what_was_missed(node: Node) -> None:
    node.log = KernelLogReading("ok", gaps=1)
    node.look(with_gpu(WELL, 0, recovery_action=1))

    assert node.held == [(GPU, "recoveryAction", 1)]
    assert node.finding("kernelLogGap").count == 1


def test_a35_faults_of_before_the_agent_hold_only_as_long_as_the_driver_wants(tmp_path: Path) -> None:
    """Its first start on a host that was repaired days ago: old lines, and a driver that asks for nothing."""
    node = Node(tmp_path / "first").line(119, live=False).look()
    assert node.held == [(GPU, "xid", 119)]

    node.wait(PROBE_MS).look()
    assert node.held == []
    node.line(119).wait(PROBE_MS).look().look()  # one that is seen to happen waits for its reset
    assert node.held == [(GPU, "xid", 119)]
    node.journal.close()


def test_a35_an_old_line_read_again_makes_no_hold_laxer(node: Node) -> None:
    node.nvml(119).line(119, live=False).look(times=20)

    assert [hold.clears_by for hold in node.senses.holds] == ["gpuResetVerified"]


def test_a35_old_holds_of_another_boot_end_by_its_reboot(node: Node) -> None:
    node.nvml(79).nvml(48).restart("boot-2").look()

    assert node.held == []


def test_a37_a38_clocks_that_jump_end_nothing_and_begin_nothing(node: Node) -> None:
    node.nvml(79).look(ABSENT)
    node.clock.wall_ms -= 86_400_000
    node.look()
    assert node.held == [(GPU, "xid", 79)]

    node.clock.wall_ms += 400 * 86_400_000
    assert node.look(times=2).restart().look().held == [(GPU, "xid", 79)]


def test_a39_a_kernel_log_that_may_not_be_read_is_half_the_monitoring_and_no_hold(node: Node) -> None:
    node.log = KernelLogReading("down", "/dev/kmsg: Operation not permitted")
    node.look()

    assert node.held == []
    assert node.inventory.monitoring.kernel_log == "down"
    assert node.inventory.monitoring.message == "/dev/kmsg: Operation not permitted"
    assert node.nvml(48).held == [(GPU, "xid", 48)]


def test_a40_a42_nvml_that_does_not_start_holds_the_node_by_its_own_name_until_it_does(node: Node) -> None:
    for status, code in (("driverNotLoaded", 9), ("libraryMissing", 12), ("driverMismatch", 18), ("hung", 10)):
        node.look(NodeReading(status, message="why"))  # type: ignore[arg-type]  # one of the literals
        assert node.held == [(None, "nvmlDown", code)]
        assert node.inventory.monitoring.nvml == status
    assert len(node.inventory.gpus) == 8

    assert node.look().held == []


DAY_MS = 86_400_000


def again(node: Node, code: int) -> str:
    """The fault strikes; answer what ends its hold."""
    [hold] = node.nvml(code).senses.holds
    return hold.clears_by


def test_a_fault_that_comes_back_within_its_time_asks_for_more_each_time(node: Node) -> None:
    """First a reset, then a reboot, then a person: the same code on the same GPU."""
    assert again(node, 119) == "gpuResetVerified"
    node.look(ABSENT).look().wait(6 * DAY_MS)
    assert again(node, 119) == "nodeRebootVerified"
    assert node.look(ABSENT).look().held == [(GPU, "xid", 119)]
    node.restart("boot-2").look().wait(29 * DAY_MS)
    assert again(node, 119) == "operator"
    [hold] = node.senses.holds
    assert hold.message == "GSP firmware RPC timeout (again)"

    node.senses.obey([Clearance(device=GPU, cause="xid", code=119, since_ms=hold.since_ms)])
    node.look().wait(31 * DAY_MS)
    assert again(node, 119) == "gpuResetVerified"  # long ago


def test_a_fault_that_comes_back_after_its_time_or_elsewhere_is_a_first_one(node: Node) -> None:
    node.nvml(119).look(ABSENT).look()
    node.nvml(119, OTHER)
    assert [hold.clears_by for hold in node.senses.holds] == ["gpuResetVerified"]
    node.look(replace(WELL, gpus=(WELL.gpus[0], *WELL.gpus[2:]))).look().wait(7 * DAY_MS + 1)

    assert again(node, 119) == "gpuResetVerified"


def test_a_contained_memory_error_twice_in_a_day_asks_for_a_reset(node: Node) -> None:
    node.nvml(94).look().wait(PROBE_MS).look()
    assert node.held == []

    assert again(node, 94) == "gpuResetVerified"


def test_a_gpu_that_fell_off_the_bus_twice_asks_for_a_person(node: Node) -> None:
    node.nvml(79).restart("boot-2").look()

    assert again(node, 79) == "operator"


def test_a27_the_wall_clock_counts_only_over_a_reboot(node: Node) -> None:
    def hit(number: int, tenant: str) -> None:
        node.records = (bound(f"alloc_{number}", tenant, GPU),)
        node.nvml(31)

    hit(1, "acme")
    node.clock.wall_ms += 10 * DAY_MS  # a step, not a week and a half
    hit(2, "umbrella")
    node.clock.wall_ms += 10 * DAY_MS
    node.restart("boot-2").look()
    hit(3, "stark")  # the boot was really that long
    assert node.held == []

    hit(4, "acme")
    hit(5, "umbrella")
    assert node.held == [(GPU, "suspect", 31)]


# What readings show


def test_uncorrectable_errors_that_no_xid_told_of_hold_their_gpu(node: Node) -> None:
    """XID lines can be switched off in the driver, and NVML's events be lost."""
    assert node.look(memory(uncorrected=3)).held == []  # from before anybody looked

    node.look(memory(uncorrected=5))
    [hold] = node.senses.holds
    assert (hold.device, hold.cause, hold.clears_by) == (GPU, "eccErrors", "recoveryActionNone")
    assert hold.message == "2 new uncorrectable memory errors"
    assert node.restart().look(memory(uncorrected=5)).held == [(GPU, "eccErrors", None)]
    assert node.wait(PROBE_MS).look(memory(uncorrected=5)).held == []


def test_uncorrectable_errors_that_an_xid_told_of_are_that_fault(node: Node) -> None:
    node.look(memory()).nvml(94).look(memory(uncorrected=1))

    assert node.held == [(GPU, "xid", 94)]


def test_a_counter_that_began_anew_has_not_risen(node: Node) -> None:
    assert node.look(memory(uncorrected=5)).look(memory()).look(memory(uncorrected=0)).held == []


def test_more_sram_errors_than_the_makers_limit_hold_until_an_operator_accepts_them(node: Node) -> None:
    worn = memory(sram_exceeded=True)
    [hold] = node.look(worn).senses.holds
    assert (hold.cause, hold.clears_by) == ("sramErrors", "operator")

    node.senses.obey([Clearance(device=GPU, cause="sramErrors", since_ms=hold.since_ms)])
    assert node.look(worn).restart().look(worn).held == []
    assert node.look(memory()).look(worn).held == [(GPU, "sramErrors", None)]


def test_what_slows_a_gpu_down_is_told_once_it_lasts_and_until_it_has_long_been_gone(node: Node) -> None:
    hot = with_gpu(WELL, 0, slowdowns=("hwThermal",))
    node.look(hot, times=3).look().look(hot, times=3)
    assert node.causes == []

    node.look(hot, times=4)
    assert node.finding("slowdown").message == "it is too hot for its hardware"
    assert node.held == []
    assert node.look(times=119).causes == ["slowdown"]
    assert node.look(times=2).causes == []


def test_links_that_are_down_are_told_by_number(node: Node) -> None:
    node.look(with_gpu(WELL, 0, links=18, links_down=(3, 7)), times=7)

    assert node.finding("nvlinkDown").message == "2 of 18 NVLinks are down: 3, 7"
    assert (node.inventory.gpus[0].links, node.inventory.gpus[0].links_down) == (18, [3, 7])


def test_persistence_that_is_off_and_reads_that_fail_are_told_and_hold_nothing(node: Node) -> None:
    node.look(with_gpu(WELL, 0, persistence=False, error="nvmlDeviceGetName: Unknown Error"), times=7)

    assert sorted(node.causes) == ["persistenceOff", "readError"]
    assert node.held == []


def test_an_nvswitch_that_fails_is_told_and_is_no_gpu(node: Node) -> None:
    switch = GpuEvent("kernelLog", 20_034, None, SWITCH, 0, seq=9, fatal=True, detail="Fatal, Link 30", kind="sxid")
    node.event(switch).look()

    assert node.held == []
    assert (node.finding("sxid").code, node.finding("sxid").message) == (
        20_034,
        "NVSwitch 0000:c1:00: SXid 20034, fatal, once in this boot",
    )


def test_what_only_changed_is_no_fault(node: Node) -> None:
    node.event(GpuEvent("nvml", 0, GPU, None, 0, text="MIG configuration", kind="changed")).look()

    assert (node.held, node.causes) == ([], [])


def test_counts_of_corrected_errors_do_not_make_every_reading_another_inventory(node: Node) -> None:
    hashes = set[str]()
    for corrected in range(1_024, 2_048, 64):
        hashes.add(node.look(memory(corrected=corrected), times=1).senses.inventory_hash)

    assert len(hashes) == 1
    assert node.inventory.gpus[0].memory_health is not None
    assert node.inventory.gpus[0].memory_health.corrected == 1_024
