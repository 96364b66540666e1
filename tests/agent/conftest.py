"""The real NVML process, on a stub library that each test writes to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster_agent.drivers.nvml_process import NvmlProcess
from tests.support.nvml_host import soon
from tests.support.stub import StubHost, build
from tests.support.virtual_clock import VirtualClock


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build(tmp_path_factory.mktemp("nvml"))
    if folder is None:
        pytest.skip("needs a C compiler")
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Path) -> StubHost:
    host = StubHost(tmp_path / "host", gpus=4)
    for name, value in host.environment(library).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    return host


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def gpus(host: StubHost, clock: VirtualClock, library: Path) -> AsyncIterator[NvmlProcess]:
    del host  # its environment must be there first
    driver = NvmlProcess(clock, library)
    yield driver
    await soon(driver.close())
