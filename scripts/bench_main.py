"""Runs the groups of benchmarks: a table for people, one row a line for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator

import click

from scripts import bench_agent, bench_calendar, bench_placement
from scripts.bench_row import Row

Group = Callable[[Callable[[str], None]], Iterator[Row]]

GROUPS: dict[str, Group] = {
    bench_placement.GROUP: bench_placement.rows,
    bench_calendar.GROUP: bench_calendar.rows,
    bench_agent.GROUP: bench_agent.rows,
}

_FORMAT = "{:<28} {:>12} {:<6} {:>10} {:>12}  {}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="GROUP", type=click.Choice(list(GROUPS)), help="Measure one group.")
@click.option("--json", "as_json", is_flag=True, help="One row a line, and nothing else, on standard output.")
def main(only: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes its flags by name
    """Measure Muster on this machine, beside a baseline measured in the same run. Progress is on standard error."""
    chosen = {name: group for name, group in GROUPS.items() if only in {None, name}}
    show = _as_json if as_json else _as_table
    show(row for group in chosen.values() for row in group(_progress))


def _as_json(rows: Iterable[Row]) -> None:
    for row in rows:
        click.echo(json.dumps(row.document()))
        sys.stdout.flush()


def _as_table(rows: Iterable[Row]) -> None:
    click.echo(_FORMAT.format("name", "value", "unit", "target", "baseline", "ok"))
    for row in rows:
        verdict = "yes" if row.ok else "NO"
        click.echo(_FORMAT.format(row.name, row.value, row.unit, row.target, row.baseline, verdict))


def _progress(line: str) -> None:
    click.echo(f"bench: {line}", err=True)


if __name__ == "__main__":
    main()
