"""What was tried, what failed, and the command that repeats a failure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

ALIKE = 70  # letters that the messages of failures of one kind share, but for numbers and paths
SHOWN = 12  # kinds of failures of one target that are listed


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

    def add(self, other: "Tally") -> None:
        """Take in the cases of another tally of the same target."""
        self.tried += other.tried
        self.failures += other.failures
        self.notes += [note for note in other.notes if note not in self.notes]
        self.seconds += other.seconds


def merged(tallies: Iterable[Tally]) -> list[Tally]:
    """One tally for each attack and target, in the order in which they came."""
    rows: dict[tuple[str, str], Tally] = {}
    for tally in tallies:
        key = tally.attack, tally.target
        if key in rows:
            rows[key].add(tally)
        else:
            rows[key] = tally
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
    """The failures, alike ones together, each kind with the command that repeats its first."""
    lines: list[str] = []
    for tally in tallies:
        kinds: dict[str, list[Failure]] = {}
        for failure in tally.failures:
            what = re.sub(r"/\S+|\b[0-9.,]+|-[0-9-]+", "#", failure.what.partition(" [")[0])
            kinds.setdefault(what[:ALIKE], []).append(failure)
        for alike in list(kinds.values())[:SHOWN]:
            times = f" ({len(alike):,} alike)" if len(alike) > 1 else ""
            case = f"{tally.attack}/{tally.target}/{alike[0].case}"
            lines += [f"{case}{times}: {alike[0].what}", f"    python -m tests.attack --seed {seed} --repeat '{case}'"]
        if len(kinds) > SHOWN:
            lines.append(f"{tally.attack}/{tally.target}: {len(kinds) - SHOWN} more kinds of failures")
    return "\n".join([*lines, *dict.fromkeys(note for tally in tallies for note in tally.notes)])
