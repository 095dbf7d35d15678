"""What each command does: the library calls, as text, as JSON, or silently."""

import io
import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas
import pytest

import secret_rl as srl
from secret_rl.agents import q_learning
from secret_rl.cli import main
from secret_rl.cli.command import commands
from secret_rl.cli.demo import by_value
from secret_rl.cli.learning import verdict
from secret_rl.credit import ModelOptions, TrainingOptions
from secret_rl.credit.base import method_class
from secret_rl.evaluation import LearningCurves
from secret_rl.report.explorer.build import unpack
from secret_rl.shaping import NotCreditWarning

COMMAND = Path(sys.executable).parent / "secret-rl"
ROOT = Path(__file__).parents[2]
TASK = ["secret_rl/Triggers-v0", "--option", "size=3", "triggers=1", "max_steps=12"]
CPU = ["--device", "cpu"]
TINY = ["--units", "16", "--batch-size", "32", "--steps", "60", "--evaluate-every", "30", *CPU]
CALLS = {
    "collect": [*TASK, "--out", "new", "--episodes", "20"],
    "info": ["mazes"],
    "fit": ["mazes", "--out", "new.safetensors", *TINY],
    "attribute": ["m.safetensors", "mazes", "--out", "new.safetensors", *CPU],
    "quality": ["m.safetensors", "mazes", *CPU],
    "explore": ["m.safetensors", "mazes", "--trajectories", "2", "--no-replay", *CPU],
    "potential": ["target", "--out", "new.json", "--model", "m.safetensors", *CPU],
    "learn": [*TASK, "layout_seed=5", "--out", "new", "--episodes", "30", "--seeds", "2", "--credit", "m.safetensors"],
    "report": ["m.safetensors", "--out", "new.html"],
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short fits may be warned of


def answer_of(capsys, *words):
    """The JSON document that a command prints, alone on standard output."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_a_fit_logs_for_tensorboard(here, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main(["fit", *CALLS["fit"], "--tensorboard", "logs", "--quiet"]) == 0
    events = EventAccumulator("logs").Reload()
    assert [event.step for event in events.Scalars("fit/gain")] == [30, 60]
    assert main(["fit", "mazes", "--out", "r.safetensors", "--method", "rudder", "--tensorboard", "logs"]) == 2
    assert "--tensorboard: method rudder logs nothing" in capsys.readouterr().err


@pytest.mark.parametrize("command", commands())
def test_help_explains_every_option(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    shown = capsys.readouterr().out
    positional = ("env", "data", "model", "training", "names", "runs")  # or with options of their own
    options = [field.name for field in fields(commands()[command]) if field.name not in positional]
    if command == "fit":
        options += [*ModelOptions.__dataclass_fields__, *TrainingOptions.__dataclass_fields__]
    for option in options:
        assert f"--{option.replace('_', '-')}" in shown
    assert not re.search(r"--[\w-]+( \S+)? \((default|required)", " ".join(shown.replace("│", "").split())), "no help"


def test_the_documentation_lists_every_command():
    page = (ROOT / "docs" / "command-line.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(commands())


@pytest.mark.parametrize("command", CALLS)
def test_json_is_one_document_and_quiet_is_only_the_answer(command, here, capsys):
    content = answer_of(capsys, command, *CALLS[command])
    assert isinstance(content, dict) and content
    for path in [content.get("saved"), content.get("report"), content.get("page")]:
        assert path is None or Path(path).exists()
    shutil.rmtree("new", ignore_errors=True)
    assert main([command, *CALLS[command], "--quiet"]) == 0
    shown = capsys.readouterr()
    assert bool(shown.out) == (command in ("info", "quality", "learn"))  # the others leave a file
    assert "saved" not in shown.out and shown.err == ""


def test_info_and_explore_say_what_is_there_and_what_is_wrong(here, capsys):
    content = answer_of(capsys, "info", "mazes", "--verify")
    assert (content["summary"]["episodes"], content["meta"]["seed"]) == (200, 0)
    page = ["explore", "m.safetensors", "mazes", "--no-replay", *CPU]
    assert main([*page, "--trajectories", "3", "--title", "Mine"]) == 0
    assert "3 trajectories" in capsys.readouterr().out
    assert unpack(Path("explorer.html").read_text(encoding="utf-8"))["title"] == "Mine"
    assert main([*page, "--potential", "none.json"]) == 1
    assert "none.json" in capsys.readouterr().err
    rewards = Path("mazes/rewards.npy")
    rewards.write_bytes(rewards.read_bytes()[:-4])
    assert main(["info", "mazes"]) == 1
    assert "rewards.npy has" in capsys.readouterr().err


def test_collect_is_the_library_call(tmp_path, capsys):
    arguments = ["collect", "secret_rl/Triggers-v0", "--out", str(tmp_path / "m"), "--episodes", "200"]
    assert main([*arguments, "--success-share", "0.1", "--option", "triggers=1", "window=None", "--seed", "4"]) == 0
    assert "10.00%" in capsys.readouterr().out
    options = {"triggers": 1, "window": None}
    expected = srl.collect("secret_rl/Triggers-v0", 200, seed=4, success_share=0.1, env_options=options)
    assert srl.Trajectories.load(tmp_path / "m").equals(expected)
    assert main(arguments) == 1
    assert "choose another name, or pass --overwrite to replace it" in capsys.readouterr().err
    assert main([*arguments, "--overwrite", "--quiet"]) == 0


def test_collect_appends_shards_that_info_shows(tmp_path, capsys):
    words = ["collect", "secret_rl/Triggers-v0", "--out", str(tmp_path / "m"), "--episodes", "30", "--quiet"]
    for seed in (1, 2):
        assert main([*words, "--seed", str(seed), "--shard", f"node{seed}", "--compress"]) == 0
    content = answer_of(capsys, "info", str(tmp_path / "m"))
    assert content["shards"] == ["node1-00000", "node2-00000"] and content["summary"]["episodes"] == 60
    assert main(["info", str(tmp_path / "m")]) == 0
    assert "shards      2, from node1-00000 to node2-00000" in capsys.readouterr().out
    assert main([*words, "--seed", "1", "--shard", "node3"]) == 1
    assert "were collected with seed 1, too" in capsys.readouterr().err
    assert main([*words, "--shard", "node1", "--overwrite"]) == 1
    assert "give one of them" in capsys.readouterr().err


def test_fit_attribute_and_quality_are_the_library_calls(here, capsys):
    data = srl.Trajectories.load("mazes")
    report = answer_of(capsys, "fit", *CALLS["fit"])
    expected = srl.Secret(steps=60, units=16, batch_size=32, evaluate_every=30, device="cpu").fit(data)
    assert report["validation"] == expected.report.to_json()["validation"]
    given = ["new.safetensors", "mazes", *CPU]
    assert main(["attribute", *given, "--out", "a.safetensors"]) == 0
    ours = srl.Attributions.load("a.safetensors")
    np.testing.assert_array_equal(ours.weights, expected.attribute(data).weights)
    assert main(["attribute", *given, "--out", "a.csv", "--threshold", "0.1"]) == 0
    written, table = pandas.read_csv("a.csv"), ours.columns(0.1)
    assert list(written.columns) == list(table) and len(written) == len(table["step"]) > 0
    near = ["--tolerance", "3", "--events", "any"]
    credit = expected.attribute(data, rewards="positive")
    judged = srl.credit_quality(credit, data, tolerance=3, events="any")
    assert answer_of(capsys, "quality", *given, *near) == judged.to_json()
    record = json.loads(Path("new.run/run.json").read_text())
    assert record["fit"] == report and record["settings"]["units"] == 16 and record["data"]["episodes"] == 200
    held_out = data[data.split_indices(0.1, seed=0)[1]]
    judged = srl.credit_quality(expected.attribute(held_out, rewards="positive"), held_out)
    assert record["quality"] == {"held out for validation": judged.to_json()}
    assert not Path("new.safetensors.partial").exists()


def test_other_readouts_and_a_model_that_is_doubted(here, capsys):
    secret, data = srl.Secret.load("m.safetensors", device="cpu"), srl.Trajectories.load("mazes")
    for word in ("not learned", "credit"):
        secret.report = replace(secret.report, verdict=word)
        secret.save("m.safetensors")
        for command in ("attribute", "quality", "explore"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", NotCreditWarning)
                assert main([command, *CALLS[command]]) == 0
            doubts = [str(w.message) for w in caught if w.category is NotCreditWarning]
            assert len(doubts) == (word != "credit")
            assert all(doubt.startswith("not learned: the past may decide the rewards") for doubt in doubts)
    assert answer_of(capsys, "attribute", *CALLS["attribute"], "--decided")["verdict"] == "credit"
    expected = secret.attribute(data, decided=True)
    np.testing.assert_array_equal(srl.Attributions.load("new.safetensors").weights, expected.weights)


def test_potential_is_the_library_call(here, capsys):
    secret, data = srl.Secret.load("m.safetensors", device="cpu"), srl.Trajectories.load("target")
    credit = secret.attribute(data)
    model = ["--model", "m.safetensors", *CPU]
    adapted = srl.adapt(secret, data, steps=12).attribute(data)
    for words, how in [
        (model, {"attributions": credit}),
        (["--kind", "mixed", *model], {"attributions": credit, "kind": "mixed"}),
        (["--kind", "value", "--delay-discount", "0.9"], {"kind": "value", "delay_discount": 0.9}),
        (["--adapt", "12", *model], {"attributions": adapted}),
    ]:
        assert main(["potential", "target", "--out", "p.json", *words]) == 0
        assert srl.TablePotential.load("p.json").values == srl.estimate_potential(data, **how).values
    assert main(["potential", "target", "--out", "x.json"]) == 2
    assert "needs a credit model: give --model" in capsys.readouterr().err
    assert not Path("x.json").exists()


def test_learn_is_the_library_call(here, capsys):
    srl.estimate_potential(srl.Trajectories.load("target"), kind="value").save("p.json")
    secret = srl.Secret.load("m.safetensors", device="cpu")
    call = ["learn", *TASK, "layout_seed=5", "--episodes", "60", "--seeds", "2", "--discount", "0.95", "--out"]
    shaped = ["--potential", "p.json", "--credit", "m.safetensors", "--threshold", "0.5"]
    assert answer_of(capsys, *call, "learned", *shaped)["baseline"] == "none"
    env = gym.make("secret_rl/Triggers-v0", size=3, triggers=1, max_steps=12, layout_seed=5)
    for folder, name, potential in [
        ("learned", "none", None),
        ("learned", "potential", "p.json"),
        ("learned", "OnlineCredit", srl.OnlineCredit(secret)),
    ]:
        task = env if potential is None else srl.PotentialShaping(env, potential, discount=0.95)
        learned = srl.QLearning(seed=1, discount=0.95).learn(task, 60).curve
        curves = LearningCurves.load(f"{folder}/curves.safetensors")
        np.testing.assert_array_equal(curves[name][0, 1], learned.returns)
    capsys.readouterr()
    assert main(["learn", "FrozenLake-v1", "--episodes", "40", "--seeds", "2", "--out", "lake", "--quiet"]) == 0
    assert "mean return" in capsys.readouterr().out


def test_a_verdict_in_words():
    fast, slow, never = np.ones((2, 3, 100)), np.zeros((2, 3, 100)), np.zeros((2, 3, 100))
    slow[..., 60:] = 1.0
    curves = LearningCurves({"none": slow, "OnlineCredit": fast}, optimal=1.0)
    assert verdict(curves, fraction=0.9)[1] == "OnlineCredit: reached 90% of optimal in 20 instead of 78 episodes"
    curves = LearningCurves({"none": never, "potential": slow})
    words = "potential: reached a return of 0.5 in 70 instead of more than 100 episodes"
    assert verdict(curves, threshold=0.5)[1] == words
    assert verdict(curves)[1] == "potential: mean return 0.40 over training instead of 0.00"
    alike = np.random.default_rng(0).normal(0, 1, (2, 6, 3, 100))
    words = verdict(LearningCurves({"none": alike[0], "potential": alike[1]}))[1]
    assert "; this may be chance: the mean return differs by " in words and words.endswith("an interval that holds 0")


def learn_until(monkeypatch, calls=None):
    """Ctrl-C when an agent begins to learn, after so many have finished; the seeds of those that began."""
    begun = []
    real = q_learning.QLearning.learn

    def learn(self, *arguments, **options):
        if len(begun) == calls:
            raise KeyboardInterrupt
        begun.append(self.seed)
        return real(self, *arguments, **options)

    monkeypatch.setattr(q_learning.QLearning, "learn", learn)
    return begun


def test_learn_keeps_the_agents_that_were_done_when_it_was_interrupted(here, capsys):
    command = ["learn", *CALLS["learn"], "--quiet"]
    assert main([*command, "--out", "undisturbed"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        learn_until(patch, 3)
        assert main(command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not Path("new/curves.safetensors").exists()
    for expected in ([1], [0, 1, 0, 1]):  # the last of two agents in two tasks; a finished run is run anew
        with pytest.MonkeyPatch.context() as patch:
            begun = learn_until(patch)
            assert main(command) == 0
        assert begun == expected
    one, other = (LearningCurves.load(f"{folder}/curves.safetensors") for folder in ("new", "undisturbed"))
    assert one.names == other.names
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_value_of_a_maze_in_which_no_trajectory_succeeds_shapes_nothing():
    maze = {"size": 3, "triggers": 1, "layout_seed": 1_000_000}
    env, target = gym.make("secret_rl/Triggers-v0", **maze), srl.collect("secret_rl/Triggers-v0", 200, env_options=maze)
    assert target.successful.any() and not target.successful.all()
    assert by_value(env, target[~target.successful]) is env
    assert isinstance(by_value(env, target), srl.PotentialShaping)


@pytest.mark.slow
def test_a_demo_that_was_interrupted_repeats_nothing_and_leaves_everything(here, capsys):
    small = ["--trajectories", "300", "--updates", "200", "--mazes", "2", "--seeds", "2", "--episodes", "30"]
    command = ["demo", "--out", "demo", *small, "--size", "3", "--switches", "1"]
    with pytest.MonkeyPatch.context() as patch:
        learn_until(patch, 7)
        assert main(command) == 130
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(srl.Secret, "fit", lambda *_, **__: pytest.fail("fitted again"))
        begun = learn_until(patch)
        assert main([*command, "--json"]) == 0
    assert len(begun) == 6, "the part that was not whole: the two agents of one maze, and four more"
    shown = capsys.readouterr()
    record = json.loads(shown.out)
    report, deep = shown.err.splitlines()[-2:]
    assert report == f"report      {Path(record['report']).resolve().as_uri()}" and "examples/sb3_dqn.py" in deep
    assert f"explorer    {Path('demo/explorer.html').resolve().as_uri()}" in shown.err.splitlines()
    assert "3. Q-learning in 2 held-out mazes" in shown.err
    assert record["verdict"].startswith("OnlineCredit: reached 90% of optimal in ")
    assert record["verdict"] in Path("demo/report.html").read_text()
    assert record["finished"] and record["settings"]["trajectories"] == 300
    assert record["data"]["episodes"] == 300 and record["quality"].keys() == {"held-out mazes"}
    assert not Path("demo/parts").exists() and len(srl.Trajectories.load("demo/source")) == 300
    assert len(unpack(Path("demo/explorer.html").read_text(encoding="utf-8"))["trajectories"]) == 15
    assert Path("demo/curves.png").read_bytes().startswith(b"\x89PNG") and len(pandas.read_csv("demo/curves.csv")) > 0
    curves, secret = LearningCurves.load("demo/curves.safetensors"), srl.Secret.load("demo/credit.safetensors")
    env = gym.make("secret_rl/Triggers-v0", size=3, triggers=1, layout_seed=1_000_000)
    shaped = srl.PotentialShaping(env, srl.OnlineCredit(secret), discount=0.99)
    options = {"size": 3, "triggers": 1, "prizes": 1, "layout_seed": 1_000_000}
    target = srl.collect("secret_rl/Triggers-v0", 1_000, seed=0, env_options=options)
    value = srl.PotentialShaping(env, srl.estimate_potential(target, kind="value"), discount=0.99)
    assert curves.collected["value"].tolist() == [1_000, 1_000]
    for name, task in {"none": env, "value": value, "OnlineCredit": shaped}.items():
        assert curves[name].shape == (2, 2, 30)
        np.testing.assert_array_equal(curves[name][0, 1], srl.QLearning(seed=1).learn(task, 30).curve.returns)


def test_play_from_a_pipe_follows_the_env(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("dsawdsawq"))
    assert main(["play", "--option", "layout_seed=1", "triggers=0", "size=2", "--json"]) == 0
    played = capsys.readouterr()
    assert json.loads(played.out)["returns"][0] == 1
    assert "prize: +1" in played.err and "return +1" in played.err


@pytest.mark.slow
def test_paper_is_run_from_a_clone(tmp_path):
    def paper(*words):
        return subprocess.run([COMMAND, "paper", *words], cwd=tmp_path, capture_output=True, text=True)

    done = paper("maze")
    assert (done.returncode, "root of a clone" in done.stderr) == (1, True)
    shutil.copytree(ROOT / "paper", tmp_path / "paper", ignore=shutil.ignore_patterns("results"))
    done = paper("nothing")
    assert done.returncode == 2
    assert "no such result: nothing; choose from maze, credit_quality" in done.stderr
    drawn = paper("maze", "--json", "--quiet")
    assert [Path(file).name for file in json.loads(drawn.stdout)["files"]] == ["maze.png", "maze.svg"]
    assert (drawn.returncode, drawn.stderr) == (0, "")


def test_files_beside_a_model_need_names_of_their_own(here, capsys):
    data = srl.collect("secret_rl/Triggers-v0", 20, seed=0, env_options={"size": 3})
    data.save("data")
    method = method_class("uniform")().fit(data)
    for folder in ("one", "two"):
        Path(folder).mkdir()
        method.save(f"{folder}/uniform.safetensors")
    beside = ["--beside", "one/uniform.safetensors", "two/uniform.safetensors"]
    assert main(["explore", "one/uniform.safetensors", "data", "--out", "page.html", "--quiet", *beside[:2]]) == 0
    assert "uniform" in unpack(Path("page.html").read_text(encoding="utf-8"))["beside"]
    assert main(["explore", "one/uniform.safetensors", "data", "--out", "other.html", *beside]) == 2
    assert "two/uniform.safetensors" in capsys.readouterr().err and not Path("other.html").exists()
