from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_agent.core.kernel_log import KernelLog
from muster_agent.core.readings import GpuEvent

NOW_MS = 9_000_000


def record(text: str, *, seq: int = 1, usec: int = 5_000_000, facility: int = 0) -> bytes:
    return f"{facility << 3 | 4},{seq},{usec},-,caller=T1;{text}".encode()


def told(*texts: str, log: KernelLog | None = None) -> list[GpuEvent]:
    return told_records(map(record, texts), log)


def told_records(records: Iterable[bytes], log: KernelLog | None = None) -> list[GpuEvent]:
    state, events = log or KernelLog(), []
    for one in records:
        state, event = state.after(one, NOW_MS, live=True)
        events += [event] if event else []
    return events


@pytest.mark.parametrize(
    ("line", "code", "pci", "instance"),
    [
        ("NVRM: Xid (PCI:0000:0a:00): 48, An uncorrectable error", 48, "0000:0a:00", None),
        ("NVRM: Xid (PCI:0000:0a:00): 79", 79, "0000:0a:00", None),
        ("NVRM: Xid (PCI:0009:01:00): 13, pid=77, name=python, Graphics Exception", 13, "0009:01:00", None),
        ("NVRM: Xid (PCI:0009:01:00): 13, pid='<unknown>', name=<unknown>, Graphics", 13, "0009:01:00", None),
        ("NVRM: Xid (PCI:10000:01:00): 31, MMU Fault", 31, "10000:01:00", None),
        ("NVRM: Xid (PCI:0000:0A:00 GPU-I:01): 94, pid=1, name=a, Contained", 94, "0000:0a:00", "1/"),
        ("NVRM: Xid (PCI:0000:0a:00 GPU-I:11 GPU-CI:02): 94, Contained", 94, "0000:0a:00", "11/2"),
        ("NVRM: Xid (PCI:0000:0a:00): 45, pid=1, name=a, Ch 0000, caused by previous Xid 94", 45, "0000:0a:00", None),
    ],
)
def test_every_form_of_an_xid_line_is_read(line: str, code: int, pci: str, instance: str | None) -> None:
    """Case A26 among them: the kernel's short PCI address."""
    [event] = told(line)

    assert (event.source, event.code, event.pci, event.instance, event.text) == ("kernelLog", code, pci, instance, line)
    assert (event.fatal, event.recovery_action) == (None, None)


@pytest.mark.parametrize(
    ("rest", "fatal"),
    [
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00000006 0x00000000)", False),
        ("145, RLW_REMAP Fatal XC1 i0 Link -1 (0x00000006 0x00000000)", True),
        ("149, NETIR_LINK_EVT Link Fatal XC0 i0 Link 03 (0x1 0x2)", True),
        ("145, pid=7, name=python3, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x6 0x0)", False),
        ("145, pid=7, name=x, A Nonfatal, RLW_REMAP Fatal XC0 i0 Link 07 (0x6 0x0)", True),
        ("145, something else: Nonfatal", None),
    ],
)
def test_the_severity_word_is_read_where_the_driver_writes_it(rest: str, fatal: object) -> None:
    """Case A25. A program cannot say it by its name."""
    [event] = told(f"NVRM: Xid (PCI:0000:0a:00): {rest}")

    assert event.fatal is fatal


@pytest.mark.parametrize(
    ("rest", "action"),
    [
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("154, pid=1, name=a, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("154, GPU recovery action changed", None),
    ],
)
def test_xid_154_names_the_new_recovery_action(rest: str, action: int | None) -> None:
    [event] = told(f"NVRM: Xid (PCI:0000:0a:00): {rest}")

    assert (event.code, event.recovery_action) == (154, action)


@pytest.mark.parametrize(
    "lines",
    [
        ["NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus."],
        [
            "NVRM: The NVIDIA GPU 0000:9d:00.0",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
        [
            "NVRM: The NVIDIA GPU 0000:9d:00.0",
            "nvme nvme0: another part of the kernel speaks between",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
        ["NVRM: The NVIDIA GPU 0000:9d:00.0\\x0aNVRM: (PCI ID: 10de:2330) has\\x0aNVRM: fallen off the bus"],
    ],
)
def test_a_gpu_that_fell_off_the_bus_is_xid_79_however_it_is_told(lines: list[str]) -> None:
    """Case A23."""
    assert [(event.code, event.pci) for event in told(*lines)] == [(79, "0000:9d:00")]


def test_a_gpu_that_the_driver_does_not_know_has_not_fallen_off_the_bus() -> None:
    lines = [
        "NVRM: The NVIDIA GPU 0000:9d:00.0 (PCI ID: 10de:1234)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]

    assert told(*lines) == []


def test_the_driver_says_once_which_uuid_sits_where() -> None:
    events = told(
        "NVRM: GPU at PCI:0000:0a:00: GPU-9e4f5285-5e0e-8d5d-ff5a-6e753cade25f",
        "NVRM: GPU Board Serial Number: 123",
        "NVRM: Xid (PCI:0000:0a:00): 48, x",
        "NVRM: Xid (PCI:0000:0b:00): 48, x",
    )

    assert [event.uuid for event in events] == ["GPU-9e4f5285-5e0e-8d5d-ff5a-6e753cade25f", None]


@pytest.mark.parametrize(
    ("line", "code", "fatal"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", 20_034, True),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress error (First)", 12_028, False),
    ],
)
def test_a_fault_of_an_nvswitch_is_read_as_one(line: str, code: int, fatal: object) -> None:
    [event] = told(line, "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30")

    assert (event.kind, event.code, event.fatal, event.pci, event.uuid) == ("sxid", code, fatal, "0000:c1:00", None)


def test_an_nvlink_5_fault_is_told_by_unit_link_and_sub_code() -> None:
    """The sub-code is in bits 20 to 25 of the first word."""
    lines = [
        "NVRM: Xid (PCI:0000:0a:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00400006 0x00000005 0x0)",
        "NVRM: Xid (PCI:0000:0a:00): 149, NETIR Fatal XC1 i0 Link -1 (0x03f00000 0x00000001 0x0)",
    ]

    assert [event.detail for event in told(*lines)] == [
        "RLW_REMAP nonfatal, link 07, sub-code 4, status 0x00000005",
        "NETIR fatal, no link, sub-code 63, status 0x00000001",
    ]


def test_equal_faults_of_one_burst_are_one_with_its_count_and_latest_number() -> None:
    """Case A32. What is remembered is the highest number, so they come in that order."""
    burst = [record(f"NVRM: Xid (PCI:0000:0a:00): {code}, x", seq=seq) for seq, code in enumerate((95, 45, 95, 31, 95))]
    _, events = KernelLog().after_all(burst, NOW_MS, live=True)

    assert [(event.code, event.count, event.seq) for event in events] == [(45, 1, 1), (31, 1, 3), (95, 3, 4)]


def test_user_space_cannot_forge_a_fault() -> None:
    text = "NVRM: Xid (PCI:0000:0a:00): 79, x"
    forged = [
        record(text, facility=1),
        record(f"name={text}"),
        record(f"NVRM: loading {text}"),
        record("4,1,1,-;" + text),
    ]

    assert told_records(forged) == []
    assert KernelLog().after(forged[0], NOW_MS, live=True, any_facility=True)[1] is not None


@pytest.mark.parametrize(
    ("usec", "read", "boot_ms"), [(5_000_000, "live", NOW_MS), (5_000_000, "old", 5_000), (10**15, "old", NOW_MS)]
)
def test_an_old_record_keeps_its_stamp_unless_it_lies_in_the_future(usec: int, read: str, boot_ms: int) -> None:
    """Case A37."""
    line = record("NVRM: Xid (PCI:0000:0a:00): 48, x", usec=usec, seq=7)
    _, event = KernelLog().after(line, NOW_MS, live=read == "live")

    assert event is not None
    assert (event.boot_ms, event.seq) == (boot_ms, 7)


@given(st.one_of(st.binary(), st.text().map(lambda text: record(f"NVRM: Xid (PCI:0000:0a:00): 145, {text}"))))
def test_no_record_is_too_odd_to_be_read(odd: bytes) -> None:
    log, _ = KernelLog().after(odd, NOW_MS, live=True)

    assert told("NVRM: Xid (PCI:0000:0a:00): 48, x", log=log)[0].code == 48
