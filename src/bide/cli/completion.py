"""`bide completion`: prints the script with which a shell completes bide's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from bide.cli import root


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(bide completion bash)"
      bide completion zsh > ~/.zfunc/_bide
      bide completion fish > ~/.config/fish/completions/bide.fish
    """
    script = get_completion_class(shell)
    assert script is not None  # click knows each of the choices
    click.echo(script(root, {}, "bide", "_BIDE_COMPLETE").source())
