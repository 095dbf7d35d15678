"""Models that are shared: in a folder, and through a Hub that stands on this machine."""

import re
import sys
from threading import Thread

import huggingface_hub
import pytest
from huggingface_hub import constants, errors
from tests.credit.conftest import cue_trajectories, same_weights
from tests.credit.secret.stand_in_hub import StandInHub

from secret_rl.credit import NotFittedError, Secret
from secret_rl.credit.base import method_class
from secret_rl.credit.hub import CARD, MODEL
from secret_rl.files import FileFormatError


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # large files go by the older protocol, git-lfs
    server = StandInHub()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_goes_to_the_hub_and_comes_back(learned, hub):
    where = {"endpoint": hub.url, "token": "hf_secret"}
    for _ in range(2):  # into a new repository, then into the one that is there
        address = learned.push_to_hub("someone/cues", data=cue_trajectories(30), license="mit", private=True, **where)
    assert address == f"{hub.url}/someone/cues/commit/{hub.commit('someone/cues')}" and hub.private == {
        "someone/cues": True
    }
    assert set(hub.files["someone/cues"]) == {MODEL, CARD}
    assert {found for _, path, found in hub.asked if not path.startswith("/put")} == {"Bearer hf_secret"}
    again = Secret.from_pretrained("someone/cues", device="cpu", **where)
    assert same_weights(again, learned) and str(again.report) == str(learned.report)
    hub.files["someone/cues"][MODEL] = hub.files["someone/cues"][MODEL][:-1] + b"?"
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        Secret.from_pretrained("someone/cues", **where)
    hub.files["someone/other"] = {}
    with pytest.raises(FileNotFoundError, match=r"someone/other on the Hub holds no model.safetensors"):
        Secret.from_pretrained("someone/other", **where)
    with pytest.raises(errors.RepositoryNotFoundError):
        Secret.from_pretrained("someone/nobody", **where)


def test_the_card_says_what_the_model_is(learned, tmp_path, monkeypatch):
    data = cue_trajectories(30).with_meta(env_id="tests/Cues-v0 | <b>", env_options={"length": 8})
    folder = learned.save_pretrained(tmp_path / "cues", data=data, license="apache-2.0")
    card = huggingface_hub.ModelCard.load(folder / CARD)
    assert card.data.library_name == "secret-rl" and card.data.license == "apache-2.0"
    assert {"reinforcement-learning", "credit-assignment"} <= set(card.data.tags)
    report = learned.report
    assert report.verdict == "credit" and "**Verdict: credit.**" in card.text and "is not credit" not in card.text
    rows = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", card.text, re.MULTILINE))
    assert rows["history gain"].startswith(f"{report.history_gain:.3f} ")
    assert rows["balanced accuracy"] == f"{report.validation.balanced_accuracy:.3f}"
    assert rows["units"] == str(learned.model_options.units) and rows["seed"] == str(learned.seed)
    assert rows["episodes"] == "30" and rows["steps"] in (str(data.steps), str(learned.training_options.steps))
    assert r"| env_id | tests/Cues-v0 \| &lt;b> |" in card.text, "data cannot write Markdown"
    [code] = re.findall(r"^```python\n(.*?)^```", card.text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in card.content, "nothing of this machine"
    found = {}
    exec(code, found)  # what the card says is how it is loaded
    assert same_weights(found["secret"], learned)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_a_card_says_where_attention_is_not_credit(cues, tmp_path):
    paper = method_class("secret-paper")(units=16, steps=2, device="cpu").fit(cues(20))
    folder = paper.save_pretrained(tmp_path / "paper")
    assert "**Its attention is not credit**" in (folder / CARD).read_text()
    assert type(Secret.from_pretrained(folder)) is type(paper), "of whatever kind it is"
    with pytest.raises(TypeError, match="holds a model of method 'secret-paper', which is no SecretGradient"):
        method_class("secret-gradient").from_pretrained(folder)


def test_what_cannot_be_shared_is_named(learned, tmp_path, monkeypatch):
    with pytest.raises(NotFittedError, match="call fit first"):
        Secret().push_to_hub("someone/cues")
    (tmp_path / "file").touch()
    for source, words in [
        (tmp_path, r"holds no model.safetensors: expected a folder that save_pretrained wrote"),
        (str(tmp_path / "file"), "is a file: give the folder that save_pretrained wrote, or use load"),
        (tmp_path / "nothing", "neither a folder that save_pretrained wrote nor an id"),
        ("./models/cues", "neither a folder that save_pretrained wrote nor an id"),
    ]:
        with pytest.raises(FileNotFoundError, match=words):
            Secret.from_pretrained(source)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "secret-rl\[hub\]"'):
        learned.push_to_hub("someone/cues")
