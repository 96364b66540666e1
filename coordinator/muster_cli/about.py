"""Commands about the command itself."""

from importlib.metadata import version as version_of

import click
from click.shell_completion import get_completion_class


@click.command
def version() -> None:
    """Print the version of this command."""
    click.echo(version_of("gpu-muster"))


@click.command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what teaches a shell to complete `muster` commands.

    In bash and zsh: eval "$(muster completion bash)", or zsh.

    In fish: muster completion fish | source
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "muster", "_MUSTER_COMPLETE").source())
