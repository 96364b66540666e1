"""Waiting for the real NVML process, and looking at it from outside."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import psutil

from muster_agent.core.readings import NodeReading
from muster_agent.drivers.nvml_process import NvmlProcess
from tests.support.virtual_clock import settle

T = TypeVar("T")


async def soon(wait: Awaitable[T]) -> T:
    """Wait for what another process does at once; the limit is for a broken test only."""
    async with asyncio.timeout(30):
        return await wait


async def read(gpus: NvmlProcess) -> NodeReading:
    return await soon(gpus.read())


def children() -> list[psutil.Process]:
    """The NVML processes of this test, living ones only."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "muster_agent.drivers.nvml" in child.cmdline()
    ]


async def hanging(gpus: NvmlProcess) -> "asyncio.Task[NodeReading]":
    """Begin a reading that will hang; return when the process is there."""
    reading = asyncio.ensure_future(gpus.read())
    while not children():  # noqa: ASYNC110 - another process comes to life; no event of ours tells it
        await asyncio.sleep(0)
    await settle()
    return reading
