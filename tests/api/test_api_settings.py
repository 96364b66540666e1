"""Settings: read from a file and the environment, and refused with all mistakes at once."""

from pathlib import Path

import pytest

from muster_coordinator.config import ConfigError, load
from tests.support.coordinator_api import api_on

TOKEN = "0123456789abcdef"
MISTAKES = """
listen_port = 70000
tick_ms = 0
api_token = "short"
colour = "red"

[policy]
bind_timeout_ms = -1
bind_timeout = 5
top_n = 0
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "coordinator.toml"
    path.write_text(text)
    return path


def test_all_mistakes_are_told_at_once_by_the_name_of_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(write(tmp_path, MISTAKES), {"MUSTER_COORDINATOR_JOIN_TOKEN": "x", "MUSTER_COORDINATOR_NOISE": "1"})

    named = sorted(line.partition(":")[0] for line in str(refusal.value).splitlines())
    assert named == [
        "api_token", "colour", "join_token", "listen_port", "noise",
        "policy.bind_timeout", "policy.bind_timeout_ms", "policy.top_n", "tick_ms",
    ]  # fmt: skip


def test_the_environment_overrides_the_file_and_other_names_are_not_ours(tmp_path: Path) -> None:
    path = write(tmp_path, "listen_port = 1\ntick_ms = 7\n[policy]\ntop_n = 3\n")

    config = load(path, {"MUSTER_COORDINATOR_LISTEN_PORT": "9000", "PATH": "/bin", "MUSTER_TOKEN": "x"})

    assert (config.listen_port, config.tick_ms, config.policy) == (9000, 7, {"top_n": 3})


def test_where_webhooks_may_go_is_a_list_in_the_file_and_one_line_in_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, 'webhook_allow = ["10.0.0.0/8", "hooks.internal"]')

    assert load(path, {}).webhook_allow == ("10.0.0.0/8", "hooks.internal")
    assert load(path, {"MUSTER_COORDINATOR_WEBHOOK_ALLOW": "fd00::/8, x.internal"}).webhook_allow == (
        "fd00::/8",
        "x.internal",
    )


def test_what_allows_webhooks_nothing_is_a_mistake_that_names_the_entry(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"webhook_allow: .*'10\.0\.0\.1/8' is no address, no network"):
        load(write(tmp_path, 'webhook_allow = ["hooks.internal", "10.0.0.1/8"]'), {})


@pytest.mark.parametrize("text", ["listen_port = ", "\udcff"])
def test_a_file_that_is_not_toml_is_a_mistake_too(tmp_path: Path, text: str) -> None:
    path = tmp_path / "coordinator.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(ConfigError, match=r"coordinator\.toml"):
        load(path, {})


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "missing.toml", {})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "gpu-coordinator"])
def test_beyond_loopback_both_tokens_are_needed(host: str) -> None:
    both = {"MUSTER_COORDINATOR_API_TOKEN": TOKEN, "MUSTER_COORDINATOR_JOIN_TOKEN": TOKEN}
    environment = {"MUSTER_COORDINATOR_LISTEN_HOST": host}
    for missing in both:
        with pytest.raises(ConfigError, match="is reachable from other machines"):
            load(None, {**environment, **{name: value for name, value in both.items() if name != missing}})

    assert load(None, {**environment, **both}).listen_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_no_token_is_needed(host: str) -> None:
    assert load(None, {"MUSTER_COORDINATOR_LISTEN_HOST": host}).api_token is None


def test_a_database_is_a_file_or_a_server() -> None:
    server = load(None, {"MUSTER_COORDINATOR_DATABASE": "postgresql://muster@db/muster"})
    file = load(None, {"MUSTER_COORDINATOR_DATABASE": "/var/lib/muster/muster.db"})

    assert server.database_url == "postgresql+asyncpg://muster@db/muster"
    assert file.database_url == "sqlite:////var/lib/muster/muster.db"


async def test_people_and_hosts_show_their_tokens_where_there_are_any(tmp_path: Path) -> None:
    join = "fedcba9876543210"
    async with api_on(str(tmp_path / "muster.db"), api_token=TOKEN, join_token=join) as api:
        registration = {"name": "a1", "machineId": "machine-a1", "agentVersion": "1"}
        found = [
            (await api.call("GET", "/v1/pools"))[0],
            (await api.call("GET", "/v1/pools", Authorization=f"Bearer {join}"))[0],
            (await api.call("GET", "/v1/pools", Authorization=f"Bearer {TOKEN}"))[0],
            (await api.call("POST", "/v1/nodes/register", registration))[0],
            (await api.call("POST", "/v1/nodes/register", registration, Authorization=f"Bearer {TOKEN}"))[0],
            (await api.call("POST", "/v1/nodes/register", registration, Authorization=f"Bearer {join}"))[0],
            (await api.call("GET", "/healthz"))[0],
        ]

    assert found == [401, 401, 200, 401, 401, 201, 200]


async def test_the_first_pool_has_the_configured_policy(tmp_path: Path) -> None:
    async with api_on(str(tmp_path / "muster.db"), policy={"bind_timeout_ms": 7}) as api:
        _, pool = await api.call("GET", "/v1/pools/default")

    assert pool["policy"]["bind_timeout_ms"] == 7
