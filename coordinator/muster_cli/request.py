"""The flags that describe a reservation, and the request they make: `reserve` and `preview` ask the same thing."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from muster_cli.inputs import DURATION, INSTANT, pair, pairs

_OPTIONS = (
    click.option("--tenant", required=True, envvar="MUSTER_TENANT", show_envvar=True, help="Who asks."),
    click.option("--pool", help="Id or name; the pool named default when absent."),
    click.option("--gpus", type=click.IntRange(min=1), required=True, help="GPUs on each node."),
    click.option("--gang", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes that each give them."),
    click.option("--same", metavar="LABEL", help="Node label on which the gang agrees, such as fabric.domain."),
    click.option("--topology", type=click.Choice(["any", "nvlink-all"]), default="any", show_default=True),
    click.option("--model", help="A word of the GPU model's name, such as H100."),
    click.option("--memory-gib", type=click.IntRange(min=1), help="At least this much memory on each GPU."),
    click.option("--node-selector", type=pair, multiple=True, metavar="K=V", help="Label of each node. Repeatable."),
    click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long: 90s, 30m, 12h, 3d, PT12H."),
    click.option("--until", type=INSTANT, metavar="INSTANT", help="End, instead of --for."),
    click.option("--start", type=INSTANT, metavar="INSTANT", help="now, +2h, RFC 3339 or epoch ms; now when absent."),
    click.option("--latest-start", type=INSTANT, metavar="INSTANT", help="Give up when nothing could start by then."),
    click.option("--label", type=pair, multiple=True, metavar="K=V", help="Kept with the reservation. Repeatable."),
    click.option("--name", help="What people call it."),
)


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that describe a reservation; it passes them on to `body_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def body_of(flags: Mapping[str, Any]) -> dict[str, object]:
    """Return the request's document. What was not asked for is left out: its default is the coordinator's affair.

    Raises:
        click.UsageError: Not exactly one of --for and --until, or a key given twice.
    """
    if flags["duration"] is not None and flags["until"] is not None:
        raise click.UsageError("Give only one of --for and --until.")
    if flags["duration"] is None and flags["until"] is None:
        raise click.UsageError("Give one of --for and --until.")
    device = {
        "class": "gpu",
        "count": flags["gpus"],
        "topology": flags["topology"],
        "model": flags["model"],
        "memoryGib": flags["memory_gib"],
    }
    return _present(
        {
            "tenantId": flags["tenant"],
            "poolId": flags["pool"],
            "devices": [_present(device)],
            "gang": _present({"size": flags["gang"], "topologyKey": flags["same"]}),
            "start": flags["start"],
            "duration": flags["duration"],
            "end": flags["until"],
            "latestStart": flags["latest_start"],
            "nodeSelector": pairs(flags["node_selector"], "--node-selector") or None,
            "labels": pairs(flags["label"], "--label") or None,
            "name": flags["name"],
        }
    )


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
