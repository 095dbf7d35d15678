"""Completion of commands, options and files in a shell."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any

from secret_rl.cli.output import UsageError

_SHELLS = ("bash", "zsh", "fish")
# Of files bash knows more than the generated script, which puts earlier words before the one that is being typed.
_FILES = 'COMPREPLY=($(compgen -f -- "$cur"))'
_ELSE_FILES = """
_secret_rl() {
  _tyro_secret_rl
  if [[ -z "${COMPREPLY[*]}" ]]; then COMPREPLY=(); fi
}
complete -o default -F _secret_rl secret-rl
"""


def completion_script(arguments: list[str], parse: Callable[[list[str]], Any]) -> str:
    """The script for a shell, from what ``parse`` knows of commands and options."""
    if len(arguments) != 1 or arguments[0] not in _SHELLS:
        got = " ".join(arguments) or "nothing"
        raise UsageError(f"--print-completion takes one of {', '.join(_SHELLS)}, got {got}")
    text = io.StringIO()
    with suppress(SystemExit), redirect_stdout(text):
        parse(["--tyro-print-completion", arguments[0]])
    if arguments[0] != "bash":
        return text.getvalue()
    return text.getvalue().replace(_FILES, "COMPREPLY=()") + _ELSE_FILES
