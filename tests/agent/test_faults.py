"""What two sources tell of faults, and what the driver itself asks for."""

from dataclasses import replace

import pytest

from muster_agent.core.health import SEVERITY_WAIT_MS, Health
from muster_agent.core.tallies import MERGE_MS
from tests.support.judged import ABSENT, GPU, NO_LOG, NODE, WALL_MS, Agent, reading


@pytest.fixture
def agent() -> Agent:
    return Agent(Health()).read()


# Two sources


def test_both_sources_tell_of_one_fault(agent: Agent) -> None:
    agent.nvml(48).wait(30).line(48)

    assert agent.held == [(GPU, "xid", 48)]
    assert [tally.count for tally in agent.health.tallies] == [1]


def test_equal_faults_in_a_row_are_counted(agent: Agent) -> None:
    """Case A28: 31 twice is two faults, of which one source told both and the other one."""
    agent.nvml(31).nvml(31).wait(MERGE_MS).line(31)
    assert [tally.count for tally in agent.health.tallies] == [2]

    agent.wait(1).line(31)
    assert [tally.count for tally in agent.health.tallies] == [3]


def test_faults_of_two_mig_instances_are_two(agent: Agent) -> None:
    agent.nvml(94, instance="1/0").nvml(94, instance="2/0").line(94, instance="1/0")

    assert sorted((tally.instance, tally.count) for tally in agent.health.tallies) == [("1/0", 1), ("2/0", 1)]
    assert agent.held == [(GPU, "xid", 94)]


def test_a_storm_of_one_fault_is_one_hold_that_does_not_change(agent: Agent) -> None:
    """Case A32."""
    first = agent.line(95).health.holds
    for _ in range(2_000):
        agent.wait(10).line(95)

    assert agent.health.holds == first
    assert [tally.count for tally in agent.health.tallies] == [2_001]


def test_history_survives_what_ended_the_hold(agent: Agent) -> None:
    """Case A29."""
    agent.nvml(119).read(ABSENT).read().restart()

    assert (agent.held, [tally.count for tally in agent.health.tallies]) == ([], [1])


def test_a_kernel_log_that_is_read_again_tells_nothing_new(agent: Agent) -> None:
    """Case A35: a hold that ended stays ended when the agent starts and reads the ring from its start."""
    agent.line(48).line(119).read(ABSENT).read().restart()
    agent.seq = 0

    assert agent.line(48).line(119).held == []
    assert agent.line(62).held == [(GPU, "xid", 62)]


def test_record_numbers_begin_again_with_each_boot(agent: Agent) -> None:
    assert agent.line(13).line(13).reboot().line(48).held == [(GPU, "xid", 48)]


def test_a_fault_from_before_the_first_reading_holds_the_node_until_its_gpu_is_named() -> None:
    agent = Agent(Health()).line(48)
    assert agent.held == [(None, "xid", 48)]
    assert agent.health.holds[0].message == "uncorrectable ECC error (GPU at 0000:0a:00)"

    assert agent.read().held == [(GPU, "xid", 48)]


def test_a_fault_known_by_place_and_by_name_is_one_once_the_place_is_named() -> None:
    agent = Agent(Health()).line(48).wait(9).nvml(48).read()

    assert [(mark.uuid, mark.code, mark.since_ms) for mark in agent.health.marks] == [(GPU, 48, WALL_MS)]


def test_a_fault_of_a_gpu_that_nvml_never_named_holds_nobody_else(agent: Agent) -> None:
    assert agent.line(79, "0000:99:00").read().held == []


# NVLink 5: the severity is in the kernel line only


@pytest.mark.parametrize("first", ["nvml", "kernelLog"])
def test_a_nonfatal_link_error_holds_nothing(agent: Agent, first: str) -> None:
    """Case A25, whichever source is first."""
    if first == "nvml":
        agent.nvml(145).wait(1_000).line(145, fatal=False)
    else:
        agent.line(145, fatal=False).wait(1_000).nvml(145)

    assert agent.read().wait(SEVERITY_WAIT_MS).read().held == []


def test_a_fatal_link_error_holds_until_a_reset(agent: Agent) -> None:
    agent.nvml(145).line(145, fatal=True)

    assert [(hold.code, hold.clears_by) for hold in agent.health.holds] == [(145, "gpuResetVerified")]
    assert agent.wait(SEVERITY_WAIT_MS).read().held == [(GPU, "xid", 145)]


def test_a_number_without_its_line_waits_and_then_holds(agent: Agent) -> None:
    agent.nvml(145).read().wait(SEVERITY_WAIT_MS - 1).read()
    assert agent.held == []

    agent.wait(1).read()
    assert [(hold.code, hold.clears_by) for hold in agent.health.holds] == [(145, "recoveryActionNone")]


def test_a_number_does_not_wait_for_a_log_that_cannot_be_read(agent: Agent) -> None:
    assert agent.nvml(145).read(log=NO_LOG).held == [(GPU, "xid", 145)]


def test_a_line_without_the_word_is_taken_for_fatal(agent: Agent) -> None:
    assert agent.line(145).held == [(GPU, "xid", 145)]


def test_a_number_that_waits_survives_a_reboot(agent: Agent) -> None:
    agent.nvml(145).reboot().read(ABSENT)

    assert (GPU, "xid", 145) in agent.held


# The driver's own word


@pytest.mark.parametrize(
    ("action", "device"), [(1, GPU), (2, None), (3, GPU), (4, GPU), (5, None), (6, GPU), (7, None), (42, GPU)]
)
def test_a_recovery_action_holds_until_the_driver_takes_it_back(agent: Agent, action: int, device: str | None) -> None:
    agent.read(reading(recovery_action=action))
    assert agent.held == [(device, "recoveryAction", action)]

    assert agent.read().held == []


def test_a_recovery_action_outranks_a_harmless_row_of_the_table(agent: Agent) -> None:
    assert agent.nvml(31).read(reading(recovery_action=1)).held == [(GPU, "recoveryAction", 1)]


def test_xid_154_says_the_action_before_the_next_reading(agent: Agent) -> None:
    old_driver = reading(recovery_action=None)
    assert agent.line(154, recovery_action=2).held == [(None, "recoveryAction", 2)]
    assert agent.read(old_driver).held == [(None, "recoveryAction", 2)]
    assert agent.line(154, recovery_action=1).held == [(GPU, "recoveryAction", 1)]
    assert agent.line(154, recovery_action=0).held == []
    assert agent.line(154).nvml(154).held == []  # a number without its value says nothing


def test_an_action_that_came_and_went_between_two_readings_ends_what_was_before_it(agent: Agent) -> None:
    agent.line(119).line(154, recovery_action=1).line(154, recovery_action=0)
    assert agent.held == [(GPU, "xid", 119)]

    assert agent.read().held == []


def test_two_gpus_that_ask_for_a_reboot_are_one_hold_of_the_node(agent: Agent) -> None:
    both = replace(NODE, gpus=tuple(replace(gpu, recovery_action=2) for gpu in NODE.gpus))

    assert agent.read(both).held == [(None, "recoveryAction", 2)]
    assert agent.read().held == []


def test_an_action_keeps_the_time_at_which_it_was_first_asked_for(agent: Agent) -> None:
    agent.read(reading(recovery_action=1)).wait(5_000).read(reading(recovery_action=2))

    assert [(hold.code, hold.since_ms) for hold in agent.health.holds] == [(2, WALL_MS)]
