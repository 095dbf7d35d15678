"""Walking a maze in the terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import gymnasium as gym

from secret_rl.cli.output import Output
from secret_rl.envs import TRIGGERS_ID

_MOVES = {"w": 0, "s": 1, "a": 2, "d": 3, "\x1b[A": 0, "\x1b[B": 1, "\x1b[D": 2, "\x1b[C": 3}


@dataclass(frozen=True)
class Play(Output):
    """Walk a Triggers maze in the terminal: arrow keys or w a s d; r for another maze, q to leave."""

    size: int = 8
    """Cells along each side."""
    triggers: int = 3
    """Switches to activate before the prizes."""
    prizes: int = 1
    """Prizes to collect."""
    inverted: bool = False
    """Swap up with down and left with right."""
    layout_seed: int | None = None
    """Play one fixed maze."""
    seed: int | None = None
    """Decides the random mazes."""

    def run(self) -> None:
        """Play until the player leaves."""
        env = gym.make(
            TRIGGERS_ID,
            size=self.size,
            triggers=self.triggers,
            prizes=self.prizes,
            inverted=self.inverted,
            layout_seed=self.layout_seed,
            render_mode="ansi",
        )
        shown = sys.stderr if self.json else sys.stdout
        screen = "\x1b[H\x1b[2J" if shown.isatty() else ""
        returns: list[float] = []
        env.reset(seed=self.seed)
        total, over, message = 0.0, False, "A you, T switch, P prize; arrows or w a s d, r new maze, q quit"
        with _keys() as keys:
            print(f"{screen}{env.render()}\n{message}", file=shown, flush=True)
            for key in keys:
                if key == "q":
                    break
                if key == "r" or over:
                    env.reset()
                    total, over, message = 0.0, False, "a new maze"
                elif key in _MOVES:
                    _, reward, terminated, truncated, info = env.step(_MOVES[key])
                    total, over = total + float(reward), terminated or truncated
                    message = "switch activated" if info["trigger_activated"] else ""
                    if reward:
                        message = f"prize: {reward:+g}"
                    if over:
                        returns.append(total)
                        why = "no prize left" if terminated else "out of time"
                        message += f"  episode over ({why}), return {total:+g}; any key for another maze"
                else:
                    continue
                print(f"{screen}{env.render()}\n{message}", file=shown, flush=True)
        if self.json:
            self.answer("", {"returns": returns})


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """Key presses as they come from a terminal, or the characters of piped input."""

    def read(next_character: Callable[[], str]) -> Iterator[str]:
        while character := next_character():
            if character == "\x1b":
                character += next_character() + next_character()
            yield character

    def one() -> str:
        return sys.stdin.read(1)

    if not sys.stdin.isatty():
        yield read(one)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield read(one)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
