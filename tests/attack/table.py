"""What was tried, what failed, and the command that repeats a failure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

SHOWN = 12  # failures of one target that are listed


@dataclass(frozen=True)
class Failure:
    """One case that went wrong."""

    case: str
    what: str


@dataclass
class Tally:
    """The cases of one attack on one target."""

    attack: str
    target: str
    tried: int = 0
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, case: str, problems: Iterable[str]) -> None:
        """One more case, with everything that was wrong about it."""
        self.tried += 1
        found = list(problems)
        if found:
            self.failures.append(Failure(case, "; ".join(found)))


def merged(tallies: Iterable[Tally]) -> list[Tally]:
    """One tally for each attack and target, in the order in which they came."""
    rows: dict[tuple[str, str], Tally] = {}
    for tally in tallies:
        row = rows.setdefault((tally.attack, tally.target), Tally(tally.attack, tally.target))
        row.tried += tally.tried
        row.seconds += tally.seconds
        row.failures += tally.failures
        row.notes += tally.notes
    return list(rows.values())


def table(tallies: list[Tally]) -> str:
    """The counts as text."""
    width = max(len(tally.target) for tally in tallies)
    lines = [f"{'attack':<8}  {'target':<{width}}  {'tried':>7}  {'failed':>6}  {'seconds':>7}"]
    lines += [
        f"{t.attack:<8}  {t.target:<{width}}  {t.tried:>7,}  {len(t.failures):>6,}  {t.seconds:>7.1f}" for t in tallies
    ]
    tried, failed = sum(t.tried for t in tallies), sum(len(t.failures) for t in tallies)
    lines += [f"{'all':<8}  {'':<{width}}  {tried:>7,}  {failed:>6,}  {sum(t.seconds for t in tallies):>7.1f}"]
    return "\n".join(lines)


def listed(tallies: list[Tally], seed: int) -> str:
    """The first failures of each target, with the commands that repeat them."""
    lines: list[str] = []
    for tally in tallies:
        for failure in tally.failures[:SHOWN]:
            case = f"{tally.attack}/{tally.target}/{failure.case}"
            lines += [f"{case}: {failure.what}", f"    python -m tests.attack --seed {seed} --repeat '{case}'"]
        if len(tally.failures) > SHOWN:
            lines.append(f"{tally.attack}/{tally.target}: {len(tally.failures) - SHOWN} more failures")
    return "\n".join([*lines, *dict.fromkeys(note for tally in tallies for note in tally.notes)])
