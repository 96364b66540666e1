"""Signs become findings without flapping, without flooding a report, and in an order that helps."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.findings import Findings, Sign, at_least
from muster_agent.core.readings import KernelLogReading, NodeReading
from muster_agent.drivers.fake import fake_host, with_mig
from muster_shared.codec import encode
from muster_shared.wire import FINDINGS_MAX, REPORT_BYTES_MAX, Fabric, Hold, MemoryHealth, Report
from tests.support.sensing import Node, with_gpu

SOFT = Sign(3, "slowdown", "hot", lasts_ms=100, gone_ms=1_000)


def told(steps: str, sign: Sign = SOFT) -> str:
    """Fold one reading each 50 ms in, `x` with the sign, `.` without; answer when it is a finding."""
    findings, seen = Findings(), ""
    for number, step in enumerate(steps):
        findings = findings.after([sign] if step == "x" else [], now_ms=7_000 + number, boot_ms=number * 50)
        seen += "x" if findings.told else "."
    return seen


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        ("xxxx", "..xx"),  # at 100 ms it has lasted
        ("xx.xx.xx", "........"),
        ("xxx" + "." * 21, "..x" + "x" * 19 + ".."),  # gone for a whole second
        ("xxx...x" + "." * 21, "..xxxxx" + "x" * 19 + ".."),
    ],
)
def test_a_soft_sign_is_a_finding_once_it_lasts_and_until_it_is_long_gone(steps: str, seen: str) -> None:
    assert told(steps) == seen


def test_a_hard_sign_is_a_finding_at_once_and_only_while_it_is_there() -> None:
    assert told("x.xx.", Sign(0, "p2pCut", "cut")) == "x.xx."


def test_a_finding_keeps_the_time_of_its_first_sign_and_has_the_words_of_its_last() -> None:
    findings = Findings().after([Sign(0, "xid", "once", code=31, count=1)], now_ms=5, boot_ms=0)
    findings = findings.after([Sign(0, "xid", "at least 4 times", code=31, count=4)], now_ms=9, boot_ms=4)

    assert [(one.since_ms, one.message, one.count) for one in findings.told] == [(5, "at least 4 times", 4)]


@given(st.permutations([Sign(rank, "xid", "x", f"GPU-000{rank}", code) for rank in (1, 2) for code in (9, 13)]))
def test_the_gravest_come_first_in_whatever_order_they_are_seen(signs: list[Sign]) -> None:
    findings = Findings().after(signs, now_ms=0, boot_ms=0).told

    assert [(one.device, one.code) for one in findings] == [
        ("GPU-0001", 9),
        ("GPU-0001", 13),
        ("GPU-0002", 9),
        ("GPU-0002", 13),
    ]


@pytest.mark.parametrize(("signs", "rest"), [(FINDINGS_MAX, None), (FINDINGS_MAX + 1, 2), (500, 469)])
def test_more_findings_than_a_person_can_take_in_are_counted(signs: int, rest: int | None) -> None:
    findings = Findings().after([Sign(9, "xid", "x", code=code) for code in range(signs)], now_ms=3, boot_ms=0).told

    assert len(findings) == FINDINGS_MAX
    assert [one.code for one in findings[:-1]] == list(range(FINDINGS_MAX - 1))
    last = findings[-1]
    assert (last.cause, last.count, last.since_ms) == (("more", rest, 3) if rest else ("xid", 0, 3))


def test_counts_are_rounded_down_to_powers_of_two() -> None:
    assert [at_least(count) for count in (0, 1, 2, 3, 4, 7, 8, 200_000)] == [0, 1, 2, 2, 4, 4, 8, 131_072]


def test_the_sickest_node_fits_a_report(tmp_path: Path) -> None:
    """Sixteen split GPUs, all with every fault: more than that is refused unread, and the node would fall silent."""
    fabric = Fabric(state="completed", cluster="9" * 36, clique=2**32 - 1, health="unhealthy", health_mask=2**16 - 1,
                    faults=["routeUnhealthy", "routeRecovery", "accessTimeout", "gpuFirmware"])  # fmt: skip
    sick: NodeReading = fake_host("sick", gpus=16)
    for number in range(16):
        sick = with_mig(sick, number, *[1] * 7)
        sick = with_gpu(sick, number, fabric=fabric, links=18, links_down=tuple(range(18)), error="x" * 256,
                        memory_health=MemoryHealth(ecc=True, uncorrected=10**9, remapped_rows=512))  # fmt: skip
    node = Node(tmp_path)
    node.log = KernelLogReading("ok", gaps=10**6)
    node.look(sick, times=8)
    longest = Hold(device="GPU-" + "0" * 36, cause="recoveryAction", code=10**4, since_ms=2**41,
                   clears_by="recoveryActionNone", message="m" * 120)  # fmt: skip
    report = Report(boot_id="b" * 36, seq=2**40, agent_version="1.2.3", applied_rev=10**6,
                    inventory_hash=node.senses.inventory_hash, inventory=node.inventory,
                    holds=[longest] * 256, assignments=[])  # fmt: skip

    assert len(node.inventory.findings) == FINDINGS_MAX
    assert len(encode(report)) < REPORT_BYTES_MAX
    node.journal.close()
