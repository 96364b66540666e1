"""How commands are found: by name, loaded when asked for, and `list` where a noun stands alone."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used: the time to start is the command's own."""

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - click's own arguments, passed on
        super().__init__(*args, **kwargs)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of their table, the most used first."""
        del ctx
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command from its `module:name`."""
        del ctx
        module, _, name = self._places.get(cmd_name, "").partition(":")
        command = getattr(import_module(module), name) if module else None
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for, or name those that are spelt alike."""
        asked = args[0]
        if asked not in self._places and not asked.startswith("-"):
            alike = " or ".join(get_close_matches(asked, self._places))
            hint = f" Did you mean {alike}?" if alike else ""
            ctx.fail(f"No such command {asked!r}.{hint}")
        return super().resolve_command(ctx, args)


class NounGroup(click.Group):
    """A noun: `muster nodes -o json` is `muster nodes list -o json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` where there is no verb."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that is asked for, or say what was meant: one spelt alike, or to see the thing of that name."""
        asked = args[0]
        if asked not in self.commands and not asked.startswith("-"):
            alike = " or ".join(get_close_matches(asked, self.commands))
            shown = next((verb for verb in ("get", "show") if verb in self.commands), None)
            meant = alike or (f"`{ctx.command_path} {shown} {asked}`" if shown else "")
            ctx.fail(f"No such command {asked!r}.{f' Did you mean {meant}?' if meant else ''}")
        return super().resolve_command(ctx, args)
