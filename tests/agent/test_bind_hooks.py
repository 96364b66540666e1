"""Operator hooks: when they run, with what, and what a failing one does."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.drivers.bind import BindError
from muster_agent.drivers.bind.hooks import Hooks
from muster_agent.drivers.commands import OUTPUT_BYTES_MAX, run
from tests.agent.test_journal import RECORD
from tests.support.programs import script

LIMIT_MS = 20_000
AddHook = Callable[..., Path]


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path / "etc", tmp_path / "notes", LIMIT_MS)


@pytest.fixture
def add(tmp_path: Path) -> AddHook:
    def add(phase: str, name: str, body: str = "") -> Path:
        return script(tmp_path / "etc" / f"{phase}.d" / name, f'echo "{phase} {name} $*" >> {tmp_path}/log\n{body}\n')

    return add


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], list[str]]:
    def read() -> list[str]:
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    return read


def test_bind_hooks_run_by_name_and_unbind_hooks_in_reverse(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]]
) -> None:
    for phase in ("bind", "unbind"):
        add(phase, "20-network")
        add(phase, "10-disk")

    hooks.grant(RECORD)
    assert log() == ["bind 10-disk bind alloc_a", "bind 20-network bind alloc_a"]
    hooks.revoke(RECORD)
    assert log() == ["unbind 20-network unbind alloc_a", "unbind 10-disk unbind alloc_a"]
    hooks.revoke(RECORD)
    assert log() == [], "what was undone is not undone again"


def test_hooks_run_once_for_a_generation_however_often_the_grant_is_mended(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]]
) -> None:
    add("bind", "a")
    hooks.grant(RECORD)
    hooks.grant(replace(RECORD, end_boot_ms=RECORD.end_boot_ms + 1, end_unix_ms=RECORD.end_unix_ms + 1, warned=True))
    hooks.verify(RECORD)
    assert log() == ["bind a bind alloc_a"]

    hooks.grant(replace(RECORD, generation=4))
    assert log() == ["bind a bind alloc_a"]

    hooks.revoke(RECORD)
    hooks.revoke(RECORD)
    assert log() == []


def test_a53_a_failing_hook_ends_the_row_and_all_that_ran_is_undone(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]]
) -> None:
    add("bind", "1")
    add("bind", "2", "echo no room; exit 3")
    add("bind", "3")
    add("unbind", "1", "exit 1")
    add("unbind", "2")

    with pytest.raises(BindError, match=r"^hookFailed: .*/bind.d/2 ended with status 3: no room$"):
        hooks.grant(RECORD)
    assert log() == ["bind 1 bind alloc_a", "bind 2 bind alloc_a"]

    with pytest.raises(BindError, match=r"^hookFailed: .*/unbind.d/1 ended with status 1$"):
        hooks.revoke(RECORD)
    assert log() == ["unbind 2 unbind alloc_a", "unbind 1 unbind alloc_a"]


def test_a48_a_hook_learns_the_assignment_and_nothing_that_is_ours(
    hooks: Hooks, add: AddHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "1", "MUSTER_AGENT_JOIN_TOKEN": "secret"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    add("bind", "a", f"env > {tmp_path}/env")

    hooks.grant(replace(RECORD, imex_channel=5, topology_key="fabric.domain", topology_value="c.1"))

    told = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {name: value for name, value in told.items() if name.startswith("MUSTER_")} == {
        "MUSTER_PHASE": "bind",
        "MUSTER_ALLOCATION": "alloc_a",
        "MUSTER_RESERVATION": "rsv_a",
        "MUSTER_GENERATION": "3",
        "MUSTER_TENANT": "acme",
        "MUSTER_DEVICES": "GPU-0,GPU-1",
        "MUSTER_GPUS": "GPU-0,GPU-1",
        "MUSTER_SHARED": "",
        "MUSTER_TOPOLOGY": "fabric.domain=c.1",
        "MUSTER_IMEX_CHANNEL": "5",
    }
    assert not ours.keys() & told.keys()
    assert told["PATH"] == os.environ["PATH"]


def test_a_hook_that_hangs_is_killed_at_its_limit_with_what_it_started(add: AddHook, tmp_path: Path) -> None:
    add("bind", "a", "sleep 600 & wait")

    with pytest.raises(BindError, match=r"bind.d/a ran into its time limit$"):
        Hooks(tmp_path / "etc", tmp_path / "notes", limit_ms=300).grant(RECORD)


def test_of_a_hook_that_talks_much_the_end_is_kept(tmp_path: Path) -> None:
    talker = script(tmp_path / "talker", "head -c 3000000 /dev/zero | tr '\\0' x; echo the end; exit 1\n")

    ended = run([str(talker)], LIMIT_MS)

    assert len(ended.output) == OUTPUT_BYTES_MAX
    assert ended.output.endswith("xthe end\n")


def test_a_hook_is_handed_its_words_and_no_shell(tmp_path: Path) -> None:
    echo = script(tmp_path / "echo", 'printf "<%s>" "$@"\n')

    assert run([str(echo), "$(id)", "a b", "*"], LIMIT_MS).output == "<$(id)><a b><*>"


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_hook_that_others_could_change_is_not_run_and_the_cure_is_told(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]], mode: int
) -> None:
    add("bind", "a").chmod(mode)

    with pytest.raises(BindError, match=r"hookUnsafe: .*chmod go-w"):
        hooks.grant(RECORD)
    assert log() == []


def test_what_is_no_hook_is_passed_over(hooks: Hooks, add: AddHook, log: Callable[[], list[str]]) -> None:
    for name in (".hidden", "old~", "b.dpkg-old", "c.rpmsave", "d.bak"):
        add("bind", name)
    add("bind", "not-executable").chmod(0o644)
    (add("bind", "e").parent / "folder").mkdir()
    (add("bind", "e").parent / "dangling").symlink_to("nowhere")

    hooks.grant(RECORD)

    assert log() == ["bind e bind alloc_a"]


def test_a50_an_unbind_after_a_reboot_undoes_what_survived_it(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    add("bind", "a")
    add("unbind", "a")
    hooks.grant(RECORD)
    log()

    Hooks(tmp_path / "etc", tmp_path / "notes", LIMIT_MS).revoke(RECORD)

    assert log() == ["unbind a unbind alloc_a"]


def test_a_bind_that_was_killed_between_two_hooks_is_undone(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    add("bind", "a", "kill -9 $PPID; sleep 600")
    add("unbind", "a")
    child = os.fork()
    if child == 0:
        hooks.grant(RECORD)
        os._exit(0)
    os.waitpid(child, 0)
    log()

    Hooks(tmp_path / "etc", tmp_path / "notes", LIMIT_MS).revoke(RECORD)

    assert log() == ["unbind a unbind alloc_a"]


def test_half_of_a_note_is_a_bind_that_may_have_begun(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    add("unbind", "a")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "alloc_a.json").write_text("{")

    hooks.revoke(RECORD)

    assert log() == ["unbind a unbind alloc_a"]


def test_what_no_record_asks_for_is_undone(hooks: Hooks, add: AddHook, log: Callable[[], list[str]]) -> None:
    add("unbind", "a")
    hooks.grant(RECORD)
    assert hooks.sweep({"alloc_a"}) == []
    assert hooks.sweep(set()) == ["alloc_a"]
    assert log() == ["unbind a unbind alloc_a"]


def test_preempt_hooks_are_told_how_long_the_tenant_has_and_all_run(
    hooks: Hooks, add: AddHook, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    add("preempt", "a", f"echo $MUSTER_PREEMPT_IN_MS > {tmp_path}/in; exit 1")
    add("preempt", "b")

    with pytest.raises(BindError, match="hookFailed"):
        hooks.preempt(RECORD, 30_000)

    assert (tmp_path / "in").read_text() == "30000\n"
    assert log() == ["preempt a preempt alloc_a", "preempt b preempt alloc_a"]


def test_a_site_without_hooks_has_no_notes_either(hooks: Hooks, tmp_path: Path) -> None:
    hooks.grant(RECORD)
    hooks.preempt(RECORD, 1)
    hooks.revoke(RECORD)

    assert not (tmp_path / "notes").exists()
    assert hooks.sweep(()) == []


def test_the_operator_says_whether_hooks_isolate(tmp_path: Path) -> None:
    assert not Hooks(tmp_path, tmp_path, LIMIT_MS).isolates
    assert Hooks(tmp_path, tmp_path, LIMIT_MS, isolates=True).isolates
