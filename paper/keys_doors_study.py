"""A study of transfer in 3D: its maps, conditions and files, and what of it is done."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import secret_rl as srl
from secret_rl.sb3 import paper_ppo

# To be looked at when everything else is settled: 3,000,000 to 3,000,004 were, and then how agents act was changed.
HELD_OUT_MAPS = 3_100_000
# Pictures of 80x60 train less than half as fast; a goal of 50, as in the paper, was not tried.
WORLD: dict[str, Any] = {"preset": "2x2-easy", "core": 2, "size": (40, 30), "goal_reward": 5.0}
# Random play on maps 100 to 105, 30 episodes each, opens 0.67 doors an episode and never reaches the goal where an
# action is held for 4 tics, as in the paper; with 8 tics it opens 1.3 and reaches the goal in one episode of six.
ACTING: dict[str, Any] = {"frame_skip": 8}


@dataclass(frozen=True)
class Condition:
    """What an agent is given beside the task."""

    label: str
    potential: str | None = None
    """A kind of ``estimate_potential``, "learned" (pending, from pictures), "OnlineCredit" or "way" (``known_way``);
    None: no shaping."""
    scale: float | str = 1.0
    """Of the shaping."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of ``OnlineCredit``."""

    @property
    def needs_credit(self) -> bool:
        """Whether a credit model has a part in it."""
        return self.potential not in (None, "value", "way")

    @property
    def needs_data(self) -> bool:
        """Whether its potential is made from target trajectories."""
        return self.potential not in (None, "OnlineCredit")


@dataclass(frozen=True)
class Study:
    """Maps, conditions, and everything that a run depends on."""

    conditions: Sequence[Condition]
    maps: int = 5
    seeds: int = 3
    steps: int = 150_000
    """Of a run at most."""
    first_map: int = HELD_OUT_MAPS
    world: Mapping[str, Any] = field(default_factory=lambda: dict(WORLD))
    """Options of the environment."""
    acting: Mapping[str, Any] = field(default_factory=lambda: dict(ACTING))
    """What replaces options of the environment for agents that learn."""
    ppo: Mapping[str, Any] = field(default_factory=dict)
    """What replaces options of ``paper_ppo``."""
    target_trajectories: int = 1_000
    discount: float = 0.995
    """Of potentials that are estimated: a step of an agent, at 0.99, lasts two of the wanderer's."""
    learning: Mapping[str, Any] = field(default_factory=dict)
    """Of ``learn_potential``."""
    policy: str | None = None
    """Weights of a PPO agent that plays the target trajectories; None: ``Wanderer``."""
    stop_rate: float = 0.9
    """A run is over once this share of the last ``stop_episodes`` episodes has reached the goal."""
    stop_episodes: int = 50

    def env(self, number: int) -> dict[str, Any]:
        """Options of a map, as the target trajectories are played on it."""
        return {**self.world, "layout_seed": self.first_map + number}

    def agent_env(self, number: int) -> dict[str, Any]:
        """Options of a map, as agents learn on it."""
        return {**self.env(number), **self.acting}


@dataclass(frozen=True)
class Files:
    """Where a study reads and writes."""

    folder: Path
    credit: Sequence[Path] = ()
    """Credit models; map ``m`` has model ``m``, modulo their number."""

    def potential(self, condition: Condition, number: int) -> Path:
        """Of a condition, on a map."""
        suffix = "safetensors" if condition.potential == "learned" else "json"
        return self.folder / f"potential-{number}-{slug(condition.potential)}.{suffix}"

    def target(self, number: int) -> Path:
        """What is known of the target trajectories of a map."""
        return self.folder / f"target-{number}.json"

    def run(self, condition: Condition, number: int, seed: int) -> Path:
        """Of a run."""
        return self.folder / f"run-{number}-{seed}-{slug(condition.label)}.json"

    def secret(self, number: int) -> srl.Secret:
        """The credit model of a map."""
        return srl.Secret.load(self._secret_path(number), device=device())

    def credit_digest(self, number: int) -> str:
        """Tells a credit model from others."""
        return hashlib.sha256(self._secret_path(number).read_bytes()).hexdigest()[:16]

    def _secret_path(self, number: int) -> Path:
        if not self.credit:
            raise ValueError("no credit model was named, and some conditions need one: give its path in credit=")
        return Path(self.credit[number % len(self.credit)])


Job = tuple[Condition, int, int]
"""Condition, map, seed."""


def jobs(study: Study) -> list[Job]:
    """All runs, seed by seed."""
    return [
        (condition, number, seed)
        for seed in range(study.seeds)
        for condition in study.conditions
        for number in range(study.maps)
    ]


def done(study: Study, files: Files, job: Job) -> dict[str, Any] | None:
    """What a run with these very settings and this credit model left behind; None if there was none."""
    found = left_by(study, files, job)
    return found if found and found["credit"] == credit_of(files, job[1], needed=job[0].needs_credit) else None


def left_by(study: Study, files: Files, job: Job) -> dict[str, Any] | None:
    """The same, whichever the credit model: those who only analyse need not have it."""
    return _content(files.run(*job), settings_of(study, job))


def target_of(study: Study, files: Files, number: int) -> dict[str, Any] | None:
    """What is known of the target trajectories of a map, if its potentials are made."""
    return _content(files.target(number), target_settings(study, number))


def _content(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content if content["settings"] == settings else None


def credit_of(files: Files, number: int, *, needed: bool) -> str | None:
    """The digest of the credit model of a map, where it is needed."""
    return files.credit_digest(number) if needed else None


def settings_of(study: Study, job: Job) -> dict[str, Any]:
    """What a run depends on beside the credit model, as JSON gives it back."""
    condition, number, seed = job
    own = {
        "condition": asdict(condition), "seed": seed, "steps": study.steps, "env": study.agent_env(number),
        "ppo": _plain(paper_ppo(**study.ppo)), "stop": [study.stop_rate, study.stop_episodes],
        "target": target_settings(study, number) if condition.needs_data else None,
    }  # fmt: skip
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def target_settings(study: Study, number: int) -> dict[str, Any]:
    """What the potentials of a map depend on beside the credit model, as JSON gives it back."""
    own = {
        "env": study.env(number), "trajectories": study.target_trajectories, "discount": study.discount,
        "learning": dict(study.learning), "policy": study.policy or "wanderer, going astray",
    }  # fmt: skip
    return json.loads(json.dumps(own))  # type: ignore[no-any-return]


def _plain(options: Any) -> Any:
    """Options as JSON holds them; classes by name."""
    if isinstance(options, Mapping):
        return {name: _plain(value) for name, value in options.items()}
    return getattr(options, "__name__", options)


def slug(label: str | None) -> str:
    """A label as a part of a file's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in str(label).lower())


def device() -> str:
    """Where networks are computed."""
    return "cuda" if torch.cuda.is_available() else "cpu"
