"""The system keeps its promises under every fault that the simulation knows, seed by seed, and comes to rest after."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.sim_world import simulated

ROOT = Path(__file__).parents[2]
MINUTES = 3  # of chaos, in virtual time: about 200 checked commits
SEEDS = range(11, 19)
MORE = range(19, 31)  # for what a change of the product made rare: drawn only while something was not met
FOUND = [
    (int(line.split()[0]), int(line.split()[1]))
    for line in (Path(__file__).parent / "regressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]

SOMETIMES = {
    "fencedWrite": "a coordinator that was frozen wrote under a stale epoch, and was stopped",
    "lostRace": "a commit found its plan outdated and planned again",
    "oldReplyIgnored": "an agent got an older desired state than one it had obeyed",
    "staleReport": "a report arrived after a newer one",
    "reservation.repaired": "a booking was repaired",
    "replacedInBinding": "a member that did not bind in time was replaced",
    "reservation.extended": "a reservation was extended",
    "reservation.shrunk": "a gang gave members back",
    "reservation.repair_failed": "nothing fitted for a repair",
    "lost lostByReboot": "a host rebooted under a tenant",
    "node.fenced": "an operator attested that a dark host holds nothing",
    "reservation.degraded": "an active gang lost a member or its health",
    "reservation.risk_cleared": "a booking at risk became sound again",
    "diedAtAct": "an agent died before or after an act",
    "slowUnbind": "an unbind took its time",
    "actFailed": "a driver was in trouble",
    "crash": "a coordinator died between two transactions",
    "replay": "a call was repeated with its key",
    "node.unreachable": "a node fell silent",
    "reservation.ended": "a reservation ended",
}
"""What a set of seeds must have met at least once: a run that never hit it proves nothing about it."""

met: Counter[str] = Counter()


@pytest.mark.parametrize(("seed", "minutes"), [*FOUND, *((seed, MINUTES) for seed in SEEDS)])
def test_a_seed_breaks_nothing_and_comes_to_rest(seed: int, minutes: int) -> None:
    outcome = simulated(seed, minutes)
    met.update(outcome.seen)

    assert not outcome.violations, outcome.text


def test_the_seeds_together_met_everything_worth_meeting() -> None:
    if sum(met.values()) == 0:
        pytest.skip("the seeds did not run")
    for seed in MORE:
        if all(met[name] for name in SOMETIMES):
            break
        met.update(simulated(seed, MINUTES).seen)

    assert [name for name in SOMETIMES if not met[name]] == []


def test_a_seed_is_one_history_whatever_the_hash_seed() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.sim", "--seed", "5", "--until", "1", "--digest"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "12345")
    ]
    first, second = (run.communicate()[0] for run in runs)

    assert len(first.strip()) == 64
    assert first == second
