"""Signals to processes that hold a device, so that none ever reaches another process under the same number."""

import os
import signal
from contextlib import suppress

from muster_agent.holders.processes import Holder, ProcessTable


def send(holder: Holder, number: signal.Signals, table: ProcessTable) -> bool:
    """Send a signal to exactly this process; False where it is gone.

    The descriptor is opened first and the start time is compared after: from then on the number cannot have become
    another process's without the descriptor going stale.

    Source: pidfd_open(2); agent cases, A44.
    """
    try:
        pidfd = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return False
    try:
        if table.holder(holder.pid) != holder:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
            return True
        return False
    finally:
        os.close(pidfd)
