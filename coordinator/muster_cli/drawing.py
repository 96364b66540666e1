"""Draws tables: upper-case headers, no borders, columns as wide as needed, prose folded on a terminal."""

import sys
from typing import Final

from rich.cells import cell_len
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


_PROSE: Final = frozenset({"REASON", "DETAILS", "HOLDS", "LABELS", "NODES", "DEVICES", "MESSAGE", "HELD"})
_PROSE_COLUMNS: Final = 24  # narrower than this, prose is harder to read than a line that the terminal breaks
_PLAIN: Final = str.maketrans("█░▁▂▃▄▅▆▇·", "#.1234567.")  # bars where a terminal knows ASCII alone
_GAP: Final = 2  # spaces: one is not seen as a gap between words


def drawn(table: Table) -> str:
    """Return a table as text; colours only on a terminal, and none where NO_COLOR is set.

    Only prose is folded: an id on two lines cannot be copied.
    """
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    needed = 0
    for index, header in enumerate(table.headers):
        longest = max(cell_len(text) for text in (header, *(row[index] for row in table.rows)))
        grid.add_column(header, overflow="fold", no_wrap=header not in _PROSE)
        needed += _GAP + (min(longest, _PROSE_COLUMNS) if header in _PROSE else longest)
    for row in table.rows:
        grid.add_row(*(Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row))
    terminal = Console(file=sys.stdout)
    width = max(terminal.width, needed) if terminal.is_terminal else _PIPED_COLUMNS
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as capture:
        console.print(grid)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    return text if "utf" in (sys.stdout.encoding or "").lower() else text.translate(_PLAIN)
