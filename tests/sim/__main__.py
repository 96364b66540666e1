"""Replay one seed of the simulation: `python -m tests.sim --seed 7 --until 5`."""

import argparse
import sys

from tests.support.sim_world import simulated

MINUTES = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first, or the only one")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--until", type=int, default=MINUTES, metavar="MINUTES", help="of chaos, in virtual time")
    parser.add_argument("--without", action="append", default=[], metavar="FAULT", help="leave a kind of fault out")
    parser.add_argument("--digest", action="store_true", help="print only what stands for everything that happened")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = simulated(seed, options.until, without=frozenset(options.without))
        failed += bool(outcome.violations)
        if options.digest:
            told = outcome.digest
        elif outcome.violations:
            told = outcome.text
        else:
            told = f"seed {seed}: sound, {outcome.seen['checkedCommit']} commits checked"
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
