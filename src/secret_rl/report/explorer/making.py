"""``explore``: a model and trajectories become a page."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replace_text
from secret_rl.checks import check_integer
from secret_rl.credit import NotFittedError, Secret
from secret_rl.credit.outlook import Outlook
from secret_rl.progress import Tick, progress_bar
from secret_rl.report.explorer.choosing import bytes_per_step, candidates, choose
from secret_rl.report.explorer.describing import describe, known, known_names, short, truth, truth_names
from secret_rl.report.explorer.page import pack, page
from secret_rl.report.explorer.replaying import EnvLike
from secret_rl.report.explorer.values import actions
from secret_rl.report.explorer.watching import Watcher
from secret_rl.report.verdicts import doubt_of, verdict_of
from secret_rl.shaping import CoverageWarning, NotCreditWarning, OnlineCredit, PotentialRangeWarning, ReplayShaping
from secret_rl.shaping.terms import PotentialLike
from secret_rl.trajectories import Trajectories

SHOWN = 50
MOST = 200
"""Trajectories on one page: more than anyone leafs through."""
BYTES = 2_000_000
"""Size of a page of up to 50 trajectories; beyond, 40 kB each."""
_SPARE = 5_000
"""Bytes for the heading and the notes."""
_OF_A_BYTE = 0.7
"""Of a picture that fits in a byte of the page, which is base64."""
_LEAST_FRAMES, _MOST_FRAMES = 1_000, 120_000  # bytes of an episode
_PART_BYTES = 128 << 20  # observations in memory at a time


@dataclass(frozen=True)
class Explored:
    """A page that was written."""

    path: Path
    bytes: int
    episodes: tuple[int, ...]
    """Numbers of the episodes it shows."""
    notes: tuple[str, ...]
    """What was left out or could not be had, as it says on the page."""


def explore(
    model: Secret | str | Path,
    data: Trajectories | str | Path,
    out: str | Path,
    *,
    trajectories: int = SHOWN,
    episodes: Sequence[int] | None = None,
    potential: PotentialLike | None = None,
    discount: float = 0.99,
    env: EnvLike | None = None,
    replay: bool = True,
    title: str | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> Explored:
    """Write a page to look at credit with: one HTML file that needs no network and opens from disk.

    Args:
        model: A fitted ``Secret``, or its file.
        data: Trajectories like those it was fitted on, or their folder.
        out: The file to write.
        trajectories: How many to show, chosen so that successful, mispredicted and long ones are among them.
        episodes: Show these instead, by number.
        potential: Whose values and shaped rewards are shown; by default ``OnlineCredit`` of the model.
        discount: Of the shaped reward: the agent's own.
        env: Where episodes are played again to see them: an id, or a function that makes an environment with
            ``render_mode="rgb_array"``; by default the id that the data names.
        replay: Whether to play episodes again at all; without, only what is stored is shown.
        title: Heading of the page.
        device: For a model given as a file.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    check_integer("trajectories", trajectories, 1)
    secret = model if isinstance(model, Secret) else Secret.load(model, device=device)
    data = data if isinstance(data, Trajectories) else Trajectories.load(data)
    secret.fitted_for(data)
    making = _Making(secret, data, discount, potential)
    name = "" if isinstance(model, Secret) else f"{Path(model).name}, "
    with progress_bar(progress, "episodes") as tick:
        chosen = making.chosen(trajectories, tick) if episodes is None else making.asked(episodes)
        watcher = Watcher(data, env, replay)
        try:
            content = making.content(chosen, watcher, title, tick) | about_model(secret, name)
        finally:
            watcher.close()
    html = page(content, content["title"])
    replace_text(out, html)
    shown = tuple(entry["episode"] for entry in content["trajectories"])
    return Explored(Path(out), len(html.encode()), shown, tuple(content["notes"]))


def about_model(secret: Secret, name: str) -> dict[str, Any]:
    """Which model it is, the verdict on it, and the classes of reward that it tells apart."""
    assert secret.report is not None
    doubt = doubt_of(secret.report)
    classes = secret.reward_classes
    return {
        "model": f"{name}seed {secret.seed}, {secret.report.steps:,} updates",
        "verdict": verdict_of(secret.report),
        "doubt": None if doubt is None else f"{secret.report.verdict}: {doubt}.",
        "classes": {"names": list(classes.names), "signs": classes.signs.tolist()},
    }


class _Making:
    """One page in the making."""

    def __init__(self, secret: Secret, data: Trajectories, discount: float, potential: PotentialLike | None) -> None:
        self._secret, self._data = secret, data
        self._asked = potential is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCreditWarning)  # the page says so
            self._shaping = ReplayShaping(OnlineCredit(secret) if potential is None else potential, discount)
        self._probabilities: dict[int, NDArray[np.float32]] = {}
        self._truths = truth_names(data)
        self._known = known_names(data, self._truths)
        self._notes: list[str] = []

    def chosen(self, count: int, tick: Tick) -> NDArray[np.int64]:
        """Some episodes of every kind."""
        pool = candidates(self._data, self._capped(count))
        wrong = np.zeros(len(pool), np.int64)
        place = 0
        for numbers, part in self._parts(pool):
            outlook = Outlook(self._secret, part)
            for i, number in enumerate(numbers.tolist()):
                found = self._probabilities[number] = outlook.probabilities(i)
                wrong[place] = np.count_nonzero(found.argmax(1) != self._secret.reward_classes.index(part[i].rewards))
                place += 1
                tick("predicted", place, len(pool))
        return pool[choose(self._data.lengths[pool], self._data.successful[pool], wrong, self._capped(count))]

    def asked(self, episodes: Sequence[int]) -> NDArray[np.int64]:
        """The episodes with these numbers."""
        total = len(self._data)
        for number in episodes:
            if not 0 <= number < total:
                raise ValueError(f"episode {number} was asked for, but there are {total:,}: from 0 to {total - 1:,}")
        if not len(episodes):
            raise ValueError("no episodes were asked for: name at least one")
        numbers = np.array(list(dict.fromkeys(episodes)), np.int64)
        return numbers[: self._capped(len(numbers))]

    def content(self, chosen: NDArray[np.int64], watcher: Watcher, title: str | None, tick: Tick) -> dict[str, Any]:
        """Everything the page shows."""
        entries = self._described(chosen, watcher, tick)
        limit = BYTES * max(1.0, len(entries) / SHOWN)
        spent = _size(entries, title)
        while spent > 0.9 * limit and len(entries) > 1:
            kept = max(1, int(len(entries) * min(0.95, 0.85 * limit / spent)))
            entries = entries[:kept]
            spent = _size(entries, title)
        if len(entries) < len(chosen):
            self._notes.append(f"{len(entries)} of {len(chosen)} trajectories are shown: longer pages load slowly.")
        self._add_frames(entries, watcher, limit - spent, tick)
        meta, total = self._data.meta, len(self._data)
        return {
            "title": title or "Credit explorer",
            "env": str(meta.get("env_id", "")),
            "options": ", ".join(f"{name}={value}" for name, value in (meta.get("env_options") or {}).items()),
            "episodes": total,
            "discount": self._shaping.discount,
            "potential": repr(self._shaping.potential) if "potential" in entries[0] else None,
            "actions": watcher.actions,
            "notes": [*self._notes, *watcher.notes],
            # Numbers compress well as long as no pictures come in between.
            "trajectories": [{name: part for name, part in entry.items() if name != "frames"} for entry in entries],
            "frames": [entry.get("frames") for entry in entries],
        }

    def _described(self, chosen: NDArray[np.int64], watcher: Watcher, tick: Tick) -> list[dict[str, Any]]:
        entries = []
        for numbers, part in self._parts(chosen):
            outlook = Outlook(self._secret, part)
            paid = self._paid(part)
            credited = self._credited(part)
            for i, number in enumerate(numbers.tolist()):
                episode = part[i]
                found = self._probabilities.pop(number, None)
                found = outlook.probabilities(i) if found is None else found
                rows = slice(int(part.offsets[i]), int(part.offsets[i + 1]))
                entry = describe(episode, number, found, self._secret.reward_classes, credited[rows], outlook, i)
                entry |= {"truth": truth(episode, self._truths), "known": known(episode, self._known)}
                entry |= {"actions": actions(episode)}
                if paid is not None:
                    entry["shaping"] = [short(value) for value in paid[0][rows]]
                    entry["potential"] = [short(value) for value in paid[1][rows]]
                entries.append(entry | watcher.scene(episode))
                tick("described", len(entries), len(chosen))
        return entries

    def _add_frames(self, entries: list[dict[str, Any]], watcher: Watcher, left: float, tick: Tick) -> None:
        """Pictures for episodes that have no other face, in the bytes that are left.

        Each gets its share by length of what those before it have left over.
        """
        faceless = [entry for entry in entries if not {"scene", "values"} & entry.keys()]
        steps = sum(entry["steps"] for entry in faceless)
        left, dropped = left - _SPARE, 0
        numbers = np.array([entry["episode"] for entry in faceless], np.int64)
        for done, (entry, episode) in enumerate(zip(faceless, self._one_by_one(numbers), strict=True), 1):
            share = np.clip(_OF_A_BYTE * left * entry["steps"] / steps, _LEAST_FRAMES, _MOST_FRAMES)
            found = watcher.frames(episode, int(share), _wanted(entry))
            steps -= entry["steps"]
            left -= len(pack(found))
            if "frames" in found:
                dropped += found["frames"]["left_out"]
            # A map from above knows better where the agent is than a frame in first person.
            entry |= {**found, **({"places": entry["places"]} if "places" in entry else {})}
            tick("pictured", done, len(faceless))
        if dropped:
            self._notes.append(
                f"{dropped:,} frames are left out so that the page stays small; the nearest one is shown instead. "
                "Frames at rewards and at the steps they look at are kept: show fewer trajectories for more frames."
            )

    def _credited(self, part: Trajectories) -> NDArray[np.bool_]:
        """(steps,) which rewards are predicted, and left open by the present."""
        found = self._secret.attribute(part, progress=False)
        credited = np.zeros(part.steps, np.bool_)
        credited[part.offsets[found.episode] + found.step] = True
        return credited

    def _paid(self, part: Trajectories) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """What shaping pays, and the potential; None where the model itself offers none."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", CoverageWarning)
                warnings.simplefilter("always", PotentialRangeWarning)
                paid = self._shaping.along(part)
        except (NotFittedError, ValueError) as none:
            if self._asked:
                raise
            caught, paid = [], None
            self._note(f"No potential is shown: {none}.")
        for warning in caught:
            self._note(f"{warning.message}.")
        return paid

    def _capped(self, count: int) -> int:
        if count > MOST:
            self._note(f"{count:,} trajectories were asked for; a page shows at most {MOST}.")
        return min(count, MOST)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _parts(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Trajectories]]:
        """Some episodes, as many at a time as fit in memory."""
        size = np.cumsum(self._data.lengths[numbers] * bytes_per_step(self._data)) // _PART_BYTES
        for which in np.unique(size):
            yield numbers[size == which], self._data[numbers[size == which]]

    def _one_by_one(self, numbers: NDArray[np.int64]) -> Iterator[Any]:
        for _, part in self._parts(numbers):
            yield from part


def _size(entries: list[dict[str, Any]], title: str | None) -> int:
    return len(page([], title or "")) + len(pack(entries))


def _wanted(entry: dict[str, Any]) -> list[int]:
    """Frames that matter most, as counts of steps: after rewards and the steps that earned them, and around those."""
    strong: dict[int, int] = {}
    for row in entry["attention"]:
        for step, weight in zip(row["to"], row["weights"], strict=True):
            strong[step] = max(strong.get(step, 0), weight)
    earned = sorted(strong, key=lambda step: -strong[step])[:16]
    marks = [t for steps in entry["truth"].values() for t in steps]
    steps = [*(t for t, _ in entry["rewards"]), *earned, *marks]
    return [count for step in steps for count in (step + 1, step) if count <= entry["steps"]]
