"""Faults and lost GPUs, case by case, as the coordinator and the operator are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.core.marks import PROBE_MS
from muster_agent.core.readings import GpuEvent, KernelLogReading, NodeReading
from muster_shared.wire import Clearance, MemoryHealth
from tests.support.sensing import GPU, WELL, Node, bound, with_gpu

ABSENT = replace(WELL, gpus=WELL.gpus[1:])
SWITCH = "0000:c1:00"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path).look()
    yield made
    made.journal.close()


def memory(**counts: int | bool) -> NodeReading:
    return with_gpu(WELL, 0, memory_health=MemoryHealth(ecc=True, **counts))  # type: ignore[arg-type]  # names of fields


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
