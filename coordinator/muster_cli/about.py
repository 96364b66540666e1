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
    r"""Print what teaches a shell to complete `muster` commands.

    \b
    bash:  eval "$(muster completion bash)"
    zsh:   eval "$(muster completion zsh)"
    fish:  muster completion fish | source
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "muster", "_MUSTER_COMPLETE").source())
