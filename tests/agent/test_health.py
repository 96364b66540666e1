from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.health import Health
from muster_agent.core.marks import OBSERVE_MS, PROBE_MS
from muster_agent.core.readings import GpuEvent, GpuReading, NodeReading
from muster_agent.core.xids import xid
from muster_agent.drivers.fake import fake_host
from tests.support.judged import ABSENT, GPU, LOG, NO_LOG, NODE, OTHER, WALL_MS, Agent, reading


@pytest.fixture
def agent() -> Agent:
    return Agent(Health()).read()


def test_a_healthy_node_holds_nothing(agent: Agent) -> None:
    assert agent.held == []


def test_a_hardware_fault_holds_its_gpu_and_says_how_it_ends(agent: Agent) -> None:
    agent.wait(1_234).nvml(48)
    [hold] = agent.health.holds

    assert (hold.device, hold.cause, hold.code, hold.since_ms, hold.clears_by, hold.message) == (
        GPU,
        "xid",
        48,
        WALL_MS + 1_234,
        "gpuResetVerified",
        "uncorrectable ECC error",
    )


def test_faults_of_a_tenants_program_never_hold_a_gpu(agent: Agent) -> None:
    """Case A27."""
    for _ in range(100):
        for code in (8, 13, 31, 43, 45, 68, 69):
            agent.nvml(code).line(code).wait(1_000)

    assert agent.read().held == []


def test_the_worst_fault_counts_and_not_the_last(agent: Agent) -> None:
    """Case A28."""
    assert agent.nvml(62).nvml(45).read().held == [(GPU, "xid", 62)]


def test_a_code_that_nobody_listed_is_held_and_watched(agent: Agent) -> None:
    agent.nvml(7_777).nvml(999)

    assert agent.held == [(GPU, "xid", 999), (GPU, "xid", 7_777)]
    agent.probe().wait(OBSERVE_MS - PROBE_MS - 1).read()
    assert len(agent.held) == 2
    assert agent.wait(1).read().held == []


# What ends a hold


def test_quiet_time_ends_no_hold(agent: Agent) -> None:
    agent.nvml(48)
    for _ in range(50):
        agent.wait(3_600_000).read()

    assert agent.held == [(GPU, "xid", 48)]


@pytest.mark.parametrize("code", [48, 79, 94, 109, 999])
def test_a_restart_of_the_agent_ends_no_hold(agent: Agent, code: int) -> None:
    """Case A30."""
    assert agent.nvml(code).read().restart().read().held == [(GPU, "xid", code)]


def test_a_reset_that_was_seen_ends_the_hold(agent: Agent) -> None:
    """Cases A29, A31: the GPU was away and reads well again."""
    assert agent.nvml(119).read(reading(lost=True)).held == [(GPU, "deviceLost", None), (GPU, "xid", 119)]
    assert agent.read().held == []


@pytest.mark.parametrize(
    "ill",
    [
        {"recovery_action": 1},
        {"remap_pending": True},
        {"remap_failed": True},
        {"fabric": fake_host("one", cluster="c").gpus[0].fabric.model_copy(update={"state": "inProgress"})},  # type: ignore[union-attr]  # it has one
    ],
)
def test_a_reset_is_verified_before_it_counts(agent: Agent, ill: dict[str, object]) -> None:
    agent.nvml(119).read(ABSENT).read(reading(**ill))

    assert (GPU, "xid", 119) in agent.held


def test_the_drivers_own_action_going_back_to_none_ends_the_hold(agent: Agent) -> None:
    """Also of XID 79, whose table row asks for a reboot: the driver's word outranks the table."""
    agent.nvml(79).nvml(48).read(reading(recovery_action=1))
    assert agent.held == [(GPU, "recoveryAction", 1), (GPU, "xid", 48), (GPU, "xid", 79)]

    assert agent.read(reading(recovery_action=0)).held == []


def test_a_gpu_off_the_bus_that_only_comes_back_waits_for_the_reboot(agent: Agent) -> None:
    assert agent.nvml(79).read(ABSENT).read().held == [(GPU, "xid", 79)]
    assert agent.reboot().held == [(GPU, "xid", 79)]
    assert agent.read(ABSENT).held == [(GPU, "deviceLost", None), (GPU, "xid", 79)]
    assert agent.read().held == []


def test_a_stepped_wall_clock_is_no_reboot(agent: Agent) -> None:
    """Case A38."""
    agent.nvml(79).read(ABSENT)
    agent.wall_ms -= 86_400_000

    assert agent.read().held == [(GPU, "xid", 79)]


def test_only_an_operator_ends_what_needs_repair(agent: Agent) -> None:
    agent.nvml(64).read(reading(recovery_action=1)).read().reboot().read()
    assert agent.held == [(GPU, "xid", 64)]

    agent.health = agent.health.cleared(GPU, "xid", 64)
    assert agent.read().held == []


def test_an_operator_ends_one_hold_and_no_other(agent: Agent) -> None:
    agent.nvml(48).nvml(62).nvml(48, OTHER)
    agent.health = agent.health.cleared(GPU, "xid", 48)

    assert sorted(agent.held) == sorted([(GPU, "xid", 62), (OTHER, "xid", 48)])


def test_a_contained_memory_error_ends_with_a_probe_where_the_driver_asks_for_nothing(agent: Agent) -> None:
    """Case A31, without any reset: two readings 30 s apart, both without a recovery action."""
    agent.nvml(94).read().wait(PROBE_MS - 1).read()
    assert agent.held == [(GPU, "xid", 94)]
    assert agent.wait(1).read().held == []


def test_a_driver_that_offers_no_recovery_action_passes_no_such_probe(agent: Agent) -> None:
    assert agent.nvml(94).probe(reading(recovery_action=None)).held == [(GPU, "xid", 94)]


def test_a_probe_begins_anew_with_each_fault_and_each_bad_reading(agent: Agent) -> None:
    agent.nvml(94).read().wait(PROBE_MS - 1).nvml(94).read().wait(1).read()
    assert agent.held == [(GPU, "xid", 94)]

    agent.read(reading(remap_pending=True)).wait(PROBE_MS).read()
    assert (GPU, "xid", 94) in agent.held


def test_a_probe_does_not_span_a_restart(agent: Agent) -> None:
    assert agent.nvml(94).read().wait(PROBE_MS).restart().read().held == [(GPU, "xid", 94)]


def test_the_same_fault_after_a_reset_holds_again(agent: Agent) -> None:
    agent.nvml(119).read(ABSENT).nvml(119).read()

    assert agent.held == [(GPU, "xid", 119)]


# States that readings show


def test_a_lost_gpu_is_held_until_it_is_seen_again(agent: Agent) -> None:
    """Case A16."""
    assert agent.read(ABSENT).wait(60_000).read(reading(lost=True)).held == [(GPU, "deviceLost", None)]
    assert agent.health.holds[0].since_ms == WALL_MS
    assert agent.read().held == []


def test_a_lost_gpu_stays_held_over_restart_and_reboot(agent: Agent) -> None:
    assert agent.restart().read(ABSENT).held == [(GPU, "deviceLost", None)]
    assert agent.reboot().read(ABSENT).held == [(GPU, "deviceLost", None)]


def test_a_gpu_that_was_replaced_takes_its_faults_with_it(agent: Agent) -> None:
    agent.nvml(64).read(ABSENT)

    assert agent.read(reading(uuid="GPU-new00000")).held == []


def test_a_pending_row_remap_holds_until_it_is_done(agent: Agent) -> None:
    agent.nvml(63)
    assert agent.held == []  # the remap state decides, not the line
    assert agent.read(reading(remap_pending=True)).held == [(GPU, "rowRemap", None)]
    assert agent.read().held == []


def test_a_failed_row_remap_holds_until_an_operator_accepts_it(agent: Agent) -> None:
    failed = reading(remap_failed=True)
    agent.read(failed).read().restart().read()
    assert agent.held == [(GPU, "rowRemapFailure", None)]

    agent.read(failed)
    agent.health = agent.health.cleared(GPU, "rowRemapFailure", None)
    assert agent.read(failed).restart().read(failed).held == []
    assert agent.read().read(failed).held == [(GPU, "rowRemapFailure", None)]  # a new failure


@pytest.mark.parametrize(
    ("status", "code"),
    [("driverNotLoaded", 9), ("libraryMissing", 12), ("driverMismatch", 18), ("hung", 10), ("error", 999)],
)
def test_nvml_that_does_not_answer_holds_the_node_and_forgets_nothing(agent: Agent, status: str, code: int) -> None:
    """Cases A40, A42: no data is not good health."""
    down = NodeReading(status, message="why\n")  # type: ignore[arg-type]  # one of the literals
    agent.nvml(48).read(ABSENT).read(down)
    assert agent.held == [(None, "nvmlDown", code), (GPU, "deviceLost", None), (GPU, "xid", 48)]
    assert agent.health.holds[0].message == "why "

    assert agent.read(ABSENT).held == [(GPU, "deviceLost", None), (GPU, "xid", 48)]


def test_nvml_that_changes_its_excuse_has_been_down_since_the_first(agent: Agent) -> None:
    agent.read(NodeReading("hung")).wait(10_000).read(NodeReading("error"))

    assert [(hold.code, hold.since_ms) for hold in agent.health.holds] == [(999, WALL_MS)]


def test_a_node_whose_faults_would_pass_unseen_is_held(agent: Agent) -> None:
    """Case A21: both sources down; one of them is enough (A39)."""
    blind = replace(NODE, events="down")

    assert agent.read(blind, NO_LOG).held == [(None, "monitoringDown", None)]
    assert agent.read(blind, LOG).held == []
    assert agent.read(NODE, NO_LOG).held == []


# Always


def test_a_report_can_carry_the_holds_of_the_sickest_node(agent: Agent) -> None:
    codes = [code for code in range(1, 200) if xid(code).effect in {"holdNew", "unbookable"}]
    sick = fake_host("sick", gpus=16)
    agent = Agent(Health()).read(sick)
    for gpu in sick.gpus:
        for code in codes:
            agent.nvml(code, str(gpu.uuid))

    assert len(codes) > 40
    assert len(agent.health.holds) <= 256
    assert {hold.device for hold in agent.health.holds} == {gpu.uuid for gpu in sick.gpus}


def test_a_saved_health_of_another_make_is_refused() -> None:
    with pytest.raises(ValueError, match="clears_by"):
        Health.from_dict({"marks": [{"clears_by": "prayer"}]})


EVENTS = st.one_of(
    st.builds(
        GpuEvent,
        source=st.just("nvml"),
        code=st.sampled_from([13, 48, 63, 79, 94, 145, 154, 999]),
        uuid=st.sampled_from([GPU, OTHER]),
        pci=st.none(),
        boot_ms=st.integers(0, 10**7),
        fatal=st.sampled_from([None, True, False]),
        recovery_action=st.sampled_from([None, 0, 1, 2]),
    ),
    st.builds(
        GpuEvent,
        source=st.just("kernelLog"),
        code=st.sampled_from([48, 79, 145]),
        uuid=st.none(),
        pci=st.sampled_from([NODE.gpus[0].pci, NODE.gpus[1].pci, "0000:99:00"]),
        boot_ms=st.integers(0, 10**7),
        seq=st.integers(0, 9),
    ),
)
READINGS = st.sampled_from(
    [
        NODE,
        ABSENT,
        NodeReading("hung"),
        reading(recovery_action=2, remap_failed=True),
        reading(lost=True),
        replace(NODE, gpus=(GpuReading(None, "", lost=True), *NODE.gpus[1:])),
    ]
)


@given(st.lists(st.one_of(EVENTS, READINGS), max_size=12))
def test_any_history_survives_a_restart_and_fits_the_wire(history: Iterable[GpuEvent | NodeReading]) -> None:
    agent = Agent(Health())
    for step in history:
        agent.wait(7_000)
        if isinstance(step, GpuEvent):
            agent.event(step)
        else:
            agent.read(step)
        before = agent.held
        keys = [mark.key for mark in agent.health.marks]

        assert agent.restart().held == before
        assert len(set(before)) == len(before)
        assert len(set(keys)) == len(keys)
