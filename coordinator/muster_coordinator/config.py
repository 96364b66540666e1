"""The coordinator's settings: defaults, then a TOML file, then the environment; all mistakes at once."""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from muster_coordinator.core.model import policy_faults
from muster_coordinator.core.webhook.targets import allowed

_PREFIX: Final = "MUSTER_COORDINATOR_"
_PORT_MAX: Final = 65_535  # what TCP has


class ConfigError(Exception):
    """What is wrong with the settings, one line for each."""


class Config(BaseModel):
    """Everything that an operator may set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen_host: str = "127.0.0.1"
    listen_port: Annotated[int, Field(ge=0, le=_PORT_MAX)] = 8470  # 0 lets the system choose
    database: Annotated[str, Field(min_length=1)] = "/var/lib/muster/muster.db"  # a SQLite file, or postgresql://...
    api_token: Annotated[str, Field(min_length=16)] | None = None  # people and programs show it; needed beyond loopback
    join_token: Annotated[str, Field(min_length=16)] | None = None  # a host shows it to join; needed beyond loopback
    metrics_token: Annotated[str, Field(min_length=16)] | None = None  # good for /metrics alone, beside api_token
    tick_ms: Annotated[int, Field(ge=1, le=60_000)] = 500  # how often the background pass looks at the clock
    webhook_allow: tuple[str, ...] = ()  # addresses, networks or host names that webhooks may go to beside the internet
    policy: dict[str, int] = {}  # of the first pool, when it is made

    @field_validator("webhook_allow", mode="before")
    @classmethod
    def _is_split(cls, written: object) -> object:
        # The environment has no lists.
        return [part.strip() for part in written.split(",") if part.strip()] if isinstance(written, str) else written

    @field_validator("webhook_allow")
    @classmethod
    def _names_places(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        allowed(entries)
        return entries

    @property
    def database_url(self) -> str:
        """The database in the form that the engine takes."""
        if self.database.startswith("postgresql://"):
            return self.database.replace("postgresql://", "postgresql+asyncpg://", 1)
        return f"sqlite:///{self.database}"

    @property
    def is_loopback(self) -> bool:
        """Can only this machine reach the coordinator?"""
        try:
            return ipaddress.ip_address(self.listen_host).is_loopback
        except ValueError:
            return self.listen_host == "localhost"


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """Read the settings.

    Args:
        path: A TOML file; None for defaults and the environment alone.
        environment: `MUSTER_COORDINATOR_LISTEN_PORT=9000` sets `listen_port`; other names are not ours.

    Raises:
        ConfigError: Every mistake, with the name of the setting.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; without --config the defaults hold") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None
    for name, text in environment.items():
        if name.startswith(_PREFIX):
            values[name.removeprefix(_PREFIX).lower()] = text
    faults: list[str] = []
    config = None
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        faults = [_line(item["loc"], _told(item)) for item in error.errors() if not _is_in_policy(item["loc"])]
    if isinstance(policy := values.get("policy"), dict):
        chosen = cast("dict[str, object]", policy)
        faults += [_line(("policy", name), fault) for name, fault in policy_faults(chosen).items()]
    if faults or config is None:
        raise ConfigError("\n".join(faults))
    if not config.is_loopback and (config.api_token is None or config.join_token is None):
        raise ConfigError(
            f"listen_host: {config.listen_host} is reachable from other machines: "
            "set api_token and join_token first, and put TLS in front"
        )
    return config


def _told(error: ErrorDetails) -> str:
    if error["type"] != "extra_forbidden":
        return error["msg"]
    name = str(error["loc"][-1])
    like = get_close_matches(name, Config.model_fields, 1)
    return f"no such setting{f'; is it {like[0]}?' if like else ''}"


def _is_in_policy(path: tuple[int | str, ...]) -> bool:
    # Names and ranges of policy values are told by the policy itself.
    return path[0] == "policy" and len(path) > 1


def _line(path: tuple[int | str, ...], message: str) -> str:
    return f"{'.'.join(map(str, path))}: {message}"
