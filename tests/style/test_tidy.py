"""The tree keeps the house rules that no linter knows, and each rule finds what is planted to break it."""

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.style import rules
from tests.style.tree import ROOT, SOURCE, File, files

FILE_LINES_MAX = 400
FILE_LINES_MEDIAN = 150
SHARED_LINES_MAX = 900
FUNCTION_LINES_MAX = 60  # one screen
FUNCTION_LINES_MOST = 25  # nine functions of ten
FUNCTION_LINES_MEDIAN = 8
MOCKS_MAX = 3  # files outside core: a mock proves what its author believed, so we count them

POLLS_PROCESSES = "tests/support/fleet.py"  # other processes live in real time: it asks them again and again
REAL_SLEEP = frozenset({"time.sleep", "asyncio.sleep"})
OUTSIDE = frozenset({"open", "print", "input"})
OVERLAP_HOME = "shared/muster_shared/time.py"
RULES_HOME = "tests/style/"  # speaks of everything that it forbids

Rule = Callable[[File], Iterable[rules.Finding]]

FILES = files()


def readme(folder: Path) -> str:
    path = folder / "README.md"
    assert path.is_file(), f"{folder.name}/README.md is missing"
    return path.read_text()


def always(_: File) -> bool:
    return True


RULES: dict[str, tuple[Callable[[File], bool], Rule]] = {
    "a module's name names its subject": (
        lambda file: file.is_python,
        lambda file: rules.vague_name(file.path.parent.name if file.path.stem == "__init__" else file.path.stem),
    ),
    "nothing is left unfinished": (always, lambda file: rules.unfinished(file.text)),
    "no path of one machine": (always, lambda file: rules.machine_path(file.text)),
    "no address of a package index": (always, lambda file: rules.registry_host(file.text)),
    "no checker is silenced without a reason": (
        lambda file: file.is_python,
        lambda file: rules.ignore_without_reason(file.text),
    ),
    "a file is read in one sitting": (
        lambda file: file.is_code,
        lambda file: [(FILE_LINES_MAX, "too long: split it")] if file.text.count("\n") > FILE_LINES_MAX else [],
    ),
    "a function fits one screen": (
        # A migration is a list of statements, read from top to bottom.
        lambda file: file.is_python and "/versions/" not in file.place,
        lambda file: rules.long_function(file.tree, FUNCTION_LINES_MAX),
    ),
    "a module says first what it is for": (
        lambda file: file.is_source and "/versions/" not in file.place,
        lambda file: rules.first_line(file.tree),
    ),
    "a number has its reason": (
        lambda file: file.is_source and "/versions/" not in file.place,
        lambda file: rules.bare_number(file.tree, file.text),
    ),
    "pure code opens and prints nothing": (
        lambda file: file.is_pure,
        lambda file: rules.forbidden_call(file.tree, OUTSIDE, "pure code does not touch the world"),
    ),
    "windows have one overlap predicate": (
        lambda file: file.is_source and file.place != OVERLAP_HOME,
        lambda file: rules.overlap_predicate(file.tree),
    ),
    "no test sleeps on real time": (
        lambda file: file.is_test and file.place != POLLS_PROCESSES,
        lambda file: rules.forbidden_call(file.tree, REAL_SLEEP, "wait for the event, or move the clock"),
    ),
    "a test of pure code mocks nothing": (
        lambda file: file.is_python and file.place.startswith("tests/core/"),
        lambda file: rules.forbidden_import(file.tree, "unittest.mock", "pure code needs no mock"),
    ),
    "a test's name is its rule": (lambda file: file.is_test, lambda file: rules.unruly_name(file.tree)),
}


@pytest.mark.parametrize("name", RULES)
def test_the_tree_keeps_the_rule(name: str) -> None:
    applies, rule = RULES[name]
    broken = [
        f"{file.place}:{line}: {sentence}"
        for file in FILES
        if applies(file) and not file.place.startswith(RULES_HOME)
        for line, sentence in rule(file)
    ]

    assert not broken, "\n".join(["", *broken])


def test_files_and_functions_are_short_on_the_whole() -> None:
    source = [file for file in FILES if file.is_source]
    bodies = [rules.body_lines(function) for file in source for function in rules.functions(file.tree)]

    assert median(file.text.count("\n") for file in source) <= FILE_LINES_MEDIAN
    assert median(bodies) <= FUNCTION_LINES_MEDIAN
    assert quantiles(bodies, n=10)[-1] <= FUNCTION_LINES_MOST


def test_shared_stays_small() -> None:
    shared = [file for file in FILES if file.is_source and file.place.startswith("shared/")]

    assert sum(file.text.count("\n") for file in shared) <= SHARED_LINES_MAX


def test_mocks_are_few() -> None:
    mocking = [file.place for file in FILES if file.is_test and rules.forbidden_import(file.tree, "unittest.mock", "")]

    assert len(mocking) <= MOCKS_MAX, mocking


@pytest.mark.parametrize("root", SOURCE)
def test_each_root_has_a_readme_with_a_picture_and_what_it_must_not_know(root: str) -> None:
    assert "```" in readme(ROOT / root)
    assert "must not know" in readme(ROOT / root)


@pytest.mark.parametrize("folder", [*SOURCE, "scripts", "systemd", "tests"])
def test_each_folder_says_in_one_sentence_what_it_is_for(folder: str) -> None:
    title, sentence, *_ = readme(ROOT / folder).split("\n\n")

    assert title.startswith("# ")
    assert sentence.rstrip().endswith((".", ":"))


def test_each_tier_says_what_it_may_touch_for_how_long() -> None:
    tiers = {file.path.parent for file in FILES if file.is_test and file.path.name.startswith("test_")}
    silent = [tier.name for tier in tiers if "Time budget" not in readme(tier)]

    assert silent == []


PLANTED: dict[str, tuple[str, int, Callable[[str], list[rules.Finding]]]] = {
    "a drawer": ("gpu_helpers", 1, rules.vague_name),
    "a note": ("a = 1\n# TODO: more\n", 2, rules.unfinished),
    "an empty promise": ("raise NotImplementedError\n", 1, rules.unfinished),
    "a home": ("see\nfile:///home/someone/notes\n", 2, rules.machine_path),
    "an index": ("pip install --index-url x\n", 1, rules.registry_host),
    "an index's page": ("aiohttp @ https://example.org/simple/aiohttp\n", 1, rules.registry_host),
    "a bare noqa": ("a = 1\nimport b  # noqa: F401\n", 2, rules.ignore_without_reason),
    "a bare type ignore": ("a = 1  # type: ignore[misc]\n", 1, rules.ignore_without_reason),
    "a silent module": ("import a\n", 1, lambda text: rules.first_line(ast.parse(text))),
    "a title for a sentence": ('"""Gangs"""\n', 1, lambda text: rules.first_line(ast.parse(text))),
    "a long function": (
        "\n\ndef f():\n" + "    a = 1\n" * 61,
        3,
        lambda text: rules.long_function(ast.parse(text), FUNCTION_LINES_MAX),
    ),
    "a bare number": ("a = 1\n\nLIMIT = 1 << 20\n", 1, lambda text: rules.bare_number(ast.parse(text), text)),
    "a file opened": (
        "def read():\n    return open('x')\n",
        2,
        lambda text: rules.forbidden_call(ast.parse(text), OUTSIDE, ""),
    ),
    "a sleep": (
        "import time\ntime.sleep(1)\n",
        2,
        lambda text: rules.forbidden_call(ast.parse(text), REAL_SLEEP, ""),
    ),
    "a sleep by another name": (
        "from asyncio import sleep as nap\n\nnap(0.1)\n",
        3,
        lambda text: rules.forbidden_call(ast.parse(text), REAL_SLEEP, ""),
    ),
    "a mock": (
        "from unittest.mock import Mock\n",
        1,
        lambda text: rules.forbidden_import(ast.parse(text), "unittest.mock", ""),
    ),
    "a mock by its module": (
        "from unittest import mock\n",
        1,
        lambda text: rules.forbidden_import(ast.parse(text), "unittest.mock", ""),
    ),
    "a second predicate": (
        "x = a.start_ms < b.end_ms and b.start_ms < a.end_ms\n",
        1,
        lambda text: rules.overlap_predicate(ast.parse(text)),
    ),
    "a second predicate, turned": (
        "x = end > row.start_ms and row.end_ms > start\n",
        1,
        lambda text: rules.overlap_predicate(ast.parse(text)),
    ),
    "a test without a rule": ("def test_gang(): ...\n", 1, lambda text: rules.unruly_name(ast.parse(text))),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found_where_it_is(planted: str) -> None:
    text, line, rule = PLANTED[planted]

    assert [found for found, _ in rule(text)][:1] == [line]


INNOCENT: dict[str, tuple[str, Callable[[str], list[rules.Finding]]]] = {
    "a subject": ("placement", rules.vague_name),
    "a system folder": ("see /var/lib/muster and https://example.org/home/x\n", rules.machine_path),
    "a reason": ("import b  # noqa: F401 - registers the tables\n", rules.ignore_without_reason),
    "a reason beside": ("A = 3  # three tries\n", lambda text: rules.bare_number(ast.parse(text), text)),
    "a reason below": ('A = 3\n"""Three tries."""\n', lambda text: rules.bare_number(ast.parse(text), text)),
    "a reason above": ("# How often, how long.\nA = 3\nB = 4\n", lambda text: rules.bare_number(ast.parse(text), text)),
    "a turn for others": (
        "asyncio.sleep(0)\n",
        lambda text: rules.forbidden_call(ast.parse(text), REAL_SLEEP, ""),
    ),
    "a point in a window": (
        "x = w.start_ms <= now and now < w.end_ms\n",
        lambda text: rules.overlap_predicate(ast.parse(text)),
    ),
    "a docstring": (
        'def f():\n    """' + "Says.\n" * 99 + '"""\n    return 1\n',
        lambda text: rules.long_function(ast.parse(text), FUNCTION_LINES_MAX),
    ),
}


@pytest.mark.parametrize("innocent", INNOCENT)
def test_what_breaks_no_rule_is_left_alone(innocent: str) -> None:
    text, rule = INNOCENT[innocent]

    assert list(rule(text)) == []
