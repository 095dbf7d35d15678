"""Sharing fitted models: a folder with the model and a card that says what it is, here or on the Hugging Face Hub.

The model is the file that ``save`` writes, safetensors with checksums. Nothing that is read back is run.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from secret_rl.atomic import replace_text
from secret_rl.checks import printable
from secret_rl.credit.base import NotFittedError, load_method
from secret_rl.credit.report import IN_WORDS, FitReport
from secret_rl.version import VERSION

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from secret_rl.trajectories import Trajectories

MODEL, CARD = "model.safetensors", "README.md"
_REPO_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Shareable:
    """What ``Secret`` has to be shared: in a folder, or on the Hugging Face Hub."""

    def _write(self, path: Path) -> None:
        """Write one file, and nothing else."""
        raise NotImplementedError

    def save_pretrained(
        self, folder: str | Path, *, data: "Trajectories | None" = None, license: str | None = None
    ) -> Path:
        """Write a folder to share: the model, and a card that says what it learned and how to load it.

        Args:
            folder: Where.
            data: What it was fitted on, to be summed up in the card.
            license: Of the model, as the Hub names it: "apache-2.0".
        """
        folder = Path(folder)
        text = model_card(self, folder.resolve().name, data=data, license=license)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / MODEL)
        replace_text(folder / CARD, text)
        return folder

    def push_to_hub(
        self,
        repo_id: str,
        *,
        data: "Trajectories | None" = None,
        license: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
        message: str = "Credit model",
        token: str | None = None,
        endpoint: str | None = None,
    ) -> str:
        """Put the model and its card on the Hugging Face Hub, in one commit, whose address is returned.

        Needs the extra ``hub``.

        Args:
            repo_id: "user/name"; it is made where there is none.
            data: What it was fitted on, to be summed up in the card; it is not uploaded.
            license: Of the model, as the Hub names it: "apache-2.0".
            private: Of a new repository.
            revision: Branch; by default the main one.
            message: Of the commit.
            token: By default the one that ``hf auth login`` keeps.
            endpoint: Another Hub.
        """
        text = model_card(self, repo_id, data=data, license=license)
        api = _api(token, endpoint)
        from huggingface_hub import CommitOperationAdd

        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self._write(Path(folder) / MODEL)
            files = [CommitOperationAdd(MODEL, Path(folder) / MODEL), CommitOperationAdd(CARD, text.encode())]
            return str(api.create_commit(repo_id, files, commit_message=message, revision=revision).commit_url)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        device: str = "auto",
        revision: str | None = None,
        token: str | None = None,
        endpoint: str | None = None,
    ) -> Self:
        """Read what ``save_pretrained`` or ``push_to_hub`` wrote; nothing in it is run.

        Args:
            source: A folder, or "user/name" on the Hugging Face Hub, which needs the extra ``hub``.
            device: "cpu", "cuda", "mps", or "auto".
            revision: Branch, tag or commit.
            token: By default the one that ``hf auth login`` keeps.
            endpoint: Another Hub.
        """
        path = _local(source) or _downloaded(str(source), revision, token, endpoint)
        loaded: Any = load_method(path, device=device)
        if not isinstance(loaded, cls):
            raise TypeError(f"{source} holds a model of method {loaded.name!r}, which is no {cls.__name__}")
        return loaded


def _local(source: str | Path) -> Path | None:
    """The file of a model in a folder; None where ``source`` may be on the Hub."""
    folder = Path(source)
    if folder.is_dir():
        if not (folder / MODEL).is_file():
            raise FileNotFoundError(f"{source} holds no {MODEL}: expected a folder that save_pretrained wrote")
        return folder / MODEL
    if folder.is_file():
        raise FileNotFoundError(f"{source} is a file: give the folder that save_pretrained wrote, or use load")
    if isinstance(source, Path) or not _REPO_ID.fullmatch(source):
        raise FileNotFoundError(f"{source} is neither a folder that save_pretrained wrote nor an id such as user/name")
    return None


def _downloaded(repo_id: str, revision: str | None, token: str | None, endpoint: str | None) -> Path:
    api = _api(token, endpoint)
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return Path(api.hf_hub_download(repo_id, MODEL, revision=revision))
    except RemoteEntryNotFoundError:
        raise FileNotFoundError(f"{repo_id} on the Hub holds no {MODEL}: expected what push_to_hub put there") from None


def model_card(method: Any, name: str, *, data: "Trajectories | None" = None, license: str | None = None) -> str:
    """The card of a fitted model: Markdown, with its metadata as YAML in front.

    Args:
        method: The fitted credit method.
        name: Its id on the Hub, or the name of its folder.
        data: What it was fitted on, to be summed up in the card.
        license: Of the model, as the Hub names it: "apache-2.0".
    """
    report: FitReport | None = method.report
    if report is None:
        raise NotFittedError("there is nothing to share yet: call fit first")
    metadata = {
        "library_name": "secret-rl",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "credit-assignment", "secret-rl", method.name],
        **({} if license is None else {"license": license}),
    }
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in metadata.items())  # JSON is YAML
    doubt = "" if report.verdict == "credit" else "\n\n**Its attention is not credit**: do not shape rewards with it."
    spaces = dict(zip(("observation space", "action space"), map(json.dumps, method.specs), strict=True))
    parts = [
        f"---\n{front}\n---",
        f"# {_plain(name)}",
        "A credit model of secret-rl: it says which past steps of an episode earned a reward. "
        f"Method: `{method.name}`; secret-rl {VERSION}.",
        f"**Verdict: {report.verdict}.** {IN_WORDS[report.verdict].capitalize()}.{doubt}",
        "## How to load",
        f'```console\npip install "secret-rl[hub]"\n```\n\n```python\nimport secret_rl as srl\n\n'
        f"secret = srl.Secret.from_pretrained({json.dumps(name)})\nprint(secret.report)\n```",
        "The model is a safetensors file with checksums. Loading runs nothing that is in it.",
        "## How the fit went",
        _table(_results(report)),
        f"```text\n{report}\n```",
        "## Data",
        _table({**spaces, **({} if data is None else _summary(data))}),
        "## Settings",
        _table(method.settings),
    ]
    return "\n\n".join(parts) + "\n"


def _results(report: FitReport) -> dict[str, str]:
    rows: dict[str, str] = {"verdict": report.verdict}
    if report.gain is not None:
        rows["history gain"] = f"{report.gain.share:.3f} (standard error {report.gain.error:.3f})"
    if report.explained is not None:
        rows[f"explained of {report.explains}"] = f"{report.explained.share:.3f}"
    if report.validation is not None:
        rows["balanced accuracy"] = f"{report.validation.balanced_accuracy:.3f}"
        found = zip(report.classes.names, report.validation.accuracy, report.validation.present, strict=True)
        rows |= {f"accuracy, {name}": f"{value:.3f}" for name, value, present in found if present}
    counted = zip(report.classes.names, report.class_counts, strict=False)
    return rows | {f"steps with {name}": f"{count:,}" for name, count in counted}


def _summary(data: "Trajectories") -> dict[str, Any]:
    of_env = {key: data.meta[key] for key in ("env_id", "env_options") if data.meta.get(key)}
    return {**of_env, "fingerprint": data.fingerprint, **data.summary().to_json()}


def _table(rows: Mapping[str, Any]) -> str:
    lines = (f"| {_plain(name)} | {_plain(value)} |" for name, value in rows.items())
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _plain(value: object) -> str:
    """Text in one line that cannot be taken for Markdown of its own."""
    text = " ".join(printable(value).split())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _api(token: str | None, endpoint: str | None) -> "HfApi":
    try:
        from huggingface_hub import HfApi
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError('the Hub needs the hub extra: pip install "secret-rl[hub]"') from missing
    return HfApi(endpoint=endpoint, token=token, library_name="secret-rl", library_version=VERSION)
