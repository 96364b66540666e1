"""Alertmanager and Prometheus as real processes on loopback, and a receiver that keeps what they send."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession, web


@dataclass
class Receiver:
    """Keeps each message, under the name of the receiver that Alertmanager sent it to."""

    url: str = ""
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        async with self.arrived:
            self.got.append((request.match_info["name"], json.loads(await request.read())))
            self.arrived.notify_all()
        return web.Response()

    async def firing(self, count: int = 1) -> list[tuple[str, dict[str, str]]]:
        """Wait for so many messages; return the firing alerts with the receiver of each."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.got) >= count)
        return [
            (name, alert["labels"])
            for name, message in self.got
            for alert in message["alerts"]
            if alert["status"] == "firing"
        ]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{name}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = "http://{}:{}".format(*runner.addresses[0])
    try:
        yield receiver
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def running(program: Path, ready_url: str, *arguments: str, folder: Path) -> AsyncIterator[None]:
    """Run a program until the block ends; it is ready once `ready_url` answers 200."""
    with (folder / f"{program.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=log, stderr=log, cwd=folder)
        try:
            await _answering(ready_url, process)
            yield
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _answering(url: str, process: asyncio.subprocess.Process) -> None:
    ended = asyncio.create_task(process.wait())
    async with asyncio.timeout(30), ClientSession() as client:
        while not ended.done():
            try:
                async with client.get(url) as answer:
                    if answer.status == 200:
                        ended.cancel()
                        return
            except ClientError:
                pass
            await asyncio.wait({ended}, timeout=0.05)
    raise RuntimeError(f"it ended with {process.returncode}")


def hurried(routes: str, receiver: Receiver, wait: str = "1s") -> str:
    """Return the shipped example with our receiver in it, and with little patience."""
    text = re.sub(r"url: http://(\w+)\.example/alerts", rf"url: {receiver.url}/\1", routes)
    return re.sub(r"group_(wait|interval): \w+", rf"group_\1: {wait}", text)


@asynccontextmanager
async def alertmanager(program: Path, folder: Path, config: str) -> AsyncIterator[str]:
    """Run an Alertmanager; give its address."""
    path = folder / "alertmanager.yml"
    path.write_text(config)
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = (
        f"--config.file={path}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.path={folder / 'alertmanager'}",
        "--cluster.listen-address=",
    )
    async with running(program, f"{url}/-/ready", *arguments, folder=folder):
        yield url


async def raised(url: str, alerts: Iterable[Mapping[str, str]]) -> None:
    """Tell an Alertmanager of alerts that fire."""
    async with (
        ClientSession() as client,
        client.post(f"{url}/api/v2/alerts", json=[{"labels": dict(labels)} for labels in alerts]) as answer,
    ):
        assert answer.status == 200, await answer.text()


@asynccontextmanager
async def prometheus(
    program: Path, folder: Path, *, rules: Path, scraped: str, token: str, alertmanager_url: str
) -> AsyncIterator[str]:
    """Run a Prometheus that looks every second; give its address."""
    (folder / "token").write_text(token)
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": "muster",
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [scraped.removeprefix("http://")]}],
            }
        ],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager_url.removeprefix("http://")]}]}]},
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(document))
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = (
        f"--config.file={path}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
    )
    async with running(program, f"{url}/-/ready", *arguments, folder=folder):
        yield url


async def asked(url: str, expression: str, *, until: float) -> None:
    """Ask a Prometheus again and again, until an expression has this value."""
    async with asyncio.timeout(30), ClientSession() as client:
        while True:
            async with client.get(f"{url}/api/v1/query", params={"query": expression}) as answer:
                found = (await answer.json())["data"]["result"]
            if found and float(found[0]["value"][1]) == until:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await asyncio.Event().wait()  # another process: it is asked again and again
