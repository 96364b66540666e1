from pathlib import Path

import pytest

from muster_agent.config import Config, ConfigError, load


def test_without_a_file_and_variables_the_defaults_serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("muster_agent.config.DEFAULT_FILE", tmp_path / "none.toml")

    assert load(None, {"HOME": "/root"}) == Config()


def test_a_variable_overrules_the_file_and_durations_are_words(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('name = "gpu-01"\nscan_interval = "10s"\nstate_dir = "/a"\n')

    config = load(file, {"MUSTER_AGENT_STATE_DIR": "/b", "MUSTER_AGENT_KERNEL_LOG_ANY_FACILITY": "true"})

    assert (config.name, config.scan_interval, config.state_dir) == ("gpu-01", 10_000, Path("/b"))
    assert config.kernel_log_any_facility


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "agent.toml"),
        ('nmae = "x"', "nmae"),
        ('name = "two words"', "name"),
        ('coordinator_url = "127.0.0.1:8470"', "coordinator_url"),
        ('coordinator_url = "http://"', "coordinator_url"),
        ('scan_interval = "0s"', "scan_interval"),
        ("scan_interval = 0", "scan_interval"),
        ('gpu_driver = "fake"', "fake_state"),
        ("state_dir = 5", "state_dir"),
    ],
)
def test_a_mistake_is_told_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=said):
        load(file, {})


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", {})
