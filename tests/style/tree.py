"""The project's own files, as a reader of the repository sees them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = (".ci", "agent", "coordinator", "requirements", "scripts", "shared", "systemd", "tests")
SOURCE = ("agent", "coordinator", "shared")
_CODE = {".py", ".js", ".css", ".html", ".sql", ".sh", ".c", ""}  # no ending: a script


@dataclass(frozen=True)
class File:
    """One text file of the project."""

    path: Path

    @property
    def place(self) -> str:
        """Where it lies, counted from the project's root."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.place)

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def is_code(self) -> bool:
        return self.path.suffix in _CODE

    @property
    def is_source(self) -> bool:
        """Python of a program, not of its tests."""
        return self.is_python and self.place.startswith(SOURCE)

    @property
    def is_test(self) -> bool:
        return self.is_python and self.place.startswith("tests/")

    @property
    def is_pure(self) -> bool:
        """Python that may not touch the world."""
        return self.is_source and ("/core/" in self.place or self.place.startswith("shared/"))


def files() -> list[File]:
    """List the project's text files; what tools left behind is not the project's."""
    return [File(path) for path in sorted(_walk()) if b"\0" not in path.read_bytes()]


def _walk() -> Iterator[Path]:
    yield from (path for path in ROOT.glob("*") if path.is_file() and path.name != "uv.lock" and path.name[0] != ".")
    for name in TOP:
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and not {"__pycache__", "dist", "build"} & set(path.parts):
                yield path
