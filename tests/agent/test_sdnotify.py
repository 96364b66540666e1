import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster_agent.sdnotify import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def test_each_word_is_one_datagram(systemd: socket.socket, tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "notify"))
    notifier.ready()
    notifier.status("8 of 8 GPUs seen;\nnothing bound")
    notifier.alive()
    notifier.stopping()

    assert [systemd.recv(200) for _ in range(4)] == [
        b"READY=1",
        b"STATUS=8 of 8 GPUs seen; nothing bound",
        b"WATCHDOG=1",
        b"STOPPING=1",
    ]


def test_an_at_sign_means_the_abstract_namespace() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0muster-test-{os.getpid()}")
        receiver.settimeout(5)
        Notifier(f"@muster-test-{os.getpid()}").ready()

        assert receiver.recv(100) == b"READY=1"


def test_a48_the_address_is_taken_out_of_the_environment_of_children(
    monkeypatch: pytest.MonkeyPatch, systemd: socket.socket, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")

    Notifier.from_environment().ready()

    assert systemd.recv(100) == b"READY=1"
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & os.environ.keys()


@pytest.mark.parametrize("address", [None, "", "/nowhere/at/all"])
def test_without_systemd_it_says_nothing_and_fails_nothing(address: str | None) -> None:
    Notifier(address).ready()


@pytest.mark.usefixtures("systemd")
def test_a_receiver_that_is_full_does_not_stop_the_service(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "notify"))
    for _ in range(2_000):
        notifier.status("x" * 200)
