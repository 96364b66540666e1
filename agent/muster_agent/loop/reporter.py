"""What the next report says, and what the coordinator is known to have heard."""

from typing import Final

import structlog

from muster_agent.clock import Clock
from muster_agent.core.picture import Picture, held
from muster_agent.core.records import State
from muster_agent.core.sentence import sentence
from muster_agent.core.statuses import statuses
from muster_agent.loop.senses import Senses
from muster_shared.wire import Report, ReportAnswer

HEARTBEAT_MS_MIN: Final = 100  # whatever a coordinator asks for, a heartbeat is no busy loop
FIRST_HEARTBEAT_MS: Final = 5_000  # the design's default, until the coordinator says its own
SILENT_HEARTBEATS: Final = 4  # as many make a node unreachable for the coordinator

_log = structlog.get_logger(part="reporter")


class Reporter:
    """Composes reports. Each is the whole truth; an inventory that the coordinator has is only named.

    Args:
        senses: What the node is.
        clock: Orders the reports: `seq` is the boot clock, so that no file has to keep it.
        version: Of the agent.
    """

    def __init__(self, senses: Senses, clock: Clock, version: str) -> None:
        self._senses = senses
        self._clock = clock
        self._version = version
        self._seq = 0
        self._last: Report | None = None
        self._known_hash = ""  # of the inventory that the coordinator has
        self._heartbeat_ms = FIRST_HEARTBEAT_MS
        self._heard_boot_ms = clock.boot_ms()

    def compose(self, state: State) -> Report:
        """Make the report to be sent now."""
        boot_ms = self._clock.boot_ms()
        self._seq = max(self._seq + 1, boot_ms)
        inventory_hash = self._senses.inventory_hash
        self._last = Report(
            boot_id=state.boot_id,
            seq=self._seq,
            agent_version=self._version,
            epoch=state.fence.epoch,
            applied_rev=state.applied_rev,
            inventory_hash=inventory_hash,
            inventory=self._senses.inventory if inventory_hash != self._known_hash else None,
            holds=self._senses.holds,
            assignments=statuses(state, self._senses.facts, boot_ms),
        )
        return self._last

    def is_news(self, state: State) -> bool:
        """Tell whether a report made now would say anything that the last one made did not."""
        last = self._last
        return last is None or (
            last.applied_rev != state.applied_rev
            or last.inventory_hash != self._senses.inventory_hash
            or last.holds != self._senses.holds
            or last.assignments != statuses(state, self._senses.facts, self._clock.boot_ms())
        )

    def take_answer(self, answer: ReportAnswer) -> bool:
        """Note what the coordinator heard. True asks for another report at once."""
        assert self._last is not None  # nobody answers what was never sent
        self._heard_boot_ms = self._clock.boot_ms()
        self._heartbeat_ms = max(answer.heartbeat_ms, HEARTBEAT_MS_MIN)
        if not answer.accepted:
            _log.warning("report not accepted", why=answer.reason)
        elif not answer.want_inventory:
            self._known_hash = self._last.inventory_hash
        if answer.want_inventory:
            self._known_hash = ""
        # If the inventory was in it already, something else is wrong, and haste would not mend it.
        return answer.want_inventory and self._last.inventory is None

    def forget_answers(self) -> None:
        """Start anew with a coordinator that knows nothing of this node yet."""
        self._known_hash = ""

    def pause_ms(self) -> int:
        """Return the time to the next heartbeat: a little early, so that jitter makes none late or fall in step."""
        return round(self._heartbeat_ms * (0.8 + 0.2 * self._clock.random()))

    def picture(self, state: State) -> Picture:
        """Show how the agent fares; its sentence says the same in one line."""
        boot_ms = self._clock.boot_ms()
        told = statuses(state, self._senses.facts, boot_ms)
        heard = boot_ms - self._heard_boot_ms <= self._heartbeat_ms * SILENT_HEARTBEATS
        inventory, holds = self._senses.inventory, self._senses.holds
        return Picture(
            agent_version=self._version,
            boot_id=state.boot_id,
            written_ms=self._clock.unix_ms(),
            written_boot_ms=boot_ms,
            sentence=sentence(state, inventory, holds, told, heard=heard),
            heard=heard,
            cluster_id=state.fence.cluster_id,
            node_id=state.fence.node_id,
            epoch=state.fence.epoch,
            desired_rev=state.desired.fence.rev if state.desired else None,
            applied_rev=state.applied_rev,
            inventory=inventory,
            holds=holds,
            assignments=held(state, told, boot_ms),
        )
