from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from muster_agent.uplink import IdentityUnknownError, RefusedError, UnreachableError, UplinkError
from muster_agent.uplink.http import ANSWER_BYTES_MAX, HttpTransport, session
from muster_agent.uplink.patience import PAUSES, Uplink
from muster_shared.wire import Assignment, Credential, Registration, Report
from tests.support.stand_in import StandIn, problem, serving
from tests.support.virtual_clock import VirtualClock

REGISTRATION = Registration(name="gpu-01", machine_id="0123456789abcdef", agent_version="1")
REPORT = Report(
    boot_id="boot-1", seq=1, agent_version="1", applied_rev=0, inventory_hash="", holds=[], assignments=[]
)  # fmt: skip
KNOWN = Credential(cluster_id="cluster_1", node_id="node_1", token="token-1", heartbeat_ms=1)
STALE = KNOWN.model_copy(update={"token": "old"})


class HastyClock(VirtualClock):
    """Time passes when somebody sleeps, and nobody waits for it."""

    def __init__(self, chance: float = 0.999) -> None:
        super().__init__()
        self.slept: list[int] = []
        self.chance = chance

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)
        self._move_to(self.boot_ms() + ms)

    def random(self) -> float:
        return self.chance


@pytest.fixture
async def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
async def transport(stand_in: StandIn) -> AsyncIterator[HttpTransport]:
    async with serving(stand_in) as url, session() as http:
        yield HttpTransport(http, url, join_token="j0in")


def uplink(
    transport: HttpTransport,
    clock: HastyClock,
    credential: Credential | None = None,
    accept: Callable[[Credential], str | None] = lambda _credential: None,
) -> Uplink:
    return Uplink(transport, clock, lambda: REGISTRATION, accept, credential)


async def test_a_node_joins_once_with_its_join_token_and_reports_with_its_own(
    stand_in: StandIn, transport: HttpTransport
) -> None:
    link = uplink(transport, HastyClock())

    await link.report(lambda: REPORT)
    answer = await link.report(lambda: REPORT)

    assert answer.accepted
    assert stand_in.registrations == [REGISTRATION]
    assert [request.headers["Authorization"] for request in stand_in.seen] == [
        "Bearer j0in", "Bearer token-1", "Bearer token-1",
    ]  # fmt: skip


@pytest.mark.parametrize("credential", [STALE, KNOWN.model_copy(update={"node_id": "node_0"})])
async def test_a22_an_identity_that_is_not_known_any_more_is_dropped_and_the_node_joins_again(
    stand_in: StandIn, transport: HttpTransport, credential: Credential
) -> None:
    accepted: list[Credential] = []
    link = uplink(transport, HastyClock(), credential, accepted.append)

    assert (await link.report(lambda: REPORT)).accepted

    assert [new.token for new in accepted] == ["token-1"]
    assert len(stand_in.reports) == 1


async def test_a19_a_refused_registration_is_tried_slowly_until_somebody_mends_it(
    stand_in: StandIn, transport: HttpTransport
) -> None:
    clone = [lambda: problem(409, "CONFLICT", "another host has this machine id") for _ in range(4)]
    stand_in.instead["register"] = list(clone)
    clock = HastyClock()

    await uplink(transport, clock).report(lambda: REPORT)

    assert len(clock.slept) == 4
    assert min(clock.slept) > 59_000


@pytest.mark.parametrize("status", [(401, "UNAUTHENTICATED"), (404, "NOT_FOUND"), (409, "CONFLICT")])
async def test_a_join_token_pool_or_name_that_is_refused_needs_a_person(
    stand_in: StandIn, transport: HttpTransport, status: tuple[int, str]
) -> None:
    stand_in.instead["register"] = [lambda: problem(*status, "no")]

    with pytest.raises(RefusedError):
        await transport.register(REGISTRATION)


async def test_f35_another_cluster_is_not_accepted(stand_in: StandIn, transport: HttpTransport) -> None:
    answers = iter(["this node belongs to another cluster", None])
    clock = HastyClock()

    await uplink(transport, clock, None, lambda _new: next(answers)).report(lambda: REPORT)

    assert len(clock.slept) == 1
    assert len(stand_in.registrations) == 2


@pytest.mark.parametrize(
    ("heartbeat_ms", "pauses"),
    [
        (60_000, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]),
        (1_000, [500, 1_000, 2_000, 4_000, 4_000, 4_000, 4_000, 4_000, 4_000]),
    ],
)
async def test_f07_pauses_double_to_eight_heartbeats_or_a_minute_with_full_jitter(
    stand_in: StandIn, transport: HttpTransport, heartbeat_ms: int, pauses: list[int]
) -> None:
    stand_in.instead["report"] = [lambda: problem(503, "UNAVAILABLE", "not now") for _ in range(9)]
    clock = HastyClock(chance=0.5)
    known = KNOWN.model_copy(update={"heartbeat_ms": heartbeat_ms})

    await uplink(transport, clock, known).report(lambda: REPORT)

    assert clock.slept == pauses


async def test_what_the_coordinator_wishes_is_honoured(stand_in: StandIn, transport: HttpTransport) -> None:
    def busy(wish: str) -> Callable[[], web.Response]:
        return lambda: problem(503, "UNAVAILABLE", "busy", **{"Retry-After": wish})

    stand_in.instead["report"] = [busy("7"), busy("86400000"), busy("soon"), busy("-3"), busy("9" * 5_000)]
    clock = HastyClock(chance=0)

    await uplink(transport, clock, KNOWN).report(lambda: REPORT)

    assert clock.slept == [7_000, 0, 0, 0, 0]


async def test_every_attempt_sends_a_report_made_for_it(stand_in: StandIn, transport: HttpTransport) -> None:
    stand_in.instead["report"] = [lambda: problem(500, "INTERNAL", "oops"), lambda: problem(429, "TOO_MANY", "slow")]
    seqs = iter(range(1, 9))

    await uplink(transport, HastyClock(), KNOWN).report(
        lambda: REPORT.model_copy(update={"seq": next(seqs)})
    )  # fmt: skip

    assert [report.seq for report in stand_in.reports] == [3]


def page(status: int) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, text="<html>a proxy speaks</html>", content_type="text/html")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: problem(401, "UNAUTHENTICATED", "who?"), IdentityUnknownError),
        (lambda: problem(404, "NOT_FOUND", "no such node"), IdentityUnknownError),
        (lambda: problem(403, "FORBIDDEN", "not yours"), RefusedError),
        (lambda: problem(413, "TOO_LARGE", "too large"), RefusedError),
        (lambda: problem(500, "INTERNAL", "oops"), UnreachableError),
        (page(404), UnreachableError),  # a wrong proxy must not make a node forget who it is
        (page(401), UnreachableError),
        (page(200), UnreachableError),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), UnreachableError),
        (lambda: web.Response(status=304), UnreachableError),
        (lambda: web.Response(body=b"{}", content_type="application/json"), UnreachableError),
        (lambda: web.Response(body=b" " * (ANSWER_BYTES_MAX + 1)), UnreachableError),
        (lambda: web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}), UnreachableError),
    ],
)
async def test_every_answer_becomes_one_kind_of_error(
    stand_in: StandIn, transport: HttpTransport, answer: Callable[[], web.Response], error: type[UplinkError]
) -> None:
    stand_in.instead["report"] = [answer]

    with pytest.raises(UplinkError) as raised:
        await transport.report(KNOWN, REPORT)

    assert type(raised.value) is error
    assert "\n" not in str(raised.value)


async def test_nobody_listening_is_unreachable() -> None:
    async with session() as http:
        with pytest.raises(UnreachableError):
            await HttpTransport(http, "http://127.0.0.1:1").report(KNOWN, REPORT)


async def test_a_desired_state_comes_with_its_times_on_the_boot_clock(
    stand_in: StandIn, transport: HttpTransport
) -> None:
    clock = HastyClock()
    stand_in.want(
        Assignment(
            allocation_id="alloc_a",
            reservation_id="rsv_a",
            generation=1,
            tenant_id="acme",
            devices=["GPU-0"],
            starts_in_ms=-10,
            ends_in_ms=5_000,
            grant_for_ms=5_000,
        )
    )
    link = uplink(transport, clock, KNOWN)

    desired = await link.desired(lambda: 1, 50_000)
    assert desired
    assert desired.orders["alloc_a"].end_boot_ms == clock.boot_ms() + 5_000
    assert stand_in.seen[-1].path_qs == "/v1/nodes/node_1/desired?rev=1&wait=50s"
    assert await link.desired(lambda: 2, 1) is None


def test_every_kind_of_error_has_its_pause() -> None:
    assert set(PAUSES) == set(UplinkError.__subclasses__())


async def test_no_proxy_of_the_environment_comes_between(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))

    assert (await transport.report(KNOWN, REPORT)).accepted
