"""Tell systemd how the service fares: READY, STATUS, WATCHDOG, STOPPING. Without systemd it says nothing.

Source: sd_notify(3): one datagram to the socket named by NOTIFY_SOCKET; a leading `@` is the abstract namespace.
"""

import os
import socket
from typing import Self


class Notifier:
    """The way to systemd. A message that does not arrive is no reason to stop serving."""

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    @classmethod
    def from_environment(cls) -> Self:
        """Take the address out of the environment, so that no child process can speak in our name.

        Source: agent cases, A48.
        """
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)
        return cls(os.environ.pop("NOTIFY_SOCKET", None))

    def ready(self) -> None:
        """The service does its work from now on."""
        self._send("READY=1")

    def status(self, sentence: str) -> None:
        """Show one line in `systemctl status`."""
        self._send(f"STATUS={' '.join(sentence.splitlines())}")

    def alive(self) -> None:
        """Ping the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service goes down in good order."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto(message.encode(), self._address)
            except OSError:
                return
