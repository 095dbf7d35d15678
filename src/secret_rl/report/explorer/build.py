"""``explore``: a model and trajectories become a page."""

import gzip
import json
import os
import re
import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from secret_rl.atomic import replace_text
from secret_rl.checks import check_integer
from secret_rl.credit.attributions import Attributions
from secret_rl.credit.base import CreditMethod, NotFittedError, inspector, load_method
from secret_rl.progress import Tick, progress_bar
from secret_rl.report.explorer.episode import MOST_ROWS, credit_shares, describe, event_names, short
from secret_rl.report.explorer.overview import about, about_beside, survey
from secret_rl.report.explorer.pictures import EnvLike, Viewer
from secret_rl.shaping import NotCreditWarning, OnlineCredit, ReplayShaping
from secret_rl.shaping.core import PotentialLike
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.nested import arrays_of

SHOWN, MOST = 50, 2_000  # trajectories on one page: by default, and at most
_FRAME_BYTES = 1_200_000  # for the frames of a page of up to 50 trajectories; numbers and the page come on top
_MOST_FRAME_BYTES = 4  # times that, for pages of more
_POOL_BYTES, _POOL_PER_SHOWN = 64 << 20, 8  # observations to predict before the choice: bytes, and episodes
_SCRIPTS = (
    "elements.js",
    "stage.js",
    "timeline.js",
    "list.js",
    "overview.js",
    "address.js",
    "gif.js",
    "export.js",
    "explorer.js",
)


@dataclass(frozen=True)
class Explored:
    """A page; in a notebook it is shown in place."""

    path: Path | None
    """Where it was written, if it was."""
    bytes: int
    episodes: tuple[int, ...]
    """Numbers of the episodes it shows."""
    notes: tuple[str, ...]
    """What was left out or is not available, as on the page."""
    page: str
    """Its HTML."""

    def __repr__(self) -> str:
        where = "" if self.path is None else f"{str(self.path)!r}, "
        return f"Explored({where}{self.bytes / 1e6:.2f} MB, {len(self.episodes):,} trajectories)"

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 900px; border: 0"
        return f'<iframe srcdoc="{escape(self.page)}" style="{style}" title="Credit"></iframe>'


def explore(
    model: CreditMethod | str | Path,
    data: Trajectories | str | Path,
    out: str | Path | None = None,
    *,
    trajectories: int = SHOWN,
    episodes: Sequence[int] | None = None,
    beside: Mapping[str, CreditMethod | Attributions] | None = None,
    annotation: str | None = None,
    potential: PotentialLike | None = None,
    discount: float = 0.99,
    env: EnvLike | None = None,
    replay: bool = True,
    report: str | Path | None = None,
    title: str = "Credit explorer",
    device: str = "auto",
    progress: bool | None = None,
) -> Explored:
    """A page that shows credit: one HTML file that needs no network and opens from disk.

    Args:
        model: A fitted credit method such as ``Secret``, or its file.
        data: Trajectories like those it was fitted on, or their folder.
        out: The file to write. Without it, the page is kept in memory; notebooks show it in place.
        trajectories: How many to show, chosen so that successful, mispredicted and long ones are among them.
        episodes: Show these instead, by number.
        beside: Other methods, or their attributions of the same data, by name: under the arcs, each has a strip with
            its credit for the chosen reward.
        annotation: The truth that credit is judged by, as in ``credit_quality``; needed unless exactly one is boolean.
        potential: Whose values and shaped rewards are shown; by default ``OnlineCredit`` of the model.
        discount: Of the shaped reward: the agent's own.
        env: Where episodes are replayed to render them: an id, or a function that makes an environment with
            ``render_mode="rgb_array"``; by default the id in the data.
        replay: Whether to replay episodes at all; without, only what is stored is shown.
        report: A page to link to; by default ``report.html`` beside this one, if it is there.
        title: Heading of the page.
        device: For a model given as a file.
        progress: Show a progress bar; by default if the terminal is interactive.
    """
    name, secret = "", model
    if isinstance(secret, str | Path):
        name, secret = f"{Path(secret).name}, ", load_method(secret, device=device)
    data = data if isinstance(data, Trajectories) else Trajectories.load(data)
    inspector(secret, data[:1])  # an error where it is not fitted or does not fit the data
    fitted = secret.report
    assert fitted is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCreditWarning)  # the page says so
        shaping = ReplayShaping(OnlineCredit(secret) if potential is None else potential, discount)
    with progress_bar(progress, "episodes") as tick, closing(Viewer(data, env, replay)) as viewer:
        count = check_integer("trajectories", trajectories, 1, MOST)
        if episodes is None:
            chosen = _choose(secret, data, count, tick)
        else:
            chosen = list(dict.fromkeys(check_integer("an episode", number, 0, len(data) - 1) for number in episodes))
            check_integer("the number of episodes", len(chosen), 1, MOST)
        entries: list[dict[str, Any]] = []
        events = event_names(data)
        overview = survey(secret, data, annotation, tick)
        others = [about_beside(name, other, data, annotation) for name, other in (beside or {}).items()]
        frame_bytes = _FRAME_BYTES * min(max(1.0, len(chosen) / SHOWN), _MOST_FRAME_BYTES)
        frame_bytes /= data.lengths[chosen].sum()  # for each step
        for number in chosen:
            one = data[number : number + 1]
            entry = describe(one[0], fitted, inspector(secret, one), secret.attribute(one, progress=False))
            truth = {name: np.flatnonzero(one.annotations[name]).tolist() for name in events}
            entry |= {"episode": number, "truth": truth}
            steps = [row["step"] for row in entry["attention"]]
            entry["beside"] = [_credit_beside(other, data, number, steps) for other in (beside or {}).values()]
            try:
                entry["shaping"], entry["potential"] = ([short(v) for v in values] for values in shaping.along(one))
            except (NotFittedError, ValueError) as none:
                if potential is not None:
                    raise
                viewer.note(f"No potential is shown: {none}.")  # the method offers none
            entry |= viewer.show(one[0], int(frame_bytes * len(one[0])), _wanted_frames(entry))
            entries.append(entry)
            tick("described", len(entries), len(chosen))
    rows, alarms = (sum(entry["left_out"][kind] for entry in entries) for kind in ("rewards", "alarms"))
    if rows + alarms:
        viewer.note(
            f"{rows:,} rewards and {alarms:,} false alarms show no steps: {MOST_ROWS} of each episode do, some "
            "mispredicted ones and the largest rewards first."
        )
    model = f"seed {secret.seed}, {fitted.steps:,} updates" if hasattr(secret, "seed") else secret.name
    content = {
        "title": title,
        "model": f"{name}{model}",
        **about(fitted, secret.name),
        "overview": overview,
        "report": None if out is None else _report_beside(Path(out), report),
        "classes": {"names": list(fitted.classes.names), "signs": fitted.classes.signs.tolist()},
        "env": str(data.meta.get("env_id", "")),
        "options": ", ".join(f"{name}={value}" for name, value in (data.meta.get("env_options") or {}).items()),
        "episodes": len(data),
        "discount": discount,
        "potential": repr(shaping.potential),
        "beside": list(beside or {}),
        "about_beside": others,
        "actions": viewer.actions,
        "notes": viewer.all_notes,
        # Numbers compress well as long as no pictures come in between.
        "frames": [entry.pop("frames", None) for entry in entries],
        "trajectories": entries,
    }
    page = render_page(content)
    path = None if out is None else Path(out)
    if path is not None:
        replace_text(path, page)
    return Explored(path, len(page.encode()), tuple(chosen), tuple(viewer.all_notes), page)


def _report_beside(out: Path, report: str | Path | None) -> str | None:
    """The address of a report relative to the page."""
    if report is None and not out.with_name("report.html").is_file():
        return None
    return quote(Path(os.path.relpath(report or out.with_name("report.html"), out.parent)).as_posix())


def _credit_beside(
    other: CreditMethod | Attributions, data: Trajectories, number: int, steps: list[int]
) -> list[dict[str, Any] | None]:
    """The credit of another method for the rewards at some steps of an episode; None where it has none."""
    if not isinstance(other, Attributions):
        number, other = 0, other.attribute(data[number : number + 1], progress=False)
    rows = {int(other.step[r]): credit_shares(other.row(r)) for r in np.flatnonzero(other.episode == number).tolist()}
    return [rows.get(step) for step in steps]


def _choose(secret: CreditMethod, data: Trajectories, count: int, tick: Tick) -> list[int]:
    """Some episodes of every kind: mispredicted ones are looked for in a pool that takes little time to predict."""
    assert secret.report is not None
    size = sum(array.nbytes for array in arrays_of(data.observations)) // len(data) + 1  # bytes of an episode
    largest = max(count, min(_POOL_PER_SHOWN * count, _POOL_BYTES // size))
    pool = choose(data.lengths, data.successful, np.zeros(len(data), np.int64), largest)
    wrong, looked_at = np.zeros(len(pool), np.int64), data[pool]
    inspected = inspector(secret, looked_at)
    for i in range(len(pool)):
        predicted = inspected.probabilities(i).argmax(1)
        wrong[i] = (predicted != secret.report.classes.index(looked_at[i].rewards)).sum()
        tick("predicted", i + 1, len(pool))
    return pool[choose(data.lengths[pool], data.successful[pool], wrong, count)].tolist()  # type: ignore[no-any-return]


def choose(
    lengths: NDArray[np.int64], successful: NDArray[np.bool_], wrong: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Indices of ``count`` episodes, in order: half successful, a quarter mispredicted, some of the longest, others.

    ``wrong`` counts the steps of each episode that were predicted wrongly.
    """

    def spread(places: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        return places[np.linspace(0, len(places) - 1, min(most, len(places))).astype(np.int64)]

    count = min(count, len(lengths))
    worst = np.argsort(-wrong, kind="stable")
    groups = [
        np.argsort(-lengths, kind="stable")[: max(1, count // 8)],
        worst[wrong[worst] > 0][: count // 4],
        spread(np.flatnonzero(successful), count // 2),
    ]
    chosen = np.unique(np.concatenate(groups))
    rest = np.setdiff1d(np.arange(len(lengths)), chosen)
    return np.sort(np.concatenate([chosen, spread(rest, count - len(chosen))]))


def _wanted_frames(entry: dict[str, Any]) -> list[int]:
    """Frames that matter most, as counts of steps: around rewards, the steps that earned them, and events."""
    weights = {
        step: weight for row in entry["attention"] for step, weight in zip(row["to"], row["weights"], strict=True)
    }
    earned = sorted(weights, key=lambda step: -weights[step])[:16]
    events = [t for steps in entry["truth"].values() for t in steps]
    return [count for t in (*(t for t, _ in entry["rewards"]), *earned, *events) for count in (t + 1, t)]


def unpack(page: str) -> Any:
    """The data of a page."""
    _, _, rest = page.partition('<script type="text/plain" id="data">')
    return json.loads(gzip.decompress(b64decode(rest.partition("</script>")[0])))


def render_page(content: dict[str, Any]) -> str:
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
    # Compressed and in base64: no text of the data can end an element or begin one.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    data = b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    parts = {"title": escape(content["title"]), "policy": policy, "style": style, "script": script, "data": data}
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], html)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
