"""Prove that an unpacked wheel works alone: import all of it, then ask each of its programs for help.

Its dependencies may come from the environment; its own packages must come from the folder given.
"""

import importlib
import pkgutil
import sys
from importlib.metadata import distribution

PACKAGES = ("muster_shared", "muster_agent", "muster_coordinator", "muster_cli")
PROGRAMS = {"muster", "muster-agent", "muster-coordinator", "muster-guard"}


def import_all(site: str) -> None:
    """Import every module below `site`, except what only runs inside something else."""
    for package in map(importlib.import_module, PACKAGES):
        assert str(package.__file__).startswith(site), f"{package} does not come from the wheel"
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # A migration needs Alembic's context; `__main__` would start the program.
            if ".migrations." not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def ask_for_help() -> None:
    """Call each declared program with `--help`; it must end well."""
    programs = distribution("gpu-muster").entry_points.select(group="console_scripts")
    assert {program.name for program in programs} == PROGRAMS, f"the wheel's programs: {programs}"
    for program in programs:
        sys.argv = [program.name, "--help"]
        try:
            program.load()()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{program.name} --help ended with {end.code}") from end


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import_all(sys.argv[1])
    ask_for_help()
