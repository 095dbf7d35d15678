"""Unfinished fits: all or nothing on disk, taken up to the bit, refused by name."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

from secret_rl.credit import CLASS_WEIGHTS, Secret, fitting
from secret_rl.credit.checkpoint import Checkpoint
from secret_rl.files import FileFormatError

MARK = {"seed": 0, "model": {"units": 8, "filters": (2,)}}
PLAIN = {
    "units": 16,
    "steps": 12,
    "evaluate_every": 4,
    "batch_size": 16,
    "learning_rate": 0.03,
    "device": "cpu",
    "restarts": 0,
}
DOORS = {1: 3, -1: 4, 0: 5}  # the door tells its reward: learned in a dozen updates
pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.filterwarnings("ignore::UserWarning")]


class Stopped(Exception):
    """The power went."""


def weights_of(secret):
    return secret.model.state_dict()


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


# Options, rewards that occur, and how often a fit with them is saved.
FITS = {
    "one attempt": (PLAIN, (1, -1, 0), 3),
    "searched weights": (PLAIN, (1, 0), 3),
    "weights searched after an attempt": ({**PLAIN, "restarts": 2}, (1, -1, 0), 11),
    "out of patience": ({**PLAIN, "steps": 40, "patience": 2}, (1, -1, 0), 6),
    # a class of weight 0 is never predicted: each attempt gives up at 60 %, after 3 of 5 looks
    "three attempts": (
        {**PLAIN, "steps": 10, "evaluate_every": 2, "class_weights": (0.5, 0.5, 0.0), "restarts": 2},
        (1, -1, 0),
        11,
    ),
}


@pytest.mark.parametrize("fit", FITS)
def test_a_fit_stopped_after_any_save_goes_on_to_the_same_weights_and_report(tmp_path, monkeypatch, cues, fit):
    options, kinds, saves = FITS[fit]
    if fit == "weights searched after an attempt":
        monkeypatch.setattr(fitting.Fitting, "_stuck", lambda *_: True)
    data = cues(40, kinds=kinds, doors=DOORS)
    undisturbed = Secret(**options).fit(data)
    different = []
    for count in range(1, saves + 1):
        folder = tmp_path / str(count)
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, count, Checkpoint, "save")
            with pytest.raises(Stopped):
                Secret(**options).fit(data, checkpoint=folder)
        assert (folder / "state.json").is_file()
        resumed = Secret(**options).fit(data, checkpoint=folder)
        assert not folder.exists()
        if not same_weights(resumed, undisturbed):
            different.append(f"weights after save {count}")
        different += [f"{k} after save {count}" for k, v in story(resumed).items() if v != story(undisturbed)[k]]
    assert not different, ", ".join(different)
    with pytest.MonkeyPatch.context() as patch:
        calls = stop_after(patch, 0, Checkpoint, "save")
        assert same_weights(Secret(**options).fit(data, checkpoint=tmp_path / "all"), undisturbed)
    assert len(calls) == saves, "every save was tried"


def test_a_fit_killed_in_the_middle_of_a_save_goes_on_to_the_same_weights(tmp_path, cues):
    """Killed with each of the first files written but not yet in its place."""
    data, files = cues(40, doors=DOORS), 6
    script = textwrap.dedent(
        """
        import json, os, signal, sys
        import torch, torch._dynamo, safetensors.torch  # imported once, not in each fork
        import secret_rl as srl
        from secret_rl.credit import fitting, memoryless
        torch.set_num_threads(1)
        memoryless._ROUND, fitting._STUCK = 2, -1.0
        data = srl.Trajectories.load(sys.argv[1])
        root, options, files = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
        for last in range(1, files + 1):
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
    command = [sys.executable, "-c", script, str(stored), str(tmp_path), json.dumps(PLAIN), str(files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * files, done.stderr
    undisturbed = Secret(**PLAIN).fit(data)
    left = []
    for number in range(1, files + 1):
        folder = tmp_path / str(number)
        assert any(folder.iterdir())
        assert same_weights(Secret(**PLAIN).fit(data, checkpoint=folder), undisturbed)
        left += [str(path.relative_to(tmp_path)) for path in folder.glob("*")]
        assert left or not folder.exists()
    assert not left, f"left behind: {left}"


def test_a_killed_fit_goes_on_to_the_same_weights(tmp_path, cues):
    data, folder = cues(40, doors=DOORS), tmp_path / "unfinished"
    script = textwrap.dedent(
        """
        import json, sys, time, torch
        import secret_rl as srl
        from secret_rl.credit import fitting, memoryless
        from secret_rl.credit.checkpoint import Checkpoint
        torch.set_num_threads(1)
        memoryless._ROUND, fitting._STUCK = 2, -1.0
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
    command = [sys.executable, "-c", script, str(stored), str(folder), json.dumps(PLAIN)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "saved twice\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, errors
    assert json.loads((folder / "state.json").read_text())["step"] == 8
    for change, name in [({"seed": 1}, "seed"), ({"units": 32}, "model"), ({"steps": 20}, "training")]:
        with pytest.raises(FileFormatError, match=f"unfinished fit with another {name}: .* delete it"):
            Secret(**{**PLAIN, **change}).fit(data, checkpoint=folder)
    with pytest.raises(FileFormatError, match="another episodes, reward_sum, steps"):
        Secret(**PLAIN).fit(data[:39], checkpoint=folder)
    looks = []
    with pytest.MonkeyPatch.context() as patch:
        real = Checkpoint.save
        patch.setattr(
            Checkpoint, "save", lambda self, state, **t: (looks.append(state["step"]), real(self, state, **t))
        )
        resumed = Secret(**PLAIN).fit(data, checkpoint=folder)
    assert looks == [12], "what was done before the kill is not done again"
    assert same_weights(resumed, Secret(**PLAIN).fit(data))
    assert not folder.exists()


def test_what_is_saved_comes_back(tmp_path):
    first = {"a": torch.arange(3.0), "b": torch.tensor(2, dtype=torch.int64)}
    one = Checkpoint(tmp_path / "c", MARK)
    assert one.state == {} and one.load("current") is None
    one.save({"step": 1}, current=first, best={"a": torch.zeros(2)})
    one.save({"step": 2}, current={"a": torch.ones(3)})
    again = Checkpoint(tmp_path / "c", MARK)
    assert again.state["step"] == 2
    assert torch.equal(again.load("current")["a"], torch.ones(3))
    assert torch.equal(again.load("best")["a"], torch.zeros(2)), "what is not given is kept as it was"
    assert len(list((tmp_path / "c").iterdir())) == 3, "what is not needed any more is gone"
    again.discard()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch, cues):
    monkeypatch.chdir(tmp_path)
    Secret(**PLAIN).fit(cues(20))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"fingerprint": 3}', b'{"fingerprint": {"seed": 0}, "number"']
)
def test_a_damaged_state_is_refused(tmp_path, content):
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"state\.json is damaged .* delete the folder"):
        Checkpoint(tmp_path, MARK)


def test_a_state_without_its_number_is_refused(tmp_path):
    one = Checkpoint(tmp_path, MARK)
    one.save({"step": 1})
    state = json.loads((tmp_path / "state.json").read_text())
    del state["number"]
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(FileFormatError, match="damaged"):
        Checkpoint(tmp_path, MARK)


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damaged_tensors_are_refused(tmp_path, damage):
    Checkpoint(tmp_path, MARK).save({"step": 1}, current={"a": torch.zeros(100)})
    [file] = tmp_path.glob("*current*")
    file.unlink() if damage == "missing" else file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(FileFormatError, match=rf"{file.name}.* delete the folder"):
        Checkpoint(tmp_path, MARK).load("current")


def test_files_of_others_in_the_folder_are_left_alone(tmp_path, cues):
    folder = tmp_path / "runs"
    folder.mkdir()
    mine = {"notes.txt": b"years of work", "model.safetensors": b"a model of mine"}
    for name, content in mine.items():
        (folder / name).write_bytes(content)
    Secret(**PLAIN).fit(cues(20), checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == mine


@pytest.mark.parametrize("given", ["paper", CLASS_WEIGHTS["paper"], list(CLASS_WEIGHTS["paper"])])
def test_class_weights_in_any_form_can_be_taken_up(tmp_path, monkeypatch, cues, given):
    data, folder = cues(20, doors=DOORS), tmp_path / "unfinished"
    with monkeypatch.context() as patch:
        stop_after(patch, 1, Checkpoint, "save")
        with pytest.raises(Stopped):
            Secret(**PLAIN, class_weights=given).fit(data, checkpoint=folder)
    resumed = Secret(**PLAIN, class_weights=given).fit(data, checkpoint=folder)
    assert tuple(resumed.report.class_weights) == CLASS_WEIGHTS["paper"]
