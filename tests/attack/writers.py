"""Several processes that write to the same place at once, while others read it.

Readers see the old or the new content whole, or nothing before the first is there. Of those who write, at least one
succeeds, exactly one where others are to be refused; the others get one clear line, and nobody hangs.
"""

import json
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import stable_baselines3 as sb3
from tests.attack.children import Child, Ended, manners, run
from tests.attack.content import ABSENT, content_of, differences, digest_of, store_digest
from tests.attack.jobs import (
    DQN,
    EPISODES,
    FIT,
    MAZE,
    TRIGGERS,
    Inputs,
    Job,
    options_of,
    small_blocks,
    small_fits,
    words_of,
)  # fmt: skip
from tests.attack.table import Tally

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.sb3 import train

_LIMIT = 60.0
_SAVES = 12  # by each process that saves again and again


@dataclass(frozen=True)
class Scenario:
    """Jobs that write to the same place."""

    name: str
    writers: tuple[Job, ...]
    target: str
    """What they write, in the folder."""
    read: Callable[[Path], Any]
    """A digest of it; FileNotFoundError where there is none."""
    only_one: bool = False
    """Whether all but one must be refused."""
    before: Path | None = None
    """What is there at the beginning."""
    times: int = 1
    """How often each writes."""
    readers: int = 1


class Race:
    """One scenario, with what each writer leaves when it is alone."""

    def __init__(self, scenario: Scenario, scratch: Path) -> None:
        self.scenario, self._scratch, self._folder = scenario, scratch, scratch / "work"
        self.problems: list[str] = []
        self._alone, digests = [], set()
        for job in scenario.writers:
            job.start(self._folder)
            ended = run(partial(job.execute, self._folder), scratch / "notes")
            if ended.code:
                self.problems.append(f"undisturbed, it ends with {ended}")
            self._alone.append(content_of(self._folder))
            digests.add(scenario.read(self._folder / scenario.target))
        if scenario.before is not None:
            digests.add(scenario.read(scenario.before))
        self._digests = digests

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
        return problems + self._problems_of_writers(ended)

    def _problems_of_writers(self, ended: list[Ended]) -> list[str]:
        won = [one for one in ended if not one.code]
        problems = [f"a writer: {what}" for one in ended if one.code for what in _refusal(one, self.scenario)]
        if not won:
            problems.append("nobody succeeded")
        if self.scenario.only_one and len(won) > 1:
            problems.append(f"{len(won)} writers believe that they succeeded")
        found = content_of(self._folder)
        least = min((differences(found, alone) for alone in self._alone), key=len)
        return problems + [f"at the end: {what}" for what in least]


def _write(job: Job, folder: Path, times: int, stage: mmap.mmap) -> Any:
    with job.settings():
        while not stage[0]:
            pass  # all begin in the same moment
        for _ in range(times):
            code = job.run(folder)
            if code:
                return code
    return 0


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
    wrong = manners(ended, ended.error is None, "ValueError", "OSError")
    if wrong or ended.error is None or Path(scenario.target).parts[0] in ended.error["message"]:
        return wrong
    return [f"refused with {ended}, expected an error that names {scenario.target}"]


def _store(path: Path) -> str:
    digest = store_digest(path)
    if digest == ABSENT:
        raise FileNotFoundError(path)
    return digest


def scenarios(inputs: Inputs) -> list[Scenario]:
    """All of them."""
    old = {"store": inputs.other_data}
    data = str(inputs.data)

    def collect(folder: Path, seed: int = 3, **options: Any) -> None:
        srl.collect(
            TRIGGERS, 6 * EPISODES, seed=seed, env_options=MAZE, out=folder / "store", progress=False, **options
        )

    def save(folder: Path, source: Path, **options: Any) -> None:
        srl.Trajectories.load(source).save(folder / "store", **options)

    def deep(folder: Path) -> None:
        train(sb3.DQN, TRIGGERS, 96, folder=folder / "training", checkpoint_every=32, progress=False, **DQN)

    def command(*words: str, settings: Any = small_fits) -> Job:
        return Job(words[0], lambda folder: main([*words, "--quiet", "--out", str(folder / out[words[0]])]),
                   settings=settings, command=True)  # fmt: skip

    out = {"fit": "model.safetensors", "learn": "run", "potential": "potential.json", "attribute": "credit.safetensors"}
    collector = {"settings": small_blocks}
    alike = Job("collect", collect, **collector)
    other = Job("collect", lambda folder: collect(folder, seed=4), **collector)
    again = [
        Job("collect", lambda folder, seed=seed: collect(folder, seed, overwrite=True), before=old, **collector)
        for seed in (3, 4)
    ]
    new = [Job("save", partial(save, source=source)) for source in (inputs.data, inputs.other_data)]
    over = [
        Job("save", partial(save, source=source, overwrite=True), before=old)
        for source in (inputs.data, inputs.other_data)
    ]
    fit = command("fit", data, *options_of(FIT), "--device", "cpu")
    learn = command(
        "learn", TRIGGERS, "--episodes", "10", "--seeds", "2", "--potential", str(inputs.potential), *words_of(MAZE)
    )
    tables = [
        command("potential", data, "--kind", "value", "--delay-discount", discount) for discount in ("0.9", "0.8")
    ]
    credit = [
        command("attribute", str(inputs.model), data, "--rewards", kind, "--device", "cpu")
        for kind in ("all", "positive")
    ]
    training = Job("train", deep)
    return [
        Scenario("collect, same settings", (alike, alike), "store", _store, only_one=True),
        Scenario("collect, other settings", (alike, other), "store", _store, only_one=True),
        Scenario("collect, overwriting", tuple(again), "store", _store, before=inputs.other_data),
        Scenario("save", (*new, *new), "store", _store, only_one=True, readers=2),
        Scenario("save, overwriting", tuple(over), "store", _store, before=inputs.other_data, times=_SAVES, readers=2),
        Scenario("fit", (fit, fit), "model.safetensors", digest_of),
        Scenario("learn", (learn, learn), "run/curves.safetensors", digest_of),
        Scenario("train", (training, training), "training/state.json", _any_json),
        Scenario("potential", tuple(tables), "potential.json", digest_of, times=_SAVES, readers=2),
        Scenario("attribute", tuple(credit), "credit.safetensors", digest_of, times=_SAVES, readers=2),
    ]


def _any_json(path: Path) -> str:
    """Whether it is whole; its content changes while training goes on."""
    json.loads(path.read_text(encoding="utf-8"))
    return "whole"


def units(inputs: Inputs, scratch: Path, quick: bool, seed: int) -> list[Callable[[], Tally]]:
    """One for each scenario."""
    return [
        partial(_attack, scenario, scratch / f"writers-{number}", 1 if quick else 12)
        for number, scenario in enumerate(scenarios(inputs))
    ]


def _attack(scenario: Scenario, scratch: Path, races: int) -> Tally:
    tally, race = Tally("writers", scenario.name), Race(scenario, scratch)
    tally.count("undisturbed", race.problems)
    for number in range(races):
        tally.count(f"race-{number}", race.run())
    return tally


def repeat(inputs: Inputs, scratch: Path, target: str, case: str, seed: int) -> Tally:
    """A scenario again: what happens in a race is not decided by a seed, so it is run several times."""
    (scenario,) = (scenario for scenario in scenarios(inputs) if scenario.name == target)
    return _attack(scenario, scratch, 0 if case == "undisturbed" else 20)
