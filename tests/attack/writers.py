"""Several processes that write to the same place at once, while others read it.

Readers see the old or the new content whole, or nothing before the first is there. Of those who write, at least one
succeeds, exactly one where others are to be refused; the others get one clear line, and nobody hangs.
"""

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.attack import jobs
from tests.attack.children import Child, Ended, manners
from tests.attack.content import ABSENT, content_of, differences, digest_of, store_digest
from tests.attack.jobs import CPU, EPISODES, Inputs, Job, Trial, command
from tests.attack.table import Tally

from secret_rl.sb3.checkpoint import read_training

_LIMIT = 60.0
_SAVES = 12  # by each process that saves again and again


@dataclass(frozen=True)
class Scenario:
    """Jobs that write to the same place."""

    name: str
    writers: tuple[Job, ...]
    target: str  # what they write, in the folder
    read: Callable[[Path], Any]  # a digest of it; FileNotFoundError where there is none
    only_one: bool = False  # all but one must be refused
    before: Path | None = None  # what is there at the beginning
    times: int = 1  # how often each writes
    readers: int = 1


class Race:
    """One scenario, with what each writer leaves when it is alone."""

    def __init__(self, scenario: Scenario, scratch: Path) -> None:
        self.scenario, self._scratch, self._folder = scenario, scratch, scratch / "work"
        self.problems: list[str] = []
        self._alone: list[dict[str, str]] = []
        self._digests = set() if scenario.before is None else {scenario.read(scenario.before)}
        for job in scenario.writers:
            alone = Trial(job, self._folder, scratch / "notes")
            self.problems += alone.problems
            self._alone.append(alone.expected)
            self._digests.add(scenario.read(self._folder / scenario.target))

    def run(self) -> list[str]:
        """All at once; what went wrong."""
        scenario = self.scenario
        scenario.writers[0].start(self._folder)
        stage = mmap.mmap(-1, 1)  # shared with the children: 0 wait, 1 write, 2 all is written
        read = partial(_read_on, scenario, self._folder, self._digests, stage)
        readers = [Child(read, self._scratch / f"reader-{i}") for i in range(scenario.readers)]
        writers = [
            Child(partial(_write, job, self._folder, scenario.times, stage), self._scratch / f"writer-{i}")
            for i, job in enumerate(scenario.writers)
        ]
        for child in (*readers, *writers):
            child.wait_until_ready()
        stage[0] = 1
        ended = [child.wait(_LIMIT) for child in writers]
        stage[0] = 2
        problems = [f"a reader: {r}" for r in (child.wait(_LIMIT) for child in readers) if r.code]
        problems += [f"a writer: {what}" for one in ended if one.code for what in _refusal(one, scenario)]
        won = sum(not one.code for one in ended)
        if won != 1 and (scenario.only_one or not won):
            problems.append(f"{won} writers believe that they succeeded")
        found = content_of(self._folder)
        least = min((differences(found, alone) for alone in self._alone), key=len)
        return problems + [f"at the end: {what}" for what in least]


def _write(job: Job, folder: Path, times: int, stage: mmap.mmap) -> Any:
    with job.settings():
        while not stage[0]:
            pass  # all begin in the same moment
        return next(filter(None, (job.code(folder) for _ in range(times))), 0)


def _read_on(scenario: Scenario, folder: Path, allowed: set[Any], stage: mmap.mmap) -> None:
    """Read again and again until all have written."""
    seen = scenario.before is not None
    finished = False
    while not finished:
        finished = stage[0] == 2
        try:
            found = scenario.read(folder / scenario.target)
        except FileNotFoundError:
            if seen:
                raise RuntimeError(f"{scenario.target} was there and is gone") from None
            continue
        if found not in allowed:
            raise RuntimeError(f"{scenario.target} holds what nobody has written")
        seen = True


def _refusal(ended: Ended, scenario: Scenario) -> list[str]:
    """What is wrong with how a writer was refused."""
    wrong = manners(ended, not ended.error, "ValueError", "OSError")
    if wrong or not ended.error or Path(scenario.target).parts[0] in ended.error["message"]:
        return wrong
    return [f"refused with {ended}, expected an error that names {scenario.target}"]


def _store(path: Path) -> str:
    digest = store_digest(path)
    if digest == ABSENT:
        raise FileNotFoundError(path)
    return digest


def scenarios(inputs: Inputs) -> list[Scenario]:
    """All of them."""
    old, sources = {"store": inputs.other_data}, (inputs.data, inputs.other_data)

    def collector(seed: int, **options: Any) -> Job:
        run = partial(jobs.collect, episodes=6 * EPISODES, seed=seed, **options)
        return Job("collect", run, before=old if options else {}, settings=jobs.small_blocks)

    alike, other = collector(3), collector(4)
    again = tuple(collector(seed, overwrite=True) for seed in (3, 4))
    new = [Job("save", partial(jobs.save, source=source)) for source in sources]
    over = tuple(Job("save", partial(jobs.save, source=source, overwrite=True), before=old) for source in sources)
    fit = command(jobs.fit_words(inputs), "model.safetensors", settings=jobs.small_fits)
    potential = ["potential", str(inputs.data), "--kind", "value", "--delay-discount"]
    tables = tuple(command([*potential, discount], "potential.json") for discount in ("0.9", "0.8"))
    attribute = ["attribute", str(inputs.model), str(inputs.data), *CPU, "--rewards"]
    credit = tuple(command([*attribute, kind], "credit.safetensors") for kind in ("all", "positive"))
    training = Job("train", jobs.deep)
    return [
        Scenario("collect, same settings", (alike, alike), "store", _store, only_one=True),
        Scenario("collect, other settings", (alike, other), "store", _store, only_one=True),
        Scenario("collect, overwriting", again, "store", _store, before=inputs.other_data),
        Scenario("save", (*new, *new), "store", _store, only_one=True, readers=2),
        Scenario("save, overwriting", over, "store", _store, before=inputs.other_data, times=_SAVES, readers=2),
        Scenario("fit", (fit, fit), "model.safetensors", digest_of),
        Scenario("learn", (jobs.learn(inputs),) * 2, "run/curves.safetensors", digest_of),
        Scenario("train", (training, training), "training/training.safetensors", _any_training),
        Scenario("potential", tables, "potential.json", digest_of, times=_SAVES, readers=2),
        Scenario("attribute", credit, "credit.safetensors", digest_of, times=_SAVES, readers=2),
    ]


def _any_training(path: Path) -> str:
    """Whether it is whole; its content changes while training goes on."""
    read_training(path.parent)
    return "whole"


def units(inputs: Inputs, quick: bool) -> list[tuple[str, Callable[..., Tally]]]:
    """One for each scenario."""
    return [(scenario.name, partial(_attack, scenario, 1 if quick else 12)) for scenario in scenarios(inputs)]


def _attack(scenario: Scenario, races: int, scratch: Path, seed: int, only: str | None) -> Tally:
    """What happens in a race is not decided by a seed, so one to be repeated is run several times."""
    tally, race = Tally("writers", scenario.name), Race(scenario, scratch)
    tally.count("undisturbed", race.problems)
    for number in range(races if only is None else 0 if only == "undisturbed" else 20):
        tally.count(f"race-{number}", race.run())
    return tally
