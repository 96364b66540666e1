"""The agent obeys an operator's word on its holds, for the hold that was meant and no other."""

from pathlib import Path

from muster_agent.core.readings import GpuEvent, HostReading
from muster_agent.journal import Journal
from muster_agent.loop.senses import Senses
from muster_shared.wire import Clearance
from tests.support.virtual_clock import VirtualClock

HOST = HostReading(hostname="gpu-01", machine_id="0123456789abcdef", boot_id="boot-1", cpus=4, memory_mib=1_024)


def test_a_hold_ends_by_an_operators_word_and_stays_ended_over_a_restart(tmp_path: Path) -> None:
    with_journal = Journal.open(tmp_path)
    senses = Senses(HOST, with_journal, VirtualClock())
    senses.take_event(GpuEvent("nvml", 79, "GPU-0001", "0000:0a:00", boot_ms=0))
    [hold] = senses.holds

    senses.obey([Clearance(device=hold.device, cause=hold.cause, code=hold.code, since_ms=hold.since_ms)])

    assert senses.holds == []
    assert Senses(HOST, with_journal, VirtualClock()).holds == []
    with_journal.close()


def test_a_word_on_another_or_an_earlier_hold_ends_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    senses = Senses(HOST, journal, VirtualClock())
    senses.take_event(GpuEvent("nvml", 79, "GPU-0001", "0000:0a:00", boot_ms=0))
    [hold] = senses.holds

    senses.obey([Clearance(device=hold.device, cause=hold.cause, code=hold.code, since_ms=hold.since_ms - 1)])
    senses.obey([Clearance(device="GPU-0002", cause=hold.cause, code=hold.code, since_ms=hold.since_ms)])

    assert senses.holds == [hold]
    journal.close()
