"""What speaks against a node, over time: when it turned bad, when it was well again, and where it belongs."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from sqlalchemy import RowMapping

from muster_coordinator.core.model import Policy
from muster_coordinator.core.repair.flaps import NO_DATA, with_flip
from muster_shared.codec import dumps, loads
from muster_shared.wire import FABRIC_DOMAIN, Inventory

HoldKey = tuple[str, str, int]
"""Device (empty for the node), cause and code."""

_SILENT: Final = "silent"
_NO_DOMAIN: Final = "no domain"


def sign_columns(
    row: RowMapping,
    reported: Inventory | None,
    holds_before: Collection[HoldKey],
    holds: Collection[HoldKey],
    now_ms: int,
    policy: Policy,
    *,
    rebooted: bool,
) -> dict[str, Any]:
    """Return what a report changes in a node's record of signs, as columns.

    Args:
        row: The node before the report.
        reported: The inventory that came with it; None where that is as before.
        holds_before: Its holds before the report.
        holds: Its holds now.
        now_ms: Milliseconds UTC.
        policy: Of the pool: a soft sign shorter than `unhealthyAfter` was none.
        rebooted: The host has restarted since the report before, however quickly.
    """
    columns: dict[str, Any] = {}
    former = Inventory.model_validate_json(row["inventory"]) if row["inventory"] else None
    inventory = former if reported is None else reported
    home = row["home_domain"]
    shown = inventory.labels.get(FABRIC_DOMAIN) if inventory is not None else None
    if shown and shown != home:
        columns["home_domain"] = shown
    before = {*holds_before, *_of_inventory(former, home), *([_SILENT] if row["silent"] else [])}
    after = {*holds, *_of_inventory(inventory, home)}
    gone = before - after
    if rebooted or (gone and not _was_brief(row, gone, now_ms, policy)):
        columns["sound_since_ms"] = now_ms
    if (after or rebooted) and not before:
        columns["flips"] = flips_after(row, now_ms)
    if _lost(inventory) - _lost(former):
        columns["fault_ms"] = now_ms
    return columns


def _was_brief(row: RowMapping, gone: Collection[Sequence[str | int]], now_ms: int, policy: Policy) -> bool:
    turned_ms = max(loads(row["flips"]), default=0)
    return now_ms - turned_ms < policy.unhealthy_after_ms and all(key[1] in NO_DATA for key in gone)


def flips_after(row: RowMapping, now_ms: int) -> str:
    """Return a node's column of turns for the worse with one more."""
    return dumps(with_flip(loads(row["flips"]), now_ms)).decode()


def _of_inventory(inventory: Inventory | None, home: str | None) -> AbstractSet[str]:
    if inventory is None:
        return set()
    missing = {_NO_DOMAIN} if home and not inventory.labels.get(FABRIC_DOMAIN) else set[str]()
    return missing | _lost(inventory)


def _lost(inventory: Inventory | None) -> AbstractSet[str]:
    return set() if inventory is None else {gpu.uuid for gpu in inventory.gpus if not gpu.seen}
