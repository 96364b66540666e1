"""Each thing that goes wrong raises the alerts that it should, by `promtool`; several coordinators raise none twice."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
import pytest

from muster_cli.main import cli

Programs = Callable[[str], Path]
Series = Mapping[str, str]
Firing = Mapping[str, Mapping[str, str]]

MINUTES = 45
STILL = f"+0x{MINUTES}"
CHANGE = 10  # the minute from which a scene is other than a sound pool


def turns(before: float, after: float) -> str:
    return f"{before}+0x{CHANGE - 1} {after}+0x{MINUTES}"


def passing(usual: float, meanwhile: float, minutes: int) -> str:
    return f"{usual}+0x{CHANGE - 1} {meanwhile}+0x{minutes - 1} {usual}+0x{MINUTES}"


SOUND: Series = {
    'muster_repairs_total{pool="p",outcome="repaired"}': "7",
    'muster_repairs_total{pool="p",outcome="failed"}': "3",
    'muster_reservations_at_risk{pool="p"}': "0",
    'muster_members_binding_late{pool="p"}': "0",
    'muster_releases_overdue{pool="p"}': "0",
    'muster_storm_domains{pool="p",mode="partial"}': "0",
    'muster_storm_domains{pool="p",mode="domainLost"}': "0",
    'muster_storm_domains{pool="p",mode="poolDark"}': "0",
    'muster_storm_domains{pool="p",mode="cutOff"}': "0",
    'muster_nodes{pool="p",intent="schedulable",reachable="true"}': "7",
    'muster_nodes{pool="p",intent="schedulable",reachable="false"}': "0",
    'muster_nodes{pool="p",intent="cordoned",reachable="true"}': "1",
    'muster_nodes{pool="p",intent="cordoned",reachable="false"}': "0",
    'muster_nodes_held{pool="p"}': "0",
    'muster_pool_led{pool="p"}': "1",
    'muster_loop_idle_seconds{loop="pools"}': "0.4",
    'muster_webhook_enabled{webhook="w"}': "1",
    'muster_webhook_oldest_waiting_seconds{webhook="w"}': "0",
    'muster_webhook_deliveries_dead{webhook="w"}': "0",
    'up{job="muster"}': "1",
}
PENDING = 'muster_reservations_pending{pool="p",reason="BookingRepairFailed"}'
SILENT = 'muster_node_silent{pool="p",node="n1",domain="f.1",intent="schedulable"}'
LOST = 'muster_storm_domains{pool="p",mode="domainLost"}'
DARK = 'muster_storm_domains{pool="p",mode="poolDark"}'
CUT_OFF = 'muster_storm_domains{pool="p",mode="cutOff"}'
HEARD = 'muster_nodes{pool="p",intent="schedulable",reachable="true"}'
UNHEARD = 'muster_nodes{pool="p",intent="schedulable",reachable="false"}'
IN_POOL = {"pool": "p"}

SCENES: dict[str, tuple[Series, Firing, int]] = {
    # what is other than in a sound pool from minute 10 on; what fires; at which minute
    "a sound pool": ({}, {}, 40),
    "a repair": (
        {'muster_repairs_total{pool="p",outcome="repaired"}': turns(7, 8)},
        {"MusterBookingRepaired": IN_POOL},
        12,
    ),
    "a repair of an hour ago": ({'muster_repairs_total{pool="p",outcome="repaired"}': turns(7, 8)}, {}, 25),
    "a failed repair": (
        {'muster_repairs_total{pool="p",outcome="failed"}': turns(3, 4), PENDING: turns(0, 1)},
        {"MusterBookingRepairFailed": IN_POOL},
        12,
    ),
    "a failed repair that still waits": ({PENDING: turns(0, 1)}, {"MusterBookingRepairFailed": IN_POOL}, 40),
    "a failed repair that was placed again": (
        {'muster_repairs_total{pool="p",outcome="failed"}': turns(3, 4)},
        {"MusterBookingRepairFailed": IN_POOL},
        12,
    ),
    "an at-risk booking": (
        {'muster_reservations_at_risk{pool="p"}': turns(0, 2)},
        {"MusterBookingAtRisk": IN_POOL},
        13,
    ),
    "a booking at risk for a moment": ({'muster_reservations_at_risk{pool="p"}': passing(0, 1, 1)}, {}, 13),
    "a storm": (
        {LOST: turns(0, 1), 'muster_storm{pool="p",domain="f.1",mode="domainLost"}': "1"},
        {"MusterStorm": IN_POOL},
        12,
    ),
    "a storm over most of a pool": ({DARK: turns(0, 1)}, {"MusterStorm": IN_POOL}, 12),
    "a silent fleet, as the brake tells it": ({CUT_OFF: turns(0, 1)}, {"MusterFleetSilent": IN_POOL}, 12),
    "a silent fleet, counted": (
        {
            HEARD: turns(7, 0),
            UNHEARD: turns(0, 7),
            'muster_nodes{pool="p",intent="cordoned",reachable="true"}': turns(1, 0),
            'muster_nodes{pool="p",intent="cordoned",reachable="false"}': turns(0, 1),
        },
        {"MusterFleetSilent": IN_POOL},
        12,
    ),
    "a silent node": (
        {HEARD: turns(7, 6), UNHEARD: turns(0, 1), SILENT: turns(0, 1)},
        {"MusterNodeSilent": {"pool": "p", "node": "n1", "domain": "f.1"}},
        14,
    ),
    "a drained node that is switched off": (
        {HEARD: turns(7, 6), 'muster_node_silent{pool="p",node="n1",domain="",intent="draining"}': turns(0, 1)},
        {},
        40,
    ),
    "held devices": ({'muster_nodes_held{pool="p"}': turns(0, 1)}, {"MusterNodesHeld": IN_POOL}, 41),
    "a member that does not bind": (
        {'muster_members_binding_late{pool="p"}': turns(0, 1)},
        {"MusterBindingLate": IN_POOL},
        13,
    ),
    "a member that does not let go": (
        {'muster_releases_overdue{pool="p"}': turns(0, 1)},
        {"MusterReleaseOverdue": IN_POOL},
        12,
    ),
    "no leader": ({'muster_pool_led{pool="p"}': turns(1, 0)}, {"MusterPoolUnled": IN_POOL}, 12),
    "a receiver that is down": (
        {'muster_webhook_oldest_waiting_seconds{webhook="w"}': turns(0, 901)},
        {"MusterWebhookBehind": {"webhook": "w"}},
        11,
    ),
    "a receiver that is switched off": (
        {
            'muster_webhook_oldest_waiting_seconds{webhook="w"}': turns(0, 901),
            'muster_webhook_enabled{webhook="w"}': turns(1, 0),
        },
        {},
        11,
    ),
    "a dead letter": (
        {'muster_webhook_deliveries_dead{webhook="w"}': turns(0, 1)},
        {"MusterWebhookDead": {"webhook": "w"}},
        11,
    ),
    "no coordinator": ({'up{job="muster"}': turns(1, 0)}, {"MusterDown": {}}, 12),
}
ONE_OF_TWO: dict[str, tuple[Series, Firing, int]] = {
    "one replica down": ({'up{job="muster"}': turns(1, 0)}, {"MusterReplicaDown": {"job": "muster"}}, 13),
    "one loop stuck": (
        {'muster_loop_idle_seconds{loop="pools"}': turns(0.4, 90)},
        {"MusterLoopStuck": {"loop": "pools"}},
        12,
    ),
}


def judged(
    promtool: Path, rules: Path, folder: Path, series: list[tuple[str, str]], firing: Firing, minute: int
) -> str:
    """Let promtool compare all that fires at a minute; return what it says against it."""
    severities = dict(re.findall(r"alert: (\w+)[\s\S]*?severity: (\w+)", rules.read_text()))
    wanted = [
        {
            "labels": "ALERTS"
            + json.dumps({"alertname": name, "alertstate": "firing", "severity": severities[name], **labels}),
            "value": 1,
        }
        for name, labels in firing.items()
    ]
    for sample in wanted:
        sample["labels"] = re.sub(r'"(\w+)": ', r"\1=", str(sample["labels"]))
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{minute}m", "exp_samples": wanted}
                ],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(json.dumps(document))
    ended = subprocess.run([promtool, "test", "rules", path], check=False, capture_output=True, text=True)
    return ended.stdout + ended.stderr if ended.returncode else ""


def told_by(instance: str, changed: Series) -> Iterator[tuple[str, str]]:
    for name, value in {**SOUND, **changed}.items():
        values = value if "x" in value else value + STILL
        yield name.replace("{", f'{{instance="{instance}",', 1), values


@pytest.mark.parametrize("scene", SCENES)
def test_each_scene_raises_one_alert_though_two_coordinators_tell_of_it(
    programs: Programs, rules: Path, tmp_path: Path, scene: str
) -> None:
    changed, firing, minute = SCENES[scene]
    series = [*told_by("a", changed), *told_by("b", changed)]

    assert not judged(programs("promtool"), rules, tmp_path, series, firing, minute)


@pytest.mark.parametrize("scene", ONE_OF_TWO)
def test_what_is_of_one_coordinator_alone_names_it(programs: Programs, rules: Path, tmp_path: Path, scene: str) -> None:
    changed, firing, minute = ONE_OF_TWO[scene]
    named = {name: {**labels, "instance": "b"} for name, labels in firing.items()}
    series = [*told_by("a", {}), *told_by("b", changed)]

    assert not judged(programs("promtool"), rules, tmp_path, series, named, minute)


def test_a_scene_that_expects_another_alert_is_refused(programs: Programs, rules: Path, tmp_path: Path) -> None:
    series = [*told_by("a", {LOST: turns(0, 1)})]

    assert judged(programs("promtool"), rules, tmp_path, series, {}, 12)


def test_the_rules_are_in_order(programs: Programs, rules: Path) -> None:
    command = [str(programs("promtool")), "check", "rules", "--lint-fatal", str(rules)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def alerts(rules: Path) -> dict[str, str]:
    """Return each alert's text by its name."""
    _, *parts = re.split(r"- alert: ", rules.read_text())
    return {part.split("\n", 1)[0]: part for part in parts}


def test_every_alert_says_what_it_means_and_what_to_do(rules: Path) -> None:
    for name, text in alerts(rules).items():
        for word in ("severity: ", "summary: ", "description: ", "action: "):
            assert word in text, f"{name} lacks {word}"


def test_every_command_that_an_alert_names_is_one(rules: Path) -> None:
    context = click.Context(cli)
    named = set(re.findall(r"\bmuster ([a-z]+)(?: ([a-z][a-z-]+)(?= |\.|,))?", rules.read_text()))

    unknown: list[str] = []
    for noun, verb in named:
        command = cli.get_command(context, noun)
        if command is None or (verb and isinstance(command, click.Group) and not command.get_command(context, verb)):
            unknown.append(f"{noun} {verb}".strip())

    assert unknown == []
    assert len(named) > 5


def test_every_alert_stands_in_the_readme(rules: Path) -> None:
    readme = Path(str(rules)).parents[2] / "README.md"
    text = readme.read_text()

    assert [name for name in alerts(rules) if f"`{name}`" not in text] == []
