"""Tells systemd that the coordinator serves, lives, and stops. Silent where there is no systemd.

Source: sd_notify(3).
"""

import asyncio
import os
import socket
from typing import Final

_PER_WATCHDOG: Final = 3  # pings within its time: two may come late under load


def notify(message: str) -> None:
    """Send one message, such as `READY=1`; whoever does not listen misses nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # "@" stands for the zero byte of an abstract address.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(message.encode(), name)
        except OSError:
            return  # systemd is restarting, or gone: no reason to stop serving


async def ping_watchdog() -> None:
    """Ping from the event loop for as long as it turns; a loop that stands still is killed and started again."""
    watchdog_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    if not watchdog_us:
        await asyncio.Event().wait()  # nobody watches
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(watchdog_us / 1_000_000 / _PER_WATCHDOG)
