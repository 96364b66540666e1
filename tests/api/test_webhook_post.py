"""What goes out to receivers: nowhere that it may not, never for long, and to none at another's cost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from muster_coordinator.clock import SystemClock
from muster_coordinator.core.webhook.signature import new_secret
from muster_coordinator.core.webhook.targets import allowed
from muster_coordinator.loops.post import IN_FLIGHT, Post, Verdict
from muster_coordinator.service.bodies import EventView
from tests.support.coordinator_api import Api, api_on
from tests.support.receiving import receiving

EVENT = EventView(id="evt_1", seq=1, type="node.joined", at=0, subject="node_1", version=1, data={})
SECRETS = (new_secret("s" * 43),)


@asynccontextmanager
async def posting(*entries: str, timeout_s: float = 5.0) -> AsyncIterator[Post]:
    post = Post(allowed(entries), timeout_s)
    try:
        yield post
    finally:
        await post.close()


async def sent(post: Post, url: str) -> Verdict:
    return await post.send(url, SECRETS, EVENT, SystemClock().moment().ms)


@asynccontextmanager
async def canary() -> AsyncIterator[tuple[int, list[str]]]:
    """Listen on all of loopback; gives the port, and who connected."""
    visitors: list[str] = []

    async def visited(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitors.append(str(writer.get_extra_info("sockname")))
        writer.close()

    with socket.socket(socket.AF_INET6) as both:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        both.bind(("::", 0))
        async with await asyncio.start_server(visited, sock=both):
            yield both.getsockname()[1], visitors


INSIDE = (
    "http://127.0.0.1:{}/",
    "https://127.0.0.1:{}/",
    "https://127.1:{}/",
    "https://0.0.0.0:{}/",
    "https://0:{}/",
    "https://2130706433:{}/",
    "https://0x7f000001:{}/",
    "https://0x7f.0x0.0x0.0x1:{}/",
    "https://0177.0.0.1:{}/",
    "https://017700000001:{}/",
    "https://127.0.0.1.:{}/",
    "https://[::1]:{}/",
    "https://[::]:{}/",
    "https://[::ffff:127.0.0.1]:{}/",
    "https://[::ffff:7f00:1]:{}/",
    "https://[::127.0.0.1]:{}/",
    "https://[64:ff9b::127.0.0.1]:{}/",
    "https://[2002:7f00:1::]:{}/",
    "https://localhost:{}/",
    "http://localhost:{}/",
    "https://LOCALHOST.:{}/",
    "https://user@127.0.0.1:{}/",
    "https://hooks.example@localhost:{}/",
    "https://hooks.example\\@localhost:{}/",
    "https://localhost:{}\\@hooks.example/",
    "https://ⓛocalhost:{}/",
    "https://127。0。0。1:{}/",
    "https://{}/",
    "ftp://127.0.0.1:{}/",
)


async def test_no_url_reaches_a_port_inside() -> None:
    """X07: what counts is the address that is connected to, however it is written."""
    async with canary() as (port, visitors), posting() as post:
        verdicts = {url: await sent(post, url.format(port)) for url in INSIDE}
        assert visitors == []
        async with posting("127.0.0.0/8") as freed:
            await sent(freed, f"http://127.0.0.1:{port}/")

    assert [url for url, verdict in verdicts.items() if verdict.error is None] == []
    assert len(visitors) == 1  # the canary does sing


async def test_a_redirect_is_not_followed() -> None:
    async with canary() as (port, visitors), receiving() as receiver, posting("127.0.0.0/8") as post:
        receiver.status, receiver.headers = 307, {"Location": f"http://127.0.0.1:{port}/"}

        verdict = await sent(post, receiver.url)

    assert verdict == Verdict(307, "it answered 307, and redirects are not followed: give the receiver's own URL")
    assert visitors == []


async def test_a_name_is_resolved_once_and_connected_to_as_it_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """X07: a name whose address changes between two looks has only one."""
    loop = asyncio.get_running_loop()
    really = loop.getaddrinfo
    looks: list[str] = []

    async def changing(host: str, port: int, **kwargs: int) -> object:
        if host != "changing.example":
            return await really(host, port, **kwargs)
        looks.append(host)
        address = "127.0.0.2" if len(looks) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(loop, "getaddrinfo", changing)
    async with canary() as (port, visitors), posting("127.0.0.2") as post:
        await sent(post, f"http://changing.example:{port}/")
        first = [visitor for visitor in visitors if "127.0.0.2" in visitor]
        verdict = await sent(post, f"http://changing.example:{port}/")

    assert (len(first), len(visitors)) == (1, 1)
    assert len(looks) == 2  # once for each attempt
    assert "use https" in str(verdict.error)


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with canary() as (port, visitors), receiving() as receiver, posting("127.0.0.0/8") as post:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        verdict = await sent(post, receiver.url)

    assert (verdict.error, visitors) == (None, [])


async def test_a_receiver_that_does_not_answer_takes_no_longer_than_its_time() -> None:
    """F28."""
    async with receiving() as receiver, posting("127.0.0.0/8", timeout_s=0.2) as post:
        receiver.gate.clear()

        assert await sent(post, receiver.url) == Verdict(None, "no answer within 0.2 s")


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    """F28: what counts is the status; of the rest no more than 64 KiB are read."""
    written = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal written
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while written < 1 << 30:
                await answer.write(b"x" * 65_536)
                written += 65_536
        except ConnectionError:
            pass
        return answer

    app = web.Application()
    app.router.add_post("/", pour)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with posting("127.0.0.0/8") as post:
        verdict = await sent(post, f"http://127.0.0.1:{runner.addresses[0][1]}/")
    await runner.cleanup()

    assert verdict == Verdict(200, None)
    assert written < 1 << 26


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1/", "Connect call failed"),
        ("http://no-such-host.invalid/", ""),
        ("https://127.0.0.1:{}/", ""),
    ],
)
async def test_what_a_network_does_is_told_and_not_raised(url: str, told: str) -> None:
    async with canary() as (port, _), posting("127.0.0.0/8", "no-such-host.invalid") as post:
        verdict = await sent(post, url.format(port))

    assert verdict.status is None
    assert told in str(verdict.error)


async def added(url: str, api: Api, name: str) -> None:
    status, answer = await api.call("POST", "/v1/webhooks", {"name": name, "url": url, "types": ["node.joined"]})
    assert status == 201, answer


async def test_a_slow_receiver_has_few_calls_at_once_and_holds_up_no_other(tmp_path: Path) -> None:
    """F28: each receiver has its own task and its own connections."""
    async with (
        receiving() as slow,
        receiving() as quick,
        api_on(str(tmp_path / "muster.db"), webhook_allow=("127.0.0.1",)) as api,
    ):
        slow.gate.clear()
        await added(slow.url, api, "slow")
        await added(quick.url, api, "quick")
        for number in range(12):
            await api.join(f"n{number}", gpus=1)
        await quick.until(12)
        waiting = len(slow.got)
        slow.gate.set()
        await slow.until(12)

    assert waiting <= IN_FLIGHT
    assert slow.at_once_max <= IN_FLIGHT
    assert sorted(quick.seqs) == sorted(set(quick.seqs))
    assert sorted(slow.seqs) == sorted(quick.seqs)


async def test_deliveries_of_one_node_arrive_in_order(tmp_path: Path) -> None:
    async with receiving() as receiver, api_on(str(tmp_path / "muster.db"), webhook_allow=("127.0.0.1",)) as api:
        await api.join("n1")
        # Not those of the join: the relay may number them after the receiver is there.
        types = ["node.cordoned", "node.schedulable"]
        await api.call("POST", "/v1/webhooks", {"name": "ops", "url": receiver.url, "types": types})
        for _ in range(10):
            await api.call("POST", "/v1/nodes/n1/cordon", {})
            await api.call("POST", "/v1/nodes/n1/uncordon", {})
        await receiver.until(20)

    assert receiver.seqs == sorted(receiver.seqs)
    assert len({got.id for got in receiver.got}) == 20
