"""Unfinished fits: all or nothing on disk, taken up to the bit, refused by name."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.sealing import change_arrays, change_json

from secret_rl.atomic import InUseError
from secret_rl.credit import Secret, fitting, memoryless, training
from secret_rl.credit import tokens as tokens_module
from secret_rl.credit.checkpoint import Checkpoint
from secret_rl.files import FileFormatError, ResumeError

MARK = {"seed": 0, "model": {"units": 8, "filters": (2,)}}
PLAIN = {"units": 16, "steps": 12, "evaluate_every": 4, "batch_size": 16, "learning_rate": 0.03, "device": "cpu"}
QUICK = """
memoryless._UPDATES = memoryless._LOOK_EVERY = fitting._PROBE_UPDATES = 2
memoryless._BATCH, fitting._NOTHING_OPEN = 64, 0.0
"""  # as the fixture does, for other processes
pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.filterwarnings("ignore::UserWarning")]


class Stopped(Exception):
    """The power went."""


def weights_of(secret):
    present = {f"present.{name}": value for name, value in secret.present.state_dict().items()}
    return {**secret.model.state_dict(), **present}


def same_weights(one, other):
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


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


def reading_ahead(patch):
    patch.setattr(tokens_module, "_distinct_rows", lambda columns: None)


def alike(patch):
    """Every reward is the same: nothing is trained."""


# Options, what is different, and how often a fit with them is saved: after the predictors without memory, at each look,
# and when it is finished; None where that depends on the machine.
FITS = {
    "learning, then cooling down": (PLAIN, None, 5),
    "at rest": ({**PLAIN, "steps": 60, "patience": 2}, resting, 6),
    "progress": ({**PLAIN, "steps": 40, "patience": 1, "learning_rate": 0.01}, progressing, None),
    "half learned": (PLAIN, half_learned, 5),
    "read ahead": (PLAIN, reading_ahead, 5),
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
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, count, Checkpoint, "save")
            with pytest.raises(Stopped):
                Secret(**options).fit(data, checkpoint=folder)
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


@pytest.mark.parametrize("owner", [memoryless, fitting])
def test_a_fit_stopped_between_saves_goes_on_to_the_same_weights(tmp_path, cues, owner):
    """While predictors without memory are fitted, and while the pooled past is asked."""
    data = cues(40)
    undisturbed = Secret(**PLAIN).fit(data)
    with pytest.MonkeyPatch.context() as patch:
        if owner is memoryless:
            stop_after(patch, 1, memoryless, "_fit_one")
        else:
            patch.setattr(fitting, "_NO_DOUBT", 2.0)
            stop_after(patch, 1, fitting.Fitting, "_pooled_gain")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, checkpoint=tmp_path / "c")
    resumed = Secret(**PLAIN).fit(data, checkpoint=tmp_path / "c")
    assert same_weights(resumed, undisturbed) and story(resumed) == story(undisturbed)


def test_what_is_known_without_memory_is_not_learned_again(tmp_path, monkeypatch, cues):
    data = cues(40)
    with monkeypatch.context() as patch:
        stop_after(patch, 1, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, checkpoint=tmp_path / "c")
    monkeypatch.setattr(fitting, "fit_present", no_update)
    Secret(**PLAIN).fit(data, checkpoint=tmp_path / "c")


def test_weights_of_the_users_own_must_be_those_of_before(tmp_path, monkeypatch, cues):
    data, folder = cues(40), tmp_path / "c"
    weights = np.linspace(0, 1, data.steps)
    with monkeypatch.context() as patch:
        stop_after(patch, 2, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, weights=weights, checkpoint=folder)
    for other in (None, weights[::-1].copy()):
        with pytest.raises(ResumeError, match="unfinished fit with another weights"):
            Secret(**PLAIN).fit(data, weights=other, checkpoint=folder)
    resumed = Secret(**PLAIN).fit(data, weights=weights, checkpoint=folder)
    assert same_weights(resumed, Secret(**PLAIN).fit(data, weights=weights))


def test_a_fit_killed_in_the_middle_of_a_save_goes_on_to_the_same_weights(tmp_path, cues):
    """Killed with each of its files written but not yet in its place, and right after it got there."""
    data, syncs = cues(40), 26  # of 2 files, 3 at each of 3 looks and 2 at the end, and of their folder
    script = textwrap.dedent(
        """
        import json, os, signal, sys
        import torch, torch._dynamo, safetensors.torch  # imported once, not in each fork
        import secret_rl as srl
        from secret_rl.credit import fitting, memoryless
        torch.set_num_threads(1)
        exec(sys.argv[-1])
        data = srl.Trajectories.load(sys.argv[1])
        root, options, syncs = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
        for last in range(1, syncs + 1):
            if os.fork() == 0:
                real, calls = os.fsync, []
                def kill(file):
                    real(file)
                    calls.append(1)
                    if len(calls) == last:
                        os.kill(os.getpid(), signal.SIGKILL)
                os.fsync = kill
                srl.Secret(**options).fit(data, checkpoint=f"{root}/{last}")
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    stored = data.save(tmp_path / "data")
    command = [sys.executable, "-c", script, str(stored), str(tmp_path), json.dumps(PLAIN), str(syncs), QUICK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * syncs, done.stderr
    undisturbed = Secret(**PLAIN).fit(data)
    left = []
    for number in range(1, syncs + 1):
        folder = tmp_path / str(number)
        names = {path.name for path in folder.iterdir()} - {".lock"}
        assert any(".writing-" in name for name in names) == bool(number % 2), names
        resumed = Secret(**PLAIN).fit(data, checkpoint=folder)
        assert same_weights(resumed, undisturbed)
        resumed.save(tmp_path / "model.safetensors")
        left += [str(path.relative_to(tmp_path)) for path in folder.glob("*")]
        assert left or not folder.exists()
    assert not left, f"left behind: {left}"


def test_a_killed_fit_goes_on_to_the_same_weights(tmp_path, cues):
    data, folder = cues(40), tmp_path / "unfinished"
    script = textwrap.dedent(
        """
        import json, sys, time, torch
        import secret_rl as srl
        from secret_rl.credit import fitting, memoryless
        from secret_rl.credit.checkpoint import Checkpoint
        torch.set_num_threads(1)
        exec(sys.argv[-1])
        real, saves = Checkpoint.save, []
        def save_and_wait(self, *args, **tensors):
            real(self, *args, **tensors)
            saves.append(1)
            if len(saves) == 2:
                print("saved twice", flush=True)
                time.sleep(300)
        Checkpoint.save = save_and_wait
        srl.Secret(**json.loads(sys.argv[3])).fit(srl.Trajectories.load(sys.argv[1]), checkpoint=sys.argv[2])
        """
    )
    stored = data.save(tmp_path / "data")
    command = [sys.executable, "-c", script, str(stored), str(folder), json.dumps(PLAIN), QUICK]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "saved twice\n"
        with pytest.raises(InUseError, match="unfinished is being written by another process .* choose another path"):
            Secret(**PLAIN).fit(data, checkpoint=folder)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, errors
    assert json.loads((folder / "state.json").read_text())["step"] == 4
    for change, name in [({"seed": 1}, "seed"), ({"units": 32}, "model"), ({"steps": 20}, "training")]:
        with pytest.raises(ResumeError, match=rf"unfinished fit with another {name} \({name} was .* delete it"):
            Secret(**{**PLAIN, **change}).fit(data, checkpoint=folder)
    with pytest.raises(ResumeError, match="another content, episodes, steps"):
        Secret(**PLAIN).fit(data[:39], checkpoint=folder)
    looks = []
    with pytest.MonkeyPatch.context() as patch:
        real = Checkpoint.save
        patch.setattr(
            Checkpoint, "save", lambda self, state, **t: (looks.append(state.get("step")), real(self, state, **t))
        )
        resumed = Secret(**PLAIN).fit(data, checkpoint=folder)
    assert looks == [8, 12, None], "what was done before the kill is not done again"
    assert same_weights(resumed, Secret(**PLAIN).fit(data))
    resumed.save(tmp_path / "model.safetensors")
    assert not folder.exists()


def rolled(data, name):
    """The same data but for one array, whose rows are those of the next episode."""
    return replace(data, **{name: np.roll(getattr(data, name), int(data.lengths[0]), axis=0)})


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
@pytest.mark.parametrize("finished", [False, True])
def test_other_data_of_the_same_size_and_reward_is_refused(tmp_path, monkeypatch, cues, name, finished):
    data, folder = cues(20), tmp_path / "unfinished"
    other = rolled(data, name)
    assert (len(other), other.steps, other.rewards.sum()) == (len(data), data.steps, data.rewards.sum())
    if finished:
        Secret(**PLAIN).fit(data, checkpoint=folder)
    else:
        with monkeypatch.context() as patch:
            stop_after(patch, 1, Checkpoint, "save")
            with pytest.raises(Stopped):
                Secret(**PLAIN).fit(data, checkpoint=folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ResumeError, match=r"an unfinished fit with another content \(content was '.*', now '.*'\)"):
        Secret(**PLAIN).fit(other, checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_data_in_memory_and_on_disk_are_the_same(tmp_path, monkeypatch, cues):
    data, folder = cues(20), tmp_path / "unfinished"
    Secret(**PLAIN).fit(data, checkpoint=folder)
    monkeypatch.setattr(fitting.Trainer, "train", no_update)
    stored = type(data).load(data.save(tmp_path / "data"))
    Secret(**PLAIN).fit(stored, checkpoint=folder)
    Secret(**PLAIN).fit(stored[np.arange(20)], checkpoint=folder)


def no_update(*_, **__):
    raise AssertionError("it was trained again")


def test_a_fit_that_was_not_saved_is_not_lost(tmp_path, monkeypatch, cues):
    data, folder = cues(40), tmp_path / "unfinished"
    first = Secret(**PLAIN).fit(data, checkpoint=folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert kept
    monkeypatch.setattr(fitting.Trainer, "train", no_update)
    monkeypatch.setattr(fitting, "fit_present", no_update)
    again = Secret(**PLAIN).fit(data, checkpoint=folder)
    assert same_weights(again, first)
    assert again.report.to_json() == first.report.to_json()
    assert torch.equal(again.queries.vectors, first.queries.vectors)
    assert torch.equal(again.queries.biases, first.queries.biases)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept, "until it is saved"
    with monkeypatch.context() as patch:

        def no_space_left(_):
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", no_space_left)
        with pytest.raises(OSError, match="No space"):
            again.save(tmp_path / "model.safetensors")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept, "also where saving fails"
    again.save(tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert same_weights(Secret.load(tmp_path / "model.safetensors", device="cpu"), first)
    again.save(tmp_path / "model.safetensors")
    with pytest.raises(AssertionError, match="trained again"):
        Secret(**PLAIN).fit(data, checkpoint=folder)


def test_one_at_a_time_holds_a_folder(tmp_path, monkeypatch, cues):
    folder = tmp_path / "c"
    one = Checkpoint(folder, MARK)
    one.save({"step": 1}, current={"a": torch.ones(2)})
    for mark in (MARK, {"seed": 1}):
        with pytest.raises(InUseError, match=rf"{folder} is being written by another process .* choose another path"):
            Checkpoint(folder, mark)
    assert torch.equal(one.load("current")["a"], torch.ones(2))
    one.close()
    with pytest.raises(ResumeError):
        Checkpoint(folder, {"seed": 1})
    again = Checkpoint(folder, MARK)  # whoever was refused does not hold it
    assert again.state["step"] == 1
    again.discard()
    Checkpoint(folder, MARK).close()
    assert list(tmp_path.iterdir()) == []

    data, real, refused = cues(20), Checkpoint.save, []

    def save_and_fit_again(self, *args, **tensors):
        real(self, *args, **tensors)
        with pytest.raises(InUseError):
            Secret(**PLAIN).fit(data, checkpoint=folder)
        refused.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_fit_again)
        disturbed = Secret(**PLAIN).fit(data, checkpoint=folder)
    assert len(refused) == FITS["learning, then cooling down"][2]
    assert same_weights(disturbed, Secret(**PLAIN).fit(data, checkpoint=tmp_path / "alone"))


def test_what_is_saved_comes_back(tmp_path):
    first = {"a": torch.arange(3.0), "b": torch.tensor(2, dtype=torch.int64)}
    one = Checkpoint(tmp_path / "c", MARK)
    assert one.state == {} and one.load("current") is None
    one.save({"step": 1}, current=first, best={"a": torch.zeros(2)})
    one.save({"step": 2}, current={"a": torch.ones(3)})
    one.close()
    again = Checkpoint(tmp_path / "c", MARK)
    assert again.state["step"] == 2
    assert torch.equal(again.load("current")["a"], torch.ones(3))
    assert torch.equal(again.load("best")["a"], torch.zeros(2)), "what is not given is kept as it was"
    left = sorted(path.name for path in (tmp_path / "c").iterdir())
    expected = [".lock", "checkpoint-best-1.safetensors", "checkpoint-current-2.safetensors", "state.json"]
    assert left == expected, "what is not needed any more is gone"
    again.discard()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch, cues):
    monkeypatch.chdir(tmp_path)
    Secret(**PLAIN).fit(cues(20))
    assert list(tmp_path.iterdir()) == []


def refused(folder, message):
    """A checkpoint is refused with these words, and not held by whoever asked."""
    for _ in range(2):
        with pytest.raises(FileFormatError, match=message):
            Checkpoint(folder, MARK)
    assert not (folder / ".lock").exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"fingerprint": 3}', b'{"fingerprint": {"seed": 0}, "number"']
)
def test_a_damaged_state_is_refused(tmp_path, content):
    (tmp_path / "state.json").write_bytes(content)
    refused(tmp_path, r"state\.json cannot be read as 'secret-rl unfinished fit': .*; delete the folder and fit again")


@pytest.fixture
def state(tmp_path):
    """The state of an unfinished fit on disk."""
    one = Checkpoint(tmp_path / "c", MARK)
    one.save({"step": 1}, current={"a": torch.arange(100.0)})
    one.close()
    return tmp_path / "c" / "state.json"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s.pop("number"), "KeyError: 'number'"),
        (lambda s: s.update(number="2"), "'2' is not a whole number"),
        (lambda s: s.update(number=-1), "-1 is not a whole number"),
        (lambda s: s.pop("fingerprint"), "KeyError: 'fingerprint'"),
        (lambda s: s.update(fingerprint=3), "TypeError: .*int"),
        (lambda s: s.update(format="secret-rl credit model"), "it says format 'secret-rl credit model', expected"),
        (lambda s: s.update(version=9, library="9.9"), r"version 9, .* reads 1: open it with secret-rl 9\.9"),
    ],
)
def test_a_state_that_says_something_else_is_refused(state, change, reason):
    change_json(state, change)
    refused(state.parent, rf"state\.json cannot be read as 'secret-rl unfinished fit': .*{reason}.*; delete the folder")


def test_a_state_that_was_changed_afterwards_is_refused(state):
    state.write_text(state.read_text().replace('"step": 1', '"step": 2'))
    refused(state.parent, "it does not match its checksum: it was changed after it was written; delete the folder")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("truncated", "a of shape .* does not fit its bytes 0 to 400 of 393"),
        ("missing", "it is missing"),
        ("flipped", "a does not match its checksum"),
        ("another file", "it says format 'secret-rl credit model', expected \"secret-rl unfinished fit's tensors\""),
    ],
)
def test_damaged_tensors_are_refused(state, damage, reason):
    [file] = state.parent.glob("*current*")
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "another file":
        change_arrays(file, lambda about, _: about.update(format="secret-rl credit model"))
    else:
        file.write_bytes(content[:-7] if damage == "truncated" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileFormatError, match=rf"{file.name} cannot be read as .*: {reason}; delete the folder"):
        Checkpoint(state.parent, MARK).load("current")


def test_a_state_names_files_of_its_own_folder_only(tmp_path, state):
    outside = next(state.parent.glob("*current*")).rename(tmp_path / "elsewhere.safetensors")
    change_json(state, lambda s: s["files"].update(current="../elsewhere.safetensors"))
    with pytest.raises(FileFormatError, match=r"c/elsewhere\.safetensors cannot be read .* it is missing"):
        Checkpoint(state.parent, MARK).load("current")
    assert outside.exists()


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


def without_kept(state):
    del state["files"]["kept"]


def other_kept(state):
    state["files"]["kept"] = state["files"]["present"]


def other_present(state):
    state["files"]["present"] = state["files"]["kept"]


DAMAGES = {
    "step": (lambda s: s.update(step=99), "99 is not a whole number"),
    "no cooling": (lambda s: s.pop("cooling"), "KeyError: 'cooling'"),
    "cooling": (lambda s: s.update(cooling=[8]), "ValueError|not enough values"),
    "cooling past the end": (lambda s: s.update(cooling=[8, 13]), "13 is not a whole number"),
    "half learned": (lambda s: s.update(half_learned_at=0), "0 is not a whole number"),
    "best": (lambda s: s.update(best="low"), "could not convert"),
    "waited": (lambda s: s.update(waited=-1), "-1 is not a whole number"),
    "curve": (lambda s: s.update(curve=[3]), "TypeError"),
    "no kept weights": (without_kept, "it names no weights"),
    "other kept weights": (other_kept, "its weights are not those of such a model"),
    "other predictors": (other_present, "RuntimeError|Missing key"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_does_not_fit_is_refused(tmp_path, monkeypatch, cues, damage):
    data, folder = cues(40), tmp_path / "c"
    with monkeypatch.context() as patch:
        stop_after(patch, 3, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, checkpoint=folder)
    change, reason = DAMAGES[damage]
    change_json(folder / "state.json", change)
    with pytest.raises(FileFormatError, match=rf"(?s)cannot be read as .*({reason}).*delete the folder and fit again"):
        Secret(**PLAIN).fit(data, checkpoint=folder)


CHANGES = {
    "a tensor less": lambda arrays: arrays.pop("optimiser.step.head.bias"),
    "a tensor more": lambda arrays: arrays.update(more=np.zeros(3, np.float32)),
    "another shape": lambda arrays: arrays.update({"optimiser.exp_avg.head.bias": np.zeros(4, np.float32)}),
    "no weight": lambda arrays: arrays.pop("model.head.bias"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["current", "kept"])
def test_tensors_of_another_model_are_refused(tmp_path, monkeypatch, cues, name, change):
    data, folder = cues(40), tmp_path / "c"
    with monkeypatch.context() as patch:
        stop_after(patch, 3, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, checkpoint=folder)
    [file] = folder.glob(f"checkpoint-{name}-*")
    change_arrays(file, lambda _, arrays: CHANGES[change](arrays))
    with pytest.raises(FileFormatError, match="its weights are not those of such a model; delete the folder"):
        Secret(**PLAIN).fit(data, checkpoint=folder)


@pytest.mark.parametrize("name", ["present", "current", "kept"])
def test_a_flipped_bit_of_any_tensors_is_refused(tmp_path, monkeypatch, cues, name):
    data, folder = cues(40), tmp_path / "c"
    with monkeypatch.context() as patch:
        stop_after(patch, 3, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN).fit(data, checkpoint=folder)
    [file] = folder.glob(f"checkpoint-{name}-*")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FileFormatError, match=f"{file.name} cannot be read .* does not match its checksum"):
        Secret(**PLAIN).fit(data, checkpoint=folder)
