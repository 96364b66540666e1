import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from muster_agent.core.desired import Fence
from muster_agent.core.records import Record
from muster_agent.journal import AlreadyRunningError, Journal
from muster_shared.wire import Credential
from tests.support.agent_world import desired, order

RECORD = Record(
    allocation_id="alloc_a",
    reservation_id="rsv_a",
    generation=3,
    tenant_id="acme",
    devices=("GPU-0", "GPU-1"),
    state="bound",
    boot_id="boot-1",
    since_boot_ms=5,
    end_boot_ms=6,
    end_unix_ms=7,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "state")
    yield opened
    opened.close()


def again(journal: Journal, tmp_path: Path) -> Journal:
    journal.close()
    return Journal.open(tmp_path / "state")


def test_records_fence_identity_and_memory_come_back_as_they_were_written(tmp_path: Path) -> None:
    first = Journal.open(tmp_path / "state")
    records = {
        "alloc_a": RECORD,
        "alloc_b": replace(RECORD, allocation_id="alloc_b", state="failed", reason="held: xid 79", attempts=2),
    }
    credential = Credential(cluster_id="cluster_1", node_id="node_1", token="t0ken", heartbeat_ms=5_000)
    for item in records.values():
        first.save(item)
    first.save_fence(Fence("cluster_1", "node_1", 2, 9))
    first.save_credential(credential)
    first.save_memory("health", {"marks": [1, 2]})

    second = again(first, tmp_path)

    assert second.records() == records
    assert second.fence() == Fence("cluster_1", "node_1", 2, 9)
    assert second.credential() == credential
    assert second.memory("health", dict) == {"marks": [1, 2]}
    assert second.bad() == []
    second.close()


def test_an_empty_folder_is_a_node_that_has_not_joined(journal: Journal) -> None:
    assert (journal.records(), journal.fence(), journal.credential(), journal.memory("health", dict)) == (
        {},
        Fence(),
        None,
        None,
    )
    assert desired(1, [order()]).fence != journal.fence()


def test_a_forgotten_record_is_gone_and_forgetting_twice_is_harmless(journal: Journal) -> None:
    journal.save(RECORD)
    journal.forget("alloc_a")
    journal.forget("alloc_a")

    assert journal.records() == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"content":{"allocation_id":"alloc_a"}}',
        b'{"version":2,"content":{}}',
        b'{"version":"1","content":{}}',
    ],
)
def test_a_record_that_cannot_be_read_is_set_aside_once_and_stays_a_reason_to_hold(
    journal: Journal, tmp_path: Path, body: bytes
) -> None:
    path = tmp_path / "state" / "allocations" / "alloc_a.json"
    journal.save(replace(RECORD, allocation_id="alloc_b"))
    path.write_bytes(body)

    assert journal.records().keys() == {"alloc_b"}
    assert path.with_suffix(".bad").read_bytes() == body
    restarted = again(journal, tmp_path)
    assert restarted.records().keys() == {"alloc_b"}
    (bad,) = restarted.bad()
    assert bad.binding
    path.with_suffix(".bad").unlink()
    assert restarted.bad() == []
    restarted.close()


def test_a_record_under_another_name_is_not_believed(journal: Journal, tmp_path: Path) -> None:
    journal.save(RECORD)
    folder = tmp_path / "state" / "allocations"
    (folder / "alloc_a.json").rename(folder / "alloc_z.json")

    assert journal.records() == {}
    assert [bad.binding for bad in journal.bad()] == [True]


def test_a_bad_memory_is_told_apart_from_a_bad_binding(journal: Journal) -> None:
    def refuse(_document: dict[str, object]) -> None:
        raise ValueError("not mine")

    journal.save_memory("health", {"a": 1})
    assert journal.memory("health", refuse) is None

    assert [bad.binding for bad in journal.bad()] == [False]


def test_a_bad_identity_is_as_good_as_none(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "state" / "identity.json").write_bytes(b"{}")

    assert journal.credential() is None
    assert journal.bad() == []


def test_files_are_for_their_owner_only(journal: Journal, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal.save(RECORD)
        journal.save_credential(Credential(cluster_id="c", node_id="n", token="t", heartbeat_ms=1))
    finally:
        os.umask(before)

    for name in ("identity.json", "allocations/alloc_a.json", "lock"):
        assert (tmp_path / "state" / name).stat().st_mode & 0o777 == 0o600


def test_what_a_crash_left_half_written_is_cleared_away(journal: Journal, tmp_path: Path) -> None:
    half = tmp_path / "state" / "allocations" / "alloc_a.tmp"
    half.write_bytes(b'{"version"')

    opened = again(journal, tmp_path)
    assert not half.exists()
    assert opened.records() == {}
    opened.close()


def hold_lock(folder: Path, ready: Connection) -> None:
    held = Journal.open(folder)
    ready.send("held")
    ready.recv()  # until it is killed
    held.close()


def test_f24_a_second_agent_on_one_folder_is_refused_by_name_until_the_first_is_gone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    # A pipe, since a lock shared with a process that is killed may stay locked for ever.
    ours, theirs = context.Pipe()
    other = context.Process(target=hold_lock, args=(tmp_path, theirs))
    other.start()
    try:
        assert ours.poll(30)
        with pytest.raises(AlreadyRunningError, match=rf"pid {other.pid}\b.*state_dir"):
            Journal.open(tmp_path)
        other.kill()  # a dead process holds no lock
        other.join(30)
        Journal.open(tmp_path).close()
    finally:
        other.kill()
        other.join(30)
        ours.close()
        theirs.close()
