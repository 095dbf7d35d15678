"""Unfinished fits: all or nothing on disk, taken up to the bit, refused by name."""

import os
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tests.credit.conftest import same_weights
from tests.sealing import change_json

from secret_rl.atomic import InUseError
from secret_rl.credit import Secret
from secret_rl.credit.secret import fit as fitting
from secret_rl.credit.secret import memoryless, training
from secret_rl.credit.secret import tokens as tokens_module
from secret_rl.credit.secret.checkpoint import Checkpoint
from secret_rl.files import FileFormatError, ResumeError

MARK = {"seed": 0, "model": {"units": 8, "filters": (2,)}}
PLAIN = {"units": 16, "steps": 12, "evaluate_every": 4, "batch_size": 16, "learning_rate": 0.03, "device": "cpu"}
pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.filterwarnings("ignore::UserWarning")]


class Stopped(Exception):
    """The power went."""


def story(secret):
    """The report without the time it took."""
    return {name: value for name, value in secret.report.to_json().items() if name != "seconds"}


def stop_after(monkeypatch, count, owner, name):
    """Let a function run ``count`` times, and stop the program right after."""
    real, calls = getattr(owner, name), []

    def stopping(*args, **options):
        result = real(*args, **options)
        calls.append(1)
        if len(calls) == count:
            raise Stopped
        return result

    monkeypatch.setattr(owner, name, stopping)
    return calls


def stopped_fit(data, folder, saves, options=PLAIN, **arguments):
    """A fit that is stopped after so many saves."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, saves, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**options).fit(data, checkpoint=folder, **arguments)


def resting(patch):
    """Learning comes to rest when its patience ends, long before the updates are used up."""
    patch.setattr(fitting, "_LOWER", 1.0)
    patch.setattr(fitting, "_LEARNED", -100.0)
    patch.setattr(fitting, "_MOST", -100.0)
    patch.setattr(training, "_LEAST_COOLING", 6)


def progressing(patch):
    """Learning goes on for as long as the loss falls."""
    resting(patch)
    patch.setattr(fitting, "_LOWER", 0.02)


def half_learned(patch):
    """From the first look on fewer steps are hidden."""
    patch.setattr(fitting, "_HALF", -100.0)


def without_a_table(patch):
    patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)


def by_name(patch):
    """Nothing is learned at first; by name, a little is."""
    patch.setattr(fitting, "_LITTLE", 100.0)
    patch.setattr(fitting, "_BY_NAME", -100.0)
    patch.setattr(training, "_TEACH_UPDATES", 3)


def again(patch):
    """The best outcome is inferred; from other weights, it is not."""
    patch.setattr(fitting.Fitting, "_may_start_again", True)
    patch.setattr(fitting.Fitting, "_success_inferred", lambda fit, weights: fit.first is None)
    patch.setattr(fitting, "_highest_gain", lambda curve: 0.9)


def again_in_vain(patch):
    """From other weights, it is inferred, too."""
    again(patch)
    patch.setattr(fitting.Fitting, "_success_inferred", lambda fit, weights: True)


def alike(patch):
    """Every reward is the same: nothing is trained."""


# Options, what is different, and how often a fit with them is saved: after the predictors without memory, at each look,
# and when it is finished; None where that depends on the machine.
FITS = {
    "learning, then cooling down": (PLAIN, None, 5),
    "at rest": ({**PLAIN, "steps": 60, "patience": 2}, resting, 6),
    "progress": ({**PLAIN, "steps": 40, "patience": 1, "learning_rate": 0.01}, progressing, None),
    "half learned": (PLAIN, half_learned, 5),
    "without a table": (PLAIN, without_a_table, 5),
    "by name": (PLAIN, by_name, 9),
    "again": (PLAIN, again, 9),
    "again in vain": (PLAIN, again_in_vain, 9),
    "transitions": ({**PLAIN, "transitions": True}, None, 5),
    "paper": ({**PLAIN, "weights": "paper"}, None, 5),
    "diverged": ({**PLAIN, "learning_rate": 1e36}, None, 5),
    "nothing to learn": (PLAIN, alike, 2),
}


@pytest.mark.parametrize("fit", FITS)
def test_a_fit_stopped_after_any_save_goes_on_to_the_same_weights_and_report(tmp_path, monkeypatch, cues, fit):
    options, change, saves = FITS[fit]
    data = cues(40)
    if change is alike:
        data = data.with_rewards(np.ones_like)
    elif change is not None:
        change(monkeypatch)
    undisturbed = Secret(**options).fit(data)
    saves = saves or 2 + len(undisturbed.report.curve)
    different = []
    for count in range(1, saves + 1):
        folder = tmp_path / str(count)
        stopped_fit(data, folder, count, options)
        assert (folder / "state.json").is_file()
        resumed = Secret(**options).fit(data, checkpoint=folder)
        resumed.save(tmp_path / "model.safetensors")
        assert not folder.exists()
        if not same_weights(resumed, undisturbed):
            different.append(f"weights after save {count}")
        different += [f"{k} after save {count}" for k, v in story(resumed).items() if v != story(undisturbed)[k]]
    assert not different, ", ".join(different)
    with pytest.MonkeyPatch.context() as patch:
        calls = stop_after(patch, 0, Checkpoint, "save")
        assert same_weights(Secret(**options).fit(data, checkpoint=tmp_path / "all"), undisturbed)
    assert len(calls) == saves, "every save was tried"
    if fit == "at rest":
        steps = [entry["step"] for entry in undisturbed.report.curve]
        assert steps == [4, 8, 12, 14], "it rests at 8, and cools down for 6 updates"


def test_where_success_is_inferred_other_weights_are_tried_and_kept_if_they_find_it(cues, monkeypatch):
    plain = Secret(**PLAIN).fit(cues(40))
    with pytest.MonkeyPatch.context() as patch:
        again_in_vain(patch)
        in_vain = Secret(**PLAIN).fit(cues(40))
    assert same_weights(in_vain, plain) and story(in_vain) == story(plain)
    again(monkeypatch)
    other = Secret(**PLAIN).fit(cues(40))
    assert not same_weights(other, plain) and other.report.curve != plain.report.curve


@pytest.mark.parametrize(
    ("decided", "evidence", "inferred"),
    [
        ([0.5, 1.0, 0.5], [1.0, 0.0, 0.0], True),
        ([0.5, 1.0, 0.5], [0.0, 0.0, 1.0], False),  # a failure may be inferred
        ([0.5, 1.0, 0.5], [0.0, 0.0, 0.0], False),  # nothing is found at all
        ([0.5, 0.5, 1.0], [1.0, 0.0, 0.0], True),  # the best that is open
        ([1.0, 1.0, 0.5], [1.0, 1.0, 0.0], False),  # there is but one
    ],
)
def test_success_is_inferred_where_only_other_outcomes_have_evidence(monkeypatch, decided, evidence, inferred):
    monkeypatch.setattr(fitting, "evaluate", Mock())
    fit = Mock(_by_class=lambda *_: (np.array(decided), np.array(evidence)))
    assert fitting.Fitting._success_inferred(fit, {}) == inferred


def rolled(name):
    """The same data but for one array, whose rows are those of the next episode."""
    return lambda data: replace(data, **{name: np.roll(getattr(data, name), int(data.lengths[0]), axis=0)})


def test_what_was_done_is_not_done_again_and_other_fits_are_refused(tmp_path, cues):
    data, folder = cues(40), tmp_path / "unfinished"
    weights = np.linspace(0, 1, data.steps)
    stopped_fit(data, folder, 2, weights=weights)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for options, change, given, names in [
        *[({"seed": 1}, None, weights, "seed"), ({"units": 32}, None, weights, "model")],
        *[({"steps": 20}, None, weights, "training"), ({}, None, None, "weights")],
        *[({}, None, weights[::-1].copy(), "weights"), ({}, lambda d: d[:39], weights[:-8], "content, episodes, ste")],
        *[({}, rolled(name), weights, "content") for name in ("observations", "actions", "rewards")],
    ]:
        other = change(data) if change else data
        with pytest.raises(ResumeError, match=rf"unfinished fit with another {names}.* was .* delete it"):
            Secret(**PLAIN | options).fit(other, weights=given, checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    steps, real = [], Checkpoint.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Checkpoint, "save", lambda self, state, **t: (steps.append(state.get("trainer")), real(self, state, **t))
        )
        resumed = Secret(**PLAIN).fit(data, weights=weights, checkpoint=folder)
    assert [saved and saved["step"] for saved in steps] == [8, 12, None]
    assert same_weights(resumed, Secret(**PLAIN).fit(data, weights=weights))


def test_a_folder_has_one_holder_and_keeps_what_is_needed(tmp_path):
    folder = tmp_path / "c"
    one = Checkpoint(folder, MARK)
    assert one.state == {} and one.load("current") == {}
    one.save({"step": 1}, current={"a": torch.arange(3.0), "b": torch.tensor(2)}, best={"a": torch.zeros(2)})
    one.save({"step": 2}, current={"a": torch.ones(3)})
    for mark in (MARK, {"seed": 1}):
        with pytest.raises(InUseError, match=rf"{folder} is being written by another process .* choose another path"):
            Checkpoint(folder, mark)
    one.close()
    with pytest.raises(ResumeError):
        Checkpoint(folder, {"seed": 1})
    again = Checkpoint(folder, MARK)  # whoever was refused does not hold it
    assert again.state["step"] == 2
    assert torch.equal(again.load("current")["a"], torch.ones(3))
    assert torch.equal(again.load("best")["a"], torch.zeros(2)), "what is not given is kept as it was"
    left = sorted(path.name for path in folder.iterdir())
    expected = [".lock", "checkpoint-best-1.safetensors", "checkpoint-current-2.safetensors", "state.json"]
    assert left == expected, "what is not needed any more is gone"
    again.close()
    outside = (folder / expected[2]).rename(tmp_path / "elsewhere.safetensors")
    change_json(folder / "state.json", lambda s: s["files"].update(current="../elsewhere.safetensors"))
    again = Checkpoint(folder, MARK)
    with pytest.raises(FileFormatError, match=r"c/elsewhere\.safetensors cannot be read .* it is missing"):
        again.load("current")  # files of its own folder only
    again.discard()
    assert list(tmp_path.iterdir()) == [outside]


def test_a_fit_that_was_not_saved_is_not_lost(tmp_path, monkeypatch, cues):
    data, folder = cues(40), tmp_path / "unfinished"
    first = Secret(**PLAIN).fit(data, checkpoint=folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert kept
    for owner, name in ((fitting.Trainer, "train"), (memoryless, "fit_memoryless")):
        monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("trained again"))
    again = Secret(**PLAIN).fit(data, checkpoint=folder)
    assert same_weights(again, first)
    assert again.report.to_json() == first.report.to_json()
    assert torch.equal(again.queries.vectors, first.queries.vectors)
    assert torch.equal(again.queries.biases, first.queries.biases)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept, "until it is saved"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            again.save(tmp_path / "model.safetensors")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept, "also where saving fails"
    again.save(tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert same_weights(Secret.load(tmp_path / "model.safetensors", device="cpu"), first)
    again.save(tmp_path / "model.safetensors")
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        Secret(**PLAIN).fit(data, checkpoint=folder)


def test_files_of_others_in_the_folder_are_left_alone(tmp_path, cues):
    folder = tmp_path / "runs"
    folder.mkdir()
    mine = {"notes.txt": b"years of work", "model.safetensors": b"a model of mine"}
    for name, content in mine.items():
        (folder / name).write_bytes(content)
    secret = Secret(**PLAIN).fit(cues(20), checkpoint=folder)
    assert mine.items() < {path.name: path.read_bytes() for path in folder.iterdir()}.items()
    secret.save(tmp_path / "model.safetensors")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == mine
