"""Completion of words in shells: a script asks ``secret-rl --complete WORD ...`` for what the last word may become."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from secret_rl.cli.command import UsageError, find_command, summaries

_SCRIPTS = {
    "bash": """_secret_rl() {
  local IFS=$'\\n'
  COMPREPLY=($("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _secret_rl secret-rl""",
    "zsh": """#compdef secret-rl
_secret_rl() {
  local -a found
  found=("${(@f)$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _secret_rl secret-rl""",
    "fish": """function __secret_rl
  set -l words (commandline -opc) (commandline -ct)
  set -l found ($words[1] --complete $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c secret-rl -f -a '(__secret_rl)'""",
}


def script(words: list[str]) -> str:
    """The script of a shell."""
    if len(words) != 1 or words[0] not in _SCRIPTS:
        known = ", ".join(_SCRIPTS)
        raise UsageError(f"--print-completion takes one of {known}, got {' '.join(words) or 'nothing'}")
    return _SCRIPTS[words[0]]


@dataclass(frozen=True)
class _Field:
    """What the command line takes."""

    name: str
    positional: bool
    flag: bool
    many: bool
    choices: Callable[[], Any]

    @property
    def options(self) -> list[str]:
        """How it is typed, unless it is positional."""
        dashed = self.name.replace("_", "-")
        return [] if self.positional else [f"--{dashed}", *([f"--no-{dashed}"] if self.flag else [])]


def candidates(words: list[str]) -> list[str]:
    """What the last word may become: nothing where it is a file or anything at all."""
    *before, word = words or [""]
    if not before:
        found: Any = ["--help", "--version", "--print-completion"] if word.startswith("-") else summaries()
    elif before == ["--print-completion"]:
        found = _SCRIPTS
    elif (command := find_command(before[0])) is None:
        found = []
    else:
        known = list(_fields(command))
        if word.startswith("-"):
            found = [*options_of(command), "--help"]
        else:
            field = _expected(known, before[1:])
            found = field.choices() if field else []
    return [str(name) for name in found if str(name).startswith(word)]


def options_of(command: type) -> list[str]:
    """How each option of a command is typed."""
    return [option for field in _fields(command) for option in field.options]


def _expected(known: list[_Field], before: list[str]) -> _Field | None:
    """The field that the next word belongs to."""
    waiting = [field for field in known if field.positional]
    current: _Field | None = None
    for word in before:
        if word.startswith("--"):
            name = word.partition("=")[0].replace("_", "-")
            current = next((field for field in known if name in field.options and not field.flag), None)
        elif current is None:
            if waiting and not waiting[0].many:
                waiting.pop(0)
        elif not current.many:
            current = None
    return current or (waiting[0] if waiting else None)


def _fields(cls: type) -> Iterator[_Field]:
    """The fields of a command, and of the groups of options in it."""
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        yield from _read(field.name, hints[field.name])


def _read(name: str, hint: Any) -> Iterator[_Field]:
    from tyro.conf import Positional

    from secret_rl.cli.fields import Choices

    marks: list[Any] = []
    many = False
    while (origin := get_origin(hint)) in (Annotated, Union, UnionType, tuple):
        many |= origin is tuple
        first, *others = get_args(hint)
        marks += others if origin is Annotated else []
        hint = first if first is not NoneType else others[0]
    if is_dataclass(hint):
        assert isinstance(hint, type)
        yield from _fields(hint)
        return
    listed = next((mark.list for mark in marks if isinstance(mark, Choices)), None)
    literal = get_args(hint) if get_origin(hint) is Literal else ()
    positional = any(mark in get_args(Positional[int]) for mark in marks)
    yield _Field(name, positional, hint is bool, many, listed or (lambda: literal))
