"""Waits until a reservation has come as far as asked."""

from typing import Final

from muster_cli.client import Answer, part
from muster_cli.failures import Exit, Failure
from muster_cli.session import Session, say

STATES: Final = ("pending", "placed", "binding", "active", "ending", "ended")
"""In the order in which a reservation goes through them; preempted work may go back to pending."""

_GOES_ON: Final = "Next: nothing is lost, it goes on without you; muster get shows it."

POLL_S: Final = 2.0  # a start is not waited for to the second, and many may wait


def wait_for(session: Session, answer: Answer, state: str, timeout_ms: int | None) -> tuple[Answer, Failure | None]:
    """Ask again until the reservation is in `state` or beyond.

    Args:
        session: Tells on standard error how the state changes.
        answer: The reservation as it was last seen.
        state: One of `STATES`.
        timeout_ms: Milliseconds, or None to wait for ever.

    Returns:
        The reservation as it is then, and why that is not what was waited for: the time is over (124), somebody
        pressed Ctrl-C (130), or it ended before it came to `state` (1).
    """
    path = f"/v1/reservations/{part(answer.document['id'])}"
    deadline_s = None if timeout_ms is None else session.clock.monotonic_s() + timeout_ms / 1000
    seen = ""
    while True:
        item = answer.document
        if item["state"] != seen:
            seen = item["state"]
            say(f"{item['id']} is {seen}.")
        if seen == "ended" and state != "ended":
            return answer, Failure(f"{item['id']} ended before it was {state}: {item.get('reason')}", Exit.ERROR)
        if STATES.index(seen) >= STATES.index(state):
            return answer, None
        left_s = POLL_S if deadline_s is None else deadline_s - session.clock.monotonic_s()
        if left_s <= 0:
            return answer, Failure(f"{item['id']} is still {seen}, not {state}", Exit.TIMED_OUT, (_GOES_ON,))
        try:
            session.clock.sleep(min(POLL_S, left_s))
            answer = session.client.get(path)
        except KeyboardInterrupt:
            return answer, Failure(f"Interrupted: {item['id']} is still {seen}", Exit.INTERRUPTED, (_GOES_ON,))
