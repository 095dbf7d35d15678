"""What was tried, what failed, and the command that repeats a failure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

SHOWN = 12  # failures of one target that are listed


@dataclass
class Tally:
    """The cases of one attack on one target."""

    attack: str
    target: str
    tried: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)  # a case, and what was wrong
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, case: str, problems: Iterable[str]) -> None:
        """One more case, with everything that was wrong about it."""
        self.tried += 1
        if found := list(problems):
            self.failures.append((case, "; ".join(found)))


def merged(tallies: Iterable[Tally]) -> list[Tally]:
    """One tally for each attack and target, in the order in which they came."""
    rows: dict[tuple[str, str], Tally] = {}
    for tally in tallies:
        row = rows.setdefault((tally.attack, tally.target), Tally(tally.attack, tally.target))
        for name in ("tried", "failures", "notes", "seconds"):
            setattr(row, name, getattr(row, name) + getattr(tally, name))
    return list(rows.values())


def report(tallies: list[Tally], seed: int) -> str:
    """The counts, the first failures of each target, with the commands that repeat them, and the notes."""
    width = max(len(tally.target) for tally in tallies)
    rows = [(t.attack, t.target, t.tried, len(t.failures), t.seconds) for t in tallies]
    rows.append(("all", "", *(sum(column) for column in list(zip(*rows, strict=True))[2:])))
    lines = [f"{'attack':<8}  {'target':<{width}}  {'tried':>7}  {'failed':>6}  {'seconds':>7}"]
    lines += [f"{a:<8}  {t:<{width}}  {tried:>7,}  {failed:>6,}  {s:>7.1f}" for a, t, tried, failed, s in rows]
    for tally in tallies:
        for case, what in tally.failures[:SHOWN]:
            name = f"{tally.attack}/{tally.target}/{case}"
            lines += [f"{name}: {what}", f"    python -m tests.attack --seed {seed} --repeat '{name}'"]
        if len(tally.failures) > SHOWN:
            lines.append(f"{tally.attack}/{tally.target}: {len(tally.failures) - SHOWN} more failures")
    return "\n".join([*lines, *dict.fromkeys(note for tally in tallies for note in tally.notes)])
