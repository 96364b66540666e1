"""Words a request that does not fit: whether waiting helps, and what to change where it does not. Pure."""

from typing import Final

from muster_cli.client import Document
from muster_cli.failures import Exit, Failure

_CURES: Final = {
    "selectorMismatch": ("--node-selector",),
    "labelMissing": ("--same", "--segment"),
    "tooFewDevices": ("--gpus", "--mig", "--slots", "--model", "--memory-gib"),
    "noSuchIsland": ("--topology", "--gpus"),
    "tooFewPeers": ("--gang", "--same"),
}
"""Flags that change the answer, for each reason that waiting does not cure."""


def pending_sentence(reservation: Document) -> str:
    """Say what a pending reservation waits for, or that it waits in vain."""
    condition: Document = reservation.get("condition") or {}
    if condition.get("reason") != "neverFits":
        return (
            "Pending: nothing is booked yet. It is tried again whenever that could help; REASON tells what is missing."
        )
    return (
        "Pending, and waiting will not help unless the pool changes: it can never fit in this pool.\n"
        f"Next: muster cancel {reservation['id']}, then change {_what_to_change(condition)}."
    )


def misfit(preview: Document) -> Failure:
    """Return why a previewed request ends with an exit code of its own."""
    condition: Document = preview.get("condition") or {}
    if condition.get("reason") == "neverFits":
        advice = f"Next: change {_what_to_change(condition)}."
        return Failure("It can never fit in this pool.", Exit.CONFLICT, (advice,))
    when = "then" if preview["start"] > preview["asOf"] else "now"
    advice = "Next: reserve it to wait in line, or ask for less."
    return Failure(f"It does not fit {when}.", Exit.CONFLICT, (advice,))


def _what_to_change(condition: Document) -> str:
    """Name the flags; another pool is always a way out."""
    reasons = [str(blocker["reason"]) for blocker in condition.get("blockers", ())]
    # What waiting would cure keeps nothing away for ever: where it can never fit, the gang is too large.
    is_too_large = any(reason not in _CURES for reason in reasons)
    flags = dict.fromkeys(flag for reason in reasons for flag in _CURES.get(reason, ()))
    if is_too_large:
        flags["--gang"] = None
    return " or ".join([", ".join(flags), "--pool"] if flags else ["--pool"])
