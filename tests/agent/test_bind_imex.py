"""IMEX: a domain's list, a daemon's readiness and a channel's node, against programs that a test writes."""

from dataclasses import replace
from pathlib import Path

import pytest

from muster_agent.drivers.bind import BindError
from muster_agent.drivers.bind.imex import Imex
from tests.agent.test_journal import RECORD
from tests.support.hardware import HostFiles
from tests.support.programs import script

PEERS = ("10.0.0.1", "10.0.0.2")
GANG = replace(RECORD, imex_channel=7, imex_peers=PEERS)
CHANNEL = "nvidia-caps-imex-channels/channel7"


class Stage:
    """A host whose daemon says what is in `state`, and becomes what is in `after` by a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = HostFiles(folder)
        self.list = folder / "nodes_config.cfg"
        (folder / "restarts").touch()
        self.says("READY")
        query = script(folder / "imex-ctl", f'[ "$1" = -q ] && cat {folder}/state\n')
        restart = script(folder / "restart", f"echo x >> {folder}/restarts; cp {folder}/after {folder}/state\n")
        make = script(folder / "modprobe", f"mkdir -p {folder}/dev/nvidia-caps-imex-channels; "
                      f"touch {folder}/dev/nvidia-caps-imex-channels/channel$2\n")  # fmt: skip
        self.imex = Imex(
            self.host.nodes, self.list, (str(query), "-q"), (str(restart),), (str(make), "-c"), limit_ms=20_000
        )

    def says(self, now: str, after: str | None = None) -> None:
        (self.folder / "state").write_text(f"{now}\n")
        (self.folder / "after").write_text(f"{after or now}\n")

    @property
    def restarts(self) -> int:
        return (self.folder / "restarts").read_text().count("x")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_list_as_told_is_written_in_its_order_and_the_daemon_reads_it(stage: Stage) -> None:
    stage.list.write_text("# somebody else's\n10.0.0.2\n10.0.0.1\n")

    stage.imex.grant(GANG)

    assert stage.list.read_text() == "10.0.0.1\n10.0.0.2\n"
    assert stage.restarts == 1
    assert (stage.host.dev / CHANNEL).exists()
    stage.imex.verify(GANG)


def test_a_list_that_stands_already_costs_no_restart(stage: Stage) -> None:
    stage.list.write_text("# ours\n\n10.0.0.1\n10.0.0.2\n")

    stage.imex.grant(GANG)
    stage.imex.grant(GANG)

    assert stage.restarts == 0


def test_a55_a_daemon_that_is_not_ready_fails_the_bind_for_now_and_is_left_to_go_on(stage: Stage) -> None:
    stage.says("READY", after="INITIALIZING")

    with pytest.raises(BindError, match=r"^imexNotReady: .* says INITIALIZING$"):
        stage.imex.grant(GANG)
    stage.says("READY")
    stage.imex.grant(GANG)

    assert stage.restarts == 1


def test_a55_another_domains_list_is_no_readiness(stage: Stage) -> None:
    stage.imex.grant(GANG)
    stage.list.write_text("10.0.0.1\n10.0.0.9\n")

    with pytest.raises(BindError, match="another domain's list"):
        stage.imex.verify(GANG)


def test_without_a_list_the_hosts_own_stays(stage: Stage) -> None:
    stage.list.write_text("10.0.0.8\n")

    stage.imex.grant(replace(GANG, imex_peers=()))

    assert (stage.list.read_text(), stage.restarts) == ("10.0.0.8\n", 0)


def test_a_channel_that_cannot_be_made_is_told(stage: Stage) -> None:
    script(stage.folder / "modprobe", "echo no such major; exit 1\n")

    with pytest.raises(BindError, match=r"^imexNotReady: .*modprobe -c 7 ended with status 1: no such major$"):
        stage.imex.grant(GANG)


def test_a_host_without_imex_refuses_a_channel_and_binds_all_else(tmp_path: Path) -> None:
    none = (str(tmp_path / "none"),)
    imex = Imex(HostFiles(tmp_path).nodes, tmp_path / "list", none, none, none)

    imex.grant(RECORD)
    imex.verify(RECORD)
    imex.revoke(RECORD)
    with pytest.raises(BindError, match=r"^imexNotReady: .* cannot be started"):
        imex.grant(replace(GANG, imex_peers=()))


def test_the_tenant_reaches_its_channel_and_no_other(stage: Stage) -> None:
    stage.host.node("nvidia-caps-imex-channels/channel0")
    stage.imex.grant(GANG)

    needed = stage.host.nodes.needed(GANG)

    assert [name for name in needed if "imex" in name] == [CHANNEL]
