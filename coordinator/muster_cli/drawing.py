"""Draws tables: upper-case headers, no borders, columns as wide as needed, wrapped only on a terminal."""

import sys
from typing import Final

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from muster_cli.rows import Table
from muster_cli.terminal import printable

_PIPED_COLUMNS: Final = 10_000  # whatever reads a pipe wants one line a row
_STYLES: Final = {
    "active": "green",
    "ready": "green",
    "yes": "green",
    "pending": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "unreachable": "red",
    "no": "red",
}


def drawn(table: Table) -> str:
    """Return a table as text; colours only on a terminal, and none where NO_COLOR is set."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_PIPED_COLUMNS)
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in table.headers:
        grid.add_column(header, overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row))
    with console.capture() as capture:
        console.print(grid)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
