"""What this process counts of itself, for Prometheus: calls, rounds of its loops, fenced words, webhook attempts.

These totals begin again with the process. What is stored is not counted here but read when somebody asks.
"""

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody asks for

_CALL_S: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)  # from a lookup to a long poll's whole wait
_ROUND_S: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
_FENCES: Final = ("epoch", "report", "generation")


class Counts:
    """Counters of one process. Every label has a bounded number of values."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        to = self.registry
        self._calls: Final = Counter(
            "muster_http_requests",
            "Calls answered, by operation and status.",
            ("operation", "status"),
            registry=to,
        )
        self._call_s: Final = Histogram(
            "muster_http_request_duration_seconds",
            "How long calls took, streams apart; a long poll's wait is its purpose.",
            ("operation",),
            buckets=_CALL_S,
            registry=to,
        )
        self.streams: Final = Gauge("muster_event_streams", "Streams of events that are open.", registry=to)
        self._rounds: Final = Counter(
            "muster_loop_rounds",
            "Rounds of the background loops, by how they ended.",
            ("loop", "outcome"),
            registry=to,
        )
        self._round_s: Final = Histogram(
            "muster_loop_round_seconds", "How long rounds took.", ("loop",), buckets=_ROUND_S, registry=to
        )
        self._lag_s: Final = Histogram(
            "muster_loop_lag_seconds",
            "How much later than they were due rounds began: the process is starved where this grows.",
            ("loop",),
            buckets=_ROUND_S,
            registry=to,
        )
        self._idle_s: Final = Gauge(
            "muster_loop_idle_seconds",
            "Time since a loop's last round that ended well.",
            ("loop",),
            registry=to,
        )
        self._fenced: Final = Counter(
            "muster_fenced",
            "Words that came too late to change anything, by the fence that stopped them.",
            ("fence",),
            registry=to,
        )
        self._attempts: Final = Counter(
            "muster_webhook_attempts",
            "Attempts to deliver an event, by receiver.",
            ("webhook", "outcome"),
            registry=to,
        )
        self._ended_well_s: Final[dict[str, float]] = {}
        for fence in _FENCES:
            self._fenced.labels(fence)
        ProcessCollector(registry=to)

    def called(self, operation: str, status: int, took_s: float | None) -> None:
        """A call was answered; `took_s` is None for a stream."""
        self._calls.labels(operation, str(status)).inc()
        if took_s is not None:
            self._call_s.labels(operation).observe(took_s)

    def loop_began(self, loop: str, now_s: float, late_s: float) -> None:
        """A loop begins a round, so much later than it was due."""
        self._ended_well_s.setdefault(loop, now_s)
        self._lag_s.labels(loop).observe(late_s)

    def loop_ended(self, loop: str, outcome: str, began_s: float, now_s: float) -> None:
        """A round ended: `ok`, `failed` or `fenced`. Being fenced is no failure of the loop."""
        self._rounds.labels(loop, outcome).inc()
        self._round_s.labels(loop).observe(now_s - began_s)
        if outcome != "failed":
            self._ended_well_s[loop] = now_s

    def fenced(self, fence: str, words: int = 1) -> None:
        """Words were too late: of an old epoch, an older report, or a former generation."""
        self._fenced.labels(fence).inc(words)

    def attempted(self, webhook: str, *, delivered: bool) -> None:
        """An event was sent to a receiver, which took it or did not."""
        self._attempts.labels(webhook, "delivered" if delivered else "failed").inc()

    def look(self, now_s: float) -> None:
        """Bring up to date what grows by itself.

        Args:
            now_s: On the event loop's clock, as in the calls that told of rounds.
        """
        for loop, ended_s in self._ended_well_s.items():
            self._idle_s.labels(loop).set(now_s - ended_s)
