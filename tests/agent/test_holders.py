"""Who holds a device, on real processes that hold plain files."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from muster_agent.holders.ending import send
from muster_agent.holders.processes import PROC, Allowed, Holder, ProcessTable
from tests.support.programs import holding


@pytest.fixture
def node(tmp_path: Path) -> Path:
    path = tmp_path / "dev" / "nvidia0"
    path.parent.mkdir()
    path.touch()
    return path


def test_whoever_has_a_node_open_is_found_with_the_time_of_its_start(node: Path) -> None:
    table = ProcessTable()
    with holding(node) as process:
        (found,) = table.holding([node])

    assert (found.pid, found.name) == (process.pid, Path(sys.executable).name)
    assert str(found) == f"pid {found.pid} ({found.name})"
    assert found.started_boot_ms > 0
    assert table.holding([node]) == []


def test_a_node_is_known_by_what_it_is_and_not_by_its_name(node: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "container" / "nvidia7"
    elsewhere.parent.mkdir()
    os.link(node, elsewhere)  # a container makes the same node under a name of its own
    other = node.with_name("nvidia1")
    other.touch()

    with holding(elsewhere) as process:
        assert [holder.pid for holder in ProcessTable().holding([node])] == [process.pid]
        assert ProcessTable().holding([other]) == []


def test_neither_we_nor_our_children_are_strangers(node: Path) -> None:
    with node.open():
        assert ProcessTable().holding([node]) == []


def test_without_a_node_nobody_is_asked(tmp_path: Path) -> None:
    assert ProcessTable(tmp_path / "no-proc").holding([]) == []
    assert ProcessTable().holding([tmp_path / "dev" / "nvidia9"]) == []


def test_a44_pids_that_are_none_are_dropped_and_so_is_a_number_that_went_to_a_later_process(node: Path) -> None:
    table = ProcessTable()
    with holding(node) as process:
        (holder,) = table.holding([node])
        garbage = [0, -1, 4_294_967_295, process.pid]

        assert table.named(garbage, holder.started_boot_ms + 60_000) == [holder]
        assert table.named(garbage, holder.started_boot_ms - 1) == []


def test_a44_a_signal_reaches_the_process_that_was_meant_and_none_under_its_number(node: Path) -> None:
    table = ProcessTable()
    with holding(node) as process:
        (holder,) = table.holding([node])
        earlier = Holder(holder.pid, holder.started_ticks - 1, holder.name)

        assert not send(earlier, signal.SIGKILL, table)
        assert not process.has_ended()
        assert send(holder, signal.SIGTERM, table)
        assert process.has_ended(within_s=20)

    assert not send(Holder(4_194_304, 1, "above the highest"), signal.SIGKILL, table)


def test_a_daemon_of_the_host_is_left_alone_and_a_program_that_only_calls_itself_so_is_not(
    node: Path, tmp_path: Path
) -> None:
    daemon = tmp_path / "nvidia-imex"
    shutil.copy2(Path(sys.executable).resolve(), daemon)
    if daemon.stat().st_uid != 0:
        pytest.skip("needs a program that root owns")
    table = ProcessTable(allowed=Allowed())

    with holding(node, program=str(daemon)):
        assert table.holding([node]) == []
        os.chown(daemon, 12_345, -1)
        assert len(table.holding([node])) == 1


def test_a_cgroup_that_the_operator_trusts_is_left_alone(node: Path) -> None:
    own = (PROC / "self" / "cgroup").read_text().splitlines()[-1].split(":", 2)[-1]

    with holding(node):
        assert ProcessTable(allowed=Allowed(cgroups=(own,))).holding([node]) == []
        assert len(ProcessTable(allowed=Allowed(cgroups=("/kubepods*/*dcgm*",))).holding([node])) == 1


def test_a_name_with_spaces_and_parentheses_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    numbers = " ".join(str(number) for number in range(4, 40))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) S {numbers}\n")

    assert ProcessTable(tmp_path).holder(7) == Holder(7, 22, "a) b (c")
