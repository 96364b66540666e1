"""The flags that describe a reservation, and the request they make: `reserve` and `preview` ask the same thing."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from muster_cli.inputs import DURATION, INSTANT, counted, entry, pair, pairs, segment

_GANG = (
    click.option("--tenant", required=True, envvar="MUSTER_TENANT", show_envvar=True, help="Who asks."),
    click.option("--pool", help="Id or name; the pool named default when absent."),
    click.option("--gpus", type=click.IntRange(min=1), help="GPUs on each node."),
    click.option(
        "--mig", type=counted, multiple=True, metavar="PROFILE:N", help="MIG instances on each node. Repeatable."
    ),
    click.option("--slots", type=click.IntRange(min=1), help="Shares of GPUs on each node."),
    click.option(
        "--devices",
        type=entry,
        multiple=True,
        metavar="K=V,...",
        help="One more kind of devices, such as class=gpu,count=2,model=L40S. Repeatable.",
    ),
    click.option("--gang", type=click.IntRange(min=1), default=1, show_default=True, help="Nodes that each give them."),
    click.option(
        "--same",
        multiple=True,
        metavar="LABEL",
        help="Node label on which the gang agrees, such as fabric.domain. Repeatable.",
    ),
    click.option(
        "--prefer",
        multiple=True,
        metavar="LABEL",
        help="Label on which it agrees where that can be had. Repeatable, the narrowest first.",
    ),
    click.option("--segment", type=segment, metavar="N:LABEL", help="Each N nodes agree on a label of their own."),
    click.option(
        "--topology",
        type=click.Choice(["any", "nvlink-all", "numa"]),
        default="any",
        show_default=True,
        help="What the GPUs of a node share.",
    ),
    click.option("--model", help="A word of the GPU model's name, such as H100."),
    click.option("--memory-gib", type=click.IntRange(min=1), help="At least this much memory on each GPU."),
    click.option("--node-selector", type=pair, multiple=True, metavar="K=V", help="Label of each node. Repeatable."),
    click.option(
        "--on-member-loss",
        type=click.Choice(["notify", "replace", "release"]),
        help="When a node of the running gang is surely dead: only tell (the default), replace it, or end the gang.",
    ),
    click.option("--label", type=pair, multiple=True, metavar="K=V", help="Kept with the reservation. Repeatable."),
    click.option("--name", help="What people call it."),
)

_WINDOW = (
    click.option("--for", "duration", type=DURATION, metavar="DURATION", help="How long: 90s, 30m, 12h, 3d, PT12H."),
    click.option("--until", type=INSTANT, metavar="INSTANT", help="End, instead of --for."),
    click.option("--start", type=INSTANT, metavar="INSTANT", help="now, +2h, RFC 3339 or epoch ms; now when absent."),
    click.option("--latest-start", type=INSTANT, metavar="INSTANT", help="Give up when nothing could start by then."),
)

_NO_LIMITS: Final = {"topology": "any", "model": None, "memoryGib": None}


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that describe a reservation; it passes them on to `body_of`."""
    for option in reversed((*_GANG, *_WINDOW)):
        command = option(command)
    return command


def described_gang(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that describe a gang without its times; it passes them on to `gang_of`."""
    for option in reversed(_GANG):
        command = option(command)
    return command


def body_of(flags: Mapping[str, Any]) -> dict[str, object]:
    """Return the request's document. What was not asked for is left out: its default is the coordinator's affair.

    Raises:
        click.UsageError: Not exactly one of --for and --until, a key given twice, no devices at all, or limits
            without the GPUs that they describe.
    """
    if flags["duration"] is not None and flags["until"] is not None:
        raise click.UsageError("Give only one of --for and --until.")
    if flags["duration"] is None and flags["until"] is None:
        raise click.UsageError("Give one of --for and --until.")
    times = {"start": flags["start"], "duration": flags["duration"]}
    times |= {"end": flags["until"], "latestStart": flags["latest_start"]}
    return {**gang_of(flags), **present(times)}


def gang_of(flags: Mapping[str, Any]) -> dict[str, object]:
    """Return what of a request's document says who gives what, whenever.

    Raises:
        click.UsageError: A key given twice, no devices at all, or limits without the GPUs that they describe.
    """
    return present(
        {
            "tenantId": flags["tenant"],
            "poolId": flags["pool"],
            "devices": _devices(flags),
            "gang": _gang(flags),
            "nodeSelector": pairs(flags["node_selector"], "--node-selector") or None,
            "onMemberLoss": flags["on_member_loss"],
            "labels": pairs(flags["label"], "--label") or None,
            "name": flags["name"],
        }
    )


def _devices(flags: Mapping[str, Any]) -> list[dict[str, object]]:
    devices: list[dict[str, object]] = []
    limits = {"topology": flags["topology"], "model": flags["model"], "memoryGib": flags["memory_gib"]}
    if flags["gpus"] is not None:
        devices.append(present({"class": "gpu", "count": flags["gpus"], **limits}))
    elif limits != _NO_LIMITS:
        raise click.UsageError(
            "--topology, --model and --memory-gib describe what --gpus asks for; "
            "say them of other kinds in --devices, such as --devices class=slot,count=3,model=H100."
        )
    for profile, count in flags["mig"]:
        devices.append({"class": "mig", "count": count, "profile": profile})
    if flags["slots"] is not None:
        devices.append({"class": "slot", "count": flags["slots"]})
    devices += flags["devices"]
    if not devices:
        raise click.UsageError("Say what each node gives: --gpus, --mig, --slots or --devices.")
    return devices


def _gang(flags: Mapping[str, Any]) -> dict[str, object]:
    first, *more = flags["same"] or (None,)
    keys = [{"key": key, "mode": "required"} for key in more]
    keys += [{"key": key, "mode": "preferred"} for key in flags["prefer"]]
    parts = flags["segment"]
    return present(
        {
            "size": flags["gang"],
            "topologyKey": first,
            "topologyKeys": keys or None,
            "segment": None if parts is None else {"size": parts[0], "topologyKey": parts[1]},
        }
    )


def present(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}
