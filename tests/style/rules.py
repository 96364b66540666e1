"""The house rules that no linter knows, each as a function from a file's text to what breaks it.

A finding is `(line, sentence)`. Which rule holds where is decided in `test_tidy.py`.
"""

import ast
import itertools
import re
from collections.abc import Iterator

Finding = tuple[int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
_UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
_MACHINE = re.compile(r"(?<![\w.$}-])/(?:work|root|home|Users)/\w")
_REGISTRY = re.compile(r"(?i)(?<!no-emit-)index-url|find-links\b.*[:/]|^registry *=|://[^\s\"'/]+/(?:\S+/)?simple/")
_IGNORE = re.compile(r"#\s*(?:noqa|type: ignore|pyright: ignore)(?::\s*[\w, ]*\d|\[[^\]]*\])?(?P<reason>.*)")
_CONVERSION = re.compile(r"_PER_|^_?(SECOND|MINUTE|HOUR|DAY|WEEK)_")  # one unit in another explains itself
_REASON_MIN = 10  # characters: two words


def vague_name(module: str) -> list[Finding]:
    """Find a module named for no subject: such a drawer takes anything, so it ends up holding everything."""
    words = sorted(_VAGUE & set(module.split("_")))
    return [(1, f"`{word}` names no subject") for word in words]


def unfinished(text: str) -> list[Finding]:
    """Find notes of work that is not done."""
    return _matches(_UNFINISHED, text, "unfinished: do it, or drop it")


def machine_path(text: str) -> list[Finding]:
    """Find a path that exists on somebody's machine only."""
    return _matches(_MACHINE, text, "a path of one machine")


def registry_host(text: str) -> list[Finding]:
    """Find the address of a package index: whoever installs chooses their own."""
    return _matches(_REGISTRY, text, "an address of a package index")


def ignore_without_reason(text: str) -> list[Finding]:
    """Find a linter or type checker silenced without saying why."""
    return [
        (number, "silenced without a reason after it")
        for number, line in enumerate(text.splitlines(), start=1)
        if (found := _IGNORE.search(line)) and len(found["reason"].strip(" -#")) < _REASON_MIN
    ]


def first_line(tree: ast.Module) -> list[Finding]:
    """Find a module that does not say in its first line what it is for."""
    said = ast.get_docstring(tree) or ""
    first = said.partition("\n")[0]
    return [] if first.endswith(".") and " " in first else [(1, "the first line says what a module is for")]


def long_function(tree: ast.Module, lines_max: int) -> list[Finding]:
    """Find functions that do not fit one screen."""
    return [
        (function.lineno, f"`{function.name}` has {lines} lines, at most {lines_max}")
        for function in functions(tree)
        if (lines := body_lines(function)) > lines_max
    ]


def functions(tree: ast.Module) -> Iterator[Function]:
    """Walk every function of a module, also those inside others."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def body_lines(function: Function) -> int:
    """Count a function's lines without signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def forbidden_call(tree: ast.Module, names: frozenset[str], why: str) -> list[Finding]:
    """Find calls such as `open(...)` or `time.sleep(...)`, by name or by what was imported under it."""
    origin = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return [
        (node.lineno, f"`{name}`: {why}")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for called in [ast.unparse(node.func)]
        for name in [origin.get(called, called)]
        # Sleeping for no time only lets others run.
        if name in names and not (node.args and ast.unparse(node.args[0]) == "0")
    ]


def forbidden_import(tree: ast.Module, module: str, why: str) -> list[Finding]:
    """Find an import of a module or of anything in it."""
    return [
        (node.lineno, f"`{module}`: {why}")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if name == module or name.startswith(f"{module}.")
    ]


def overlap_predicate(tree: ast.Module) -> list[Finding]:
    """Find windows compared by hand, as in `a.start < b.end and b.start < a.end`: one predicate is enough."""
    return [
        (node.lineno, "windows overlap by `Window.overlaps` alone")
        for node in ast.walk(tree)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
        if sum(map(_is_start_before_end, node.values)) > 1
    ]


def bare_number(tree: ast.Module, text: str) -> list[Finding]:
    """Find a constant whose number has no reason: a comment on its line or above its group, or a text below it."""
    lines = text.splitlines()
    return [
        (node.lineno, f"`{ast.unparse(target)}` does not say why it has this value")
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True)
        for target in _constants(node)
        if not _is_text(following)
        if not _CONVERSION.search(ast.unparse(target))
        if not any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
        if not _is_under_comment(lines[: node.lineno - 1])
    ]


def unruly_name(tree: ast.Module) -> list[Finding]:
    """Find a test whose name is no sentence: a rule takes three words at the least."""
    return [
        (function.lineno, f"`{function.name}` is not a rule in words")
        for function in functions(tree)
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]


def _matches(pattern: re.Pattern[str], text: str, sentence: str) -> list[Finding]:
    lines = enumerate(text.splitlines(), start=1)
    return [(number, f"`{found[0]}`: {sentence}") for number, line in lines if (found := pattern.search(line))]


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _is_start_before_end(node: ast.expr) -> bool:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
    if isinstance(node.ops[0], ast.Gt | ast.GtE):
        left, right = right, left
    return "start" in left and "end" in right


def _constants(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return []
    is_number = all(
        isinstance(part, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)
        or (isinstance(part, ast.Constant) and isinstance(part.value, int | float) and not isinstance(part.value, bool))
        for part in ast.walk(value)
    )
    return [target for target in targets if is_number]


def _is_under_comment(above: list[str]) -> bool:
    group = itertools.takewhile(str.strip, reversed(above))
    return any(line.startswith("#") for line in group)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
