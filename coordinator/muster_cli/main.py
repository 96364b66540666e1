"""The `muster` command: its table of commands, and nothing that takes time."""

import click

from muster_cli.groups import LazyGroup

_PLACES = {
    "reserve": "muster_cli.reservations:reserve",
    "preview": "muster_cli.reservations:preview",
    "get": "muster_cli.reservations:get",
    "list": "muster_cli.reservations:list_",
    "extend": "muster_cli.changes:extend",
    "repair": "muster_cli.repairs:repair",
    "shrink": "muster_cli.changes:shrink",
    "release": "muster_cli.reservations:release",
    "cancel": "muster_cli.reservations:cancel",
    "timeline": "muster_cli.calendar:timeline",
    "outlook": "muster_cli.calendar:outlook",
    "series": "muster_cli.series:series",
    "nodes": "muster_cli.nodes:nodes",
    "whatif": "muster_cli.whatif:whatif",
    "pools": "muster_cli.pools:pools",
    "quota": "muster_cli.quota:quota",
    "usage": "muster_cli.usage:usage",
    "doctor": "muster_cli.doctor:doctor",
    "maintenance": "muster_cli.maintenance:maintenance",
    "events": "muster_cli.events:events",
    "webhooks": "muster_cli.webhooks:webhooks",
    "tokens": "muster_cli.tokens:tokens",
    "join-tokens": "muster_cli.join_tokens:join_tokens",
    "policy": "muster_cli.policy:policy",
    "audit": "muster_cli.audit:audit",
    "completion": "muster_cli.about:completion",
    "version": "muster_cli.about:version",
}


@click.group(cls=LazyGroup, places=_PLACES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-muster", message="%(version)s")
def cli() -> None:
    """Reserve GPUs and look after them.

    The environment may name the coordinator (MUSTER_URL), the token it knows you by (MUSTER_TOKEN) and who you ask
    for (MUSTER_TENANT). NO_COLOR draws tables without colours.

    Ends with 0 ok, 1 error, 2 usage, 3 not found, 4 conflict or no capacity, 5 not allowed, 6 coordinator
    unreachable, 124 waited too long, 130 interrupted.
    """


def main() -> None:
    """Run the command line."""
    cli(prog_name="muster")
