"""What the operator decides: a TOML file, overruled by MUSTER_AGENT_... variables. All mistakes are told at once."""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from muster_agent.drivers.bind.imex import MAKE_CHANNEL, NODES_CONFIG, QUERY, RESTART
from muster_agent.drivers.bind.systemd import PLACE
from muster_agent.drivers.device_nodes import DEV_DIR, DRIVER_DIR
from muster_agent.drivers.host import BOOT_ID, MACHINE_ID
from muster_agent.drivers.kmsg import KMSG
from muster_agent.holders.processes import DAEMONS
from muster_shared.codec import Label, Text
from muster_shared.time import parse_duration

DEFAULT_FILE: Final = Path("/etc/muster/agent.toml")
PREFIX: Final = "MUSTER_AGENT_"


class ConfigError(Exception):
    """The configuration is wrong; one line for each mistake, with the key or variable to mend."""


def _duration_ms(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("write http://HOST:PORT or https://HOST")
    return value


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


def _loopback(value: str) -> str:
    host, _, port = value.rpartition(":")
    if host not in {"127.0.0.1", "[::1]", "localhost"} or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError("write 127.0.0.1:PORT; a proxy of the site's own may offer it to others")
    return value


def _unit(value: str) -> str:
    if value.count(PLACE) != 1 or not value.endswith((".slice", ".service", ".scope")):
        raise ValueError(f"write a unit's name with {PLACE} in it once, such as muster-{PLACE}.slice")
    return value


Milliseconds = Annotated[int, Field(ge=1), BeforeValidator(_duration_ms)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]  # in a variable, separated and quoted as in a shell
Command = Annotated[Words, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Config:
    """Every key, its default, and what it is for."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    coordinator_url: Annotated[str, AfterValidator(_web_address)] = "http://127.0.0.1:8470"
    name: Label | None = None  # the node's; the host name where absent
    pool: Label | None = None  # to join; the coordinator's default where absent
    join_token: Text | None = None  # sent once, with the request to join
    state_dir: Path = Path("/var/lib/muster-agent")  # must survive a reboot
    run_dir: Path = Path("/run/muster-agent")  # must not
    cdi_dir: Path = Path("/var/run/cdi")  # where container runtimes look for dynamic specs
    bind_drivers: Annotated[tuple[Literal["env", "cdi", "hooks", "systemd"], ...], BeforeValidator(_words)] = (
        "env",
        "cdi",
        "hooks",
    )
    hooks_dir: Path = Path("/etc/muster")  # of bind.d, unbind.d and preempt.d
    hook_limit: Milliseconds = 30_000  # each hook; an end waits for one that runs
    hooks_isolate: bool = False  # the unbind hooks take the devices from a tenant that runs
    tenant_unit: Annotated[str, AfterValidator(_unit)] = f"muster-{PLACE}.slice"  # of the driver "systemd"
    imex_nodes_config: Path = NODES_CONFIG
    imex_query: Command = QUERY
    imex_restart: Command = RESTART
    imex_make_channel: Command = MAKE_CHANNEL
    allowed_processes: Words = DAEMONS  # programs of the host that may be on any GPU at any time
    allowed_cgroups: Words = ()  # patterns of cgroups that may, such as /kubepods*/*dcgm*
    gpu_reset: bool = True  # reset an empty GPU where a hold asks for it
    metrics_listen: Annotated[str, AfterValidator(_loopback)] | None = None  # such as 127.0.0.1:9471
    scan_interval: Milliseconds = 5_000  # between two readings of all GPUs
    gpu_driver: Literal["nvml", "fake"] = "nvml"
    nvml_library_dir: Path | None = None  # searched before the system's for libnvidia-ml.so.1
    fake_state: Path | None = None  # the GPUs of gpu_driver = "fake"
    fake_events: Path | None = None  # and their faults
    nvidia_driver_dir: Path = DRIVER_DIR
    dev_dir: Path = DEV_DIR
    kernel_log: Path = KMSG
    kernel_log_any_facility: bool = False  # believe what user space writes there: for tests
    machine_id_file: Path = MACHINE_ID  # two agents of one demo host need two machine ids
    boot_id_file: Path = BOOT_ID


_CONFIG: Final = TypeAdapter(Config)


def load(file: Path | None, environment: Mapping[str, str]) -> Config:
    """Read the configuration.

    Args:
        file: None to read the default file where there is one.
        environment: A variable `MUSTER_AGENT_STATE_DIR` overrules the key `state_dir`.

    Raises:
        ConfigError: Unreadable, not TOML, unknown keys, wrong values.
    """
    told = _from_file(file)
    names = {PREFIX + field.name.upper(): field.name for field in fields(Config)}
    variables = {names.get(key, key): value for key, value in environment.items() if key.startswith(PREFIX)}
    mistakes: list[str] = []
    config: Config | None = None
    try:
        config = _CONFIG.validate_python({**told, **variables})
    except ValidationError as error:
        origin = {name: key for key, name in names.items() if name in variables}
        for item in error.errors(include_url=False, include_input=False):
            key = ".".join(str(part) for part in item["loc"])
            mistakes.append(f"{origin.get(key, key)}: {item['msg']}")
    if config and config.gpu_driver == "fake" and not (config.fake_state and config.fake_events):
        mistakes.append('fake_state, fake_events: both are needed with gpu_driver = "fake"')
    if config is None or mistakes:
        raise ConfigError("\n".join(mistakes))
    return config


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    if file is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
