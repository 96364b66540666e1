"""Prometheus' programs, and the files that the coordinator ships for them."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.coordinator import sqlite_template
from tests.support.prometheus import MissingError, program

__all__ = ["sqlite_template"]


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """Find a program of Prometheus, or skip."""
    cache_dir = Path(pytestconfig.cache.mkdir("prometheus")) if pytestconfig.cache else Path()

    def find(name: str) -> Path:
        try:
            return program(name, cache_dir)
        except MissingError as error:
            pytest.skip(str(error))

    return find


@pytest.fixture(scope="session")
def rules() -> Path:
    """The shipped rules."""
    return Path(str(files("muster_coordinator") / "alerts" / "muster.rules.yml"))


@pytest.fixture(scope="session")
def routes() -> Path:
    """The shipped example for Alertmanager."""
    return Path(str(files("muster_coordinator") / "alerts" / "alertmanager.example.yml"))
