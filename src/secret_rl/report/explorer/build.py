"""``explore``: a model and trajectories become a page."""

import gzip
import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replace_text
from secret_rl.checks import check_integer
from secret_rl.credit.base import CreditMethod, NotFittedError, inspector, load_method
from secret_rl.progress import Tick, progress_bar
from secret_rl.report.explorer.episode import annotation_names, annotations, describe, short
from secret_rl.report.explorer.pictures import EnvLike, Viewer
from secret_rl.report.record import doubt_of, verdict_of
from secret_rl.shaping import CoverageWarning, NotCreditWarning, OnlineCredit, PotentialRangeWarning, ReplayShaping
from secret_rl.shaping.core import PotentialLike
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import named_arrays

try:
    from jinja2 import Template
    from markupsafe import Markup
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('pages need the report extra: pip install "secret-rl[report]"') from missing

SHOWN = 50
MOST = 200
"""Trajectories on one page at most."""
BYTES = 2_000_000
"""Size of a page of up to 50 trajectories; beyond, 40 kB each."""
_SPARE_BYTES = 5_000  # for the heading and the notes
_BASE64 = 0.7  # bytes of a picture in a byte of the page
_LEAST_FRAMES, _MOST_FRAMES = 1_000, 120_000  # bytes for the frames of an episode
_PART_BYTES = 128 << 20  # observations in memory at a time
_POOL_BYTES, _POOL_PER_SHOWN = 64 << 20, 8  # observations to predict before the choice: bytes, and episodes
_SCRIPTS = ("elements.js", "stage.js", "timeline.js", "list.js", "explorer.js")


@dataclass(frozen=True)
class Explored:
    """A page that was written."""

    path: Path
    bytes: int
    episodes: tuple[int, ...]
    """Numbers of the episodes it shows."""
    notes: tuple[str, ...]
    """What was left out or is not available, as on the page."""


def explore(
    model: CreditMethod | str | Path,
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
    """Write a page that shows credit: one HTML file that needs no network and opens from disk.

    Args:
        model: A fitted credit method such as ``Secret``, or its file.
        data: Trajectories like those it was fitted on, or their folder.
        out: The file to write.
        trajectories: How many to show, chosen so that successful, mispredicted and long ones are among them.
        episodes: Show these instead, by number.
        potential: Whose values and shaped rewards are shown; by default ``OnlineCredit`` of the model.
        discount: Of the shaped reward: the agent's own.
        env: Where episodes are replayed to render them: an id, or a function that makes an environment with
            ``render_mode="rgb_array"``; by default the id in the data.
        replay: Whether to replay episodes at all; without, only what is stored is shown.
        title: Heading of the page.
        device: For a model given as a file.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    check_integer("trajectories", trajectories, 1)
    secret = load_method(model, device=device) if isinstance(model, str | Path) else model
    data = data if isinstance(data, Trajectories) else Trajectories.load(data)
    inspector(secret, data[:1])  # an error where it does not fit the data
    builder = _Builder(secret, data, discount, potential)
    with progress_bar(progress, "episodes") as tick, closing(Viewer(data, env, replay)) as viewer:
        chosen = builder.choose(trajectories, tick) if episodes is None else builder.check(episodes)
        content = builder.content(chosen, viewer, title, tick)
    name, report = f"{Path(model).name}, " if isinstance(model, str | Path) else "", secret.report
    assert report is not None
    about = f"seed {secret.seed}, {report.steps:,} updates" if hasattr(secret, "seed") else secret.name
    doubt = doubt_of(report)
    content |= {
        "model": f"{name}{about}",
        "verdict": verdict_of(report),
        "doubt": None if doubt is None else f"{report.verdict}: {doubt}.",
        "classes": {"names": list(report.classes.names), "signs": report.classes.signs.tolist()},
    }
    html = render_page(content, content["title"])
    replace_text(out, html)
    shown = tuple(entry["episode"] for entry in content["trajectories"])
    return Explored(Path(out), len(html.encode()), shown, tuple(content["notes"]))


class _Builder:
    """Collects the content of one page."""

    def __init__(
        self, secret: CreditMethod, data: Trajectories, discount: float, potential: PotentialLike | None
    ) -> None:
        assert secret.report is not None
        self._secret, self._data, self._report = secret, data, secret.report
        self._potential_given = potential is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCreditWarning)  # the page says so
            self._shaping = ReplayShaping(OnlineCredit(secret) if potential is None else potential, discount)
        self._notes: list[str] = []

    def choose(self, count: int, tick: Tick) -> NDArray[np.int64]:
        """Some episodes of every kind."""
        count = self._capped(count)
        size = pool_size(self._data, count)
        pool = choose(self._data.lengths, self._data.successful, np.zeros(len(self._data), np.int64), size)
        wrong: list[int] = []
        for _, part in self._parts(pool):
            inspected = inspector(self._secret, part)
            for i, episode in enumerate(part):
                predicted = inspected.probabilities(i).argmax(1)
                wrong.append(int((predicted != self._report.classes.index(episode.rewards)).sum()))
                tick("predicted", len(wrong), len(pool))
        return pool[choose(self._data.lengths[pool], self._data.successful[pool], np.array(wrong), count)]

    def check(self, episodes: Sequence[int]) -> NDArray[np.int64]:
        """The episodes with these numbers."""
        total = len(self._data)
        for number in episodes:
            if not 0 <= number < total:
                raise ValueError(f"episode {number} was asked for, but there are {total:,}: from 0 to {total - 1:,}")
        if not len(episodes):
            raise ValueError("no episodes were asked for: name at least one")
        numbers = np.array(list(dict.fromkeys(episodes)), np.int64)
        return numbers[: self._capped(len(numbers))]

    def content(self, chosen: NDArray[np.int64], viewer: Viewer, title: str | None, tick: Tick) -> dict[str, Any]:
        """Everything the page shows."""
        entries = self._entries(chosen, viewer, tick)
        limit = BYTES * max(1.0, len(entries) / SHOWN)
        frame_of_page = len(render_page([], title or ""))
        spent = frame_of_page + len(pack(entries))
        while spent > 0.9 * limit and len(entries) > 1:
            entries = entries[: max(1, int(len(entries) * min(0.95, 0.85 * limit / spent)))]
            spent = frame_of_page + len(pack(entries))
        if len(entries) < len(chosen):
            self._note(f"{len(entries)} of {len(chosen)} trajectories are shown: longer pages load slowly.")
        self._add_frames(entries, viewer, limit - spent - _SPARE_BYTES, tick)
        meta = self._data.meta
        return {
            "title": title or "Credit explorer",
            "env": str(meta.get("env_id", "")),
            "options": ", ".join(f"{name}={value}" for name, value in (meta.get("env_options") or {}).items()),
            "episodes": len(self._data),
            "discount": self._shaping.discount,
            "potential": repr(self._shaping.potential) if "potential" in entries[0] else None,
            "actions": viewer.actions,
            "notes": [*self._notes, *viewer.notes],
            # Numbers compress well as long as no pictures come in between.
            "trajectories": [{name: part for name, part in entry.items() if name != "frames"} for entry in entries],
            "frames": [entry.get("frames") for entry in entries],
        }

    def _entries(self, chosen: NDArray[np.int64], viewer: Viewer, tick: Tick) -> list[dict[str, Any]]:
        """Each episode in numbers, with its scene if it has one."""
        entries: list[dict[str, Any]] = []
        events, others = annotation_names(self._data)
        for numbers, part in self._parts(chosen):
            inspected = inspector(self._secret, part)
            shaping, found = self._shaped(part), self._secret.attribute(part, progress=False)
            credited = np.zeros(part.steps, np.bool_)  # which rewards are predicted, and left open by the present
            credited[part.offsets[found.episode] + found.step] = True
            for i, number in enumerate(numbers.tolist()):
                episode, rows = part[i], slice(int(part.offsets[i]), int(part.offsets[i + 1]))
                attention = partial(inspected.attention, i)
                chances, inferred = inspected.probabilities(i), self._report.inferred
                entry = describe(episode, chances, self._report.classes, inferred, credited[rows], attention)
                entry |= {"episode": number, **annotations(episode, events, others)}
                if shaping is not None:
                    entry["shaping"], entry["potential"] = ([short(v) for v in values[rows]] for values in shaping)
                entries.append(entry | viewer.scene(episode))
                tick("described", len(entries), len(chosen))
        return entries

    def _add_frames(self, entries: list[dict[str, Any]], viewer: Viewer, left: float, tick: Tick) -> None:
        """Frames for episodes without a scene, in the bytes that are ``left``; each gets its share by length."""
        bare = [entry for entry in entries if not {"scene", "values"} & entry.keys()]
        steps, dropped = sum(entry["steps"] for entry in bare), 0
        numbers = np.array([entry["episode"] for entry in bare], np.int64)
        episodes = (episode for _, part in self._parts(numbers) for episode in part)
        for done, (entry, episode) in enumerate(zip(bare, episodes, strict=True), 1):
            share = np.clip(_BASE64 * left * entry["steps"] / steps, _LEAST_FRAMES, _MOST_FRAMES)
            found = viewer.frames(episode, int(share), _wanted_frames(entry))
            steps -= entry["steps"]
            left -= len(pack(found))
            dropped += found.get("frames", {}).get("left_out", 0)
            entry |= {**found, **({"places": entry["places"]} if "places" in entry else {})}  # a map's are better
            tick("pictured", done, len(bare))
        if dropped:
            self._note(
                f"{dropped:,} frames are left out so that the page stays small; the nearest one is shown instead. "
                "Frames at rewards and at the steps they look at are kept: show fewer trajectories for more frames."
            )

    def _shaped(self, part: Trajectories) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """(steps,) the shaping reward, and the potential; None where the model itself offers none."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", CoverageWarning)
                warnings.simplefilter("always", PotentialRangeWarning)
                found = self._shaping.along(part)
        except (NotFittedError, ValueError) as none:
            if self._potential_given:
                raise
            self._note(f"No potential is shown: {none}.")
            return None
        for warning in caught:
            self._note(f"{warning.message}.")
        return found

    def _capped(self, count: int) -> int:
        if count > MOST:
            self._note(f"{count:,} trajectories were asked for; a page shows at most {MOST}.")
        return min(count, MOST)

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _parts(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Trajectories]]:
        """Some episodes, as many at a time as fit in memory."""
        part = np.cumsum(self._data.lengths[numbers] * _bytes_per_step(self._data)) // _PART_BYTES
        for which in np.unique(part):
            yield numbers[part == which], self._data[numbers[part == which]]


def _wanted_frames(entry: dict[str, Any]) -> list[int]:
    """Frames that matter most, as counts of steps: around rewards, the steps that earned them, and events."""
    strongest: dict[int, int] = {}
    for row in entry["attention"]:
        for step, weight in zip(row["to"], row["weights"], strict=True):
            strongest[step] = max(strongest.get(step, 0), weight)
    earned = sorted(strongest, key=lambda step: -strongest[step])[:16]
    events = [t for steps in entry["truth"].values() for t in steps]
    steps = [*(t for t, _ in entry["rewards"]), *earned, *events]
    return [count for step in steps for count in (step + 1, step) if count <= entry["steps"]]


def _bytes_per_step(data: Trajectories) -> int:
    """Memory of an observation."""
    arrays = (array for _, array in named_arrays("observations", data.observations))
    return sum(int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize for array in arrays)


def pool_size(data: Trajectories, count: int) -> int:
    """Episodes to predict so that ``count`` can be chosen from them; fewer where observations are large."""
    affordable = _POOL_BYTES // max(1, _bytes_per_step(data) * data.steps // len(data))
    return min(len(data), max(count, min(_POOL_PER_SHOWN * count, int(affordable))))


def choose(
    lengths: NDArray[np.int64], successful: NDArray[np.bool_], wrong: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Indices of ``count`` episodes, in order: half successful, a quarter mispredicted, some of the longest, others.

    ``wrong`` counts the steps of each episode that were predicted wrongly.
    """
    count = min(count, len(lengths))
    worst = np.argsort(-wrong, kind="stable")
    groups = [
        np.argsort(-lengths, kind="stable")[: max(1, count // 8)],
        worst[wrong[worst] > 0][: count // 4],
        _spread(np.flatnonzero(successful), count // 2),
    ]
    chosen = list(dict.fromkeys(np.concatenate(groups).tolist()))[:count]
    rest = np.setdiff1d(np.arange(len(lengths)), chosen)
    return np.sort(np.concatenate([np.array(chosen, np.int64), _spread(rest, count - len(chosen))]))


def _spread(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most ``count`` of some places, evenly spaced."""
    return places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(np.int64)]


def pack(content: Any) -> str:
    """JSON, compressed, in base64: no text of the data can end an element or begin one."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpack(page: str) -> Any:
    """The data of a page."""
    _, _, rest = page.partition('<script type="text/plain" id="data">')
    return json.loads(gzip.decompress(b64decode(rest.partition("</script>")[0])))


def render_page(content: Any, title: str) -> str:
    """The whole page. Its content security policy lets it load nothing and run nothing but its own script."""
    folder = files("secret_rl.report.explorer") / "page"
    html, style, *scripts = (
        (folder / name).read_text(encoding="utf-8") for name in ("explorer.html", "explorer.css", *_SCRIPTS)
    )
    script = "(() => {\n" + "\n".join(scripts) + "})();\n"
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    template = Template(html, autoescape=True)
    code = {"style": Markup(style), "script": Markup(script)}
    return str(template.render(title=title, policy=policy, data=pack(content), **code))


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
