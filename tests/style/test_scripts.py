"""The scripts hold what their first lines promise, on machines that lack things too."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.style.tree import ROOT, files

SHELL = sorted(
    path for folder in (".ci", "scripts") for path in (ROOT / folder).iterdir() if path.is_file() and not path.suffix
)
NEEDED_MIN = ("bash", "cat", "cksum", "dirname", "env", "flock", "rm")  # what any Linux has, and no Python


def bare_machine(folder: Path, **programs: str) -> dict[str, str]:
    """Return an environment whose PATH holds the bare minimum and `programs`, each a shell script's body."""
    for name in NEEDED_MIN:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name, body in programs.items():
        (folder / name.replace("_", ".")).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name.replace("_", ".")).chmod(0o755)
    return {"PATH": str(folder)}


def checkout(folder: Path) -> Path:
    """Copy what dev-env looks at, without an environment made before."""
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_a_script_is_executable_and_stops_at_the_first_error(script: Path) -> None:
    text = script.read_text()

    assert os.access(script, os.X_OK)
    assert run("bash", "-n", script).stderr == ""
    if text.startswith("#!/usr/bin/env bash"):
        assert "\nset -euo pipefail\n" in text


def test_without_python_the_user_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    env = bare_machine(tmp_path / "bin", python3="exit 1")

    done = run(checkout(tmp_path) / "scripts" / "dev-env", "run", env=env)

    assert done.returncode == 1
    assert "no Python 3.11 or newer on PATH: install one" in done.stderr


def test_without_the_venv_package_the_user_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    # Debian's python3 without python3-venv: of age, but it cannot import ensurepip.
    env = bare_machine(tmp_path / "bin", python3_11='case "$2" in *ensurepip*) exit 1;; esac')

    done = run(checkout(tmp_path) / "scripts" / "dev-env", "run", env=env)

    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_the_environment_of_the_caller_does_not_leak_in(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "VIRTUAL_ENV": str(tmp_path), "PYTHONHOME": str(tmp_path)}

    done = run(ROOT / "scripts" / "dev-env", "dev", "python", "-c", "import sys; print(sys.path, sys.prefix)", env=env)

    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stdout
    assert str(ROOT / ".venv") in done.stdout


def check_where(folder: Path, dev_env: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/check among scripts that only tell what they were asked; `dev_env` decides what fails."""
    scripts = folder / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "check", scripts)
    for name, body in {"dev-env": dev_env, "wheel": "exit 0", "test": "echo 7 passed in 0.1s"}.items():
        (scripts / name).write_text(f"#!/bin/sh\n{body}\n")
        (scripts / name).chmod(0o755)
    return run(scripts / "check")


def test_check_stops_at_the_first_failure_and_names_it(tmp_path: Path) -> None:
    done = check_where(tmp_path, dev_env='[ "$2" != mypy ]')

    assert done.returncode == 1
    assert "check: mypy failed" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 passed, 1 failed"


def test_check_ends_with_the_verdict_of_the_tests(tmp_path: Path) -> None:
    done = check_where(tmp_path, dev_env="exit 0")

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "7 passed in 0.1s"


def test_every_script_that_a_page_names_exists() -> None:
    pages = [file for file in files() if file.path.suffix == ".md"]
    named = {(page.place, script) for page in pages for script in re.findall(r"\bscripts/[a-z][\w.-]*\w", page.text)}

    assert named
    assert [(page, script) for page, script in sorted(named) if not (ROOT / script).is_file()] == []
