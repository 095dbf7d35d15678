"""The command line: results, refusals and exit codes."""

import json
import os
import pty
import subprocess
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas
import pytest
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl import cli
from secret_rl.cli import main
from secret_rl.cli.learning import verdict
from secret_rl.credit import ModelOptions, TrainingOptions
from secret_rl.evaluation import LearningCurves
from secret_rl.shaping import NotCreditWarning

COMMAND = Path(sys.executable).parent / "secret-rl"


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"secret-rl {srl.__version__}\n"


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_help_explains_every_option(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    shown = capsys.readouterr().out
    named = ("env", "data", "model", "training", "names", "runs")  # by their place, or by their own options
    for option in fields(cli._COMMANDS[command]):
        assert f"--{option.name.replace('_', '-')}" in shown or option.name in named
    assert "--quiet" in shown and "--json" in shown
    if command == "fit":
        for option in (*ModelOptions.__dataclass_fields__, *TrainingOptions.__dataclass_fields__):
            assert f"--{option.replace('_', '-')}" in shown


def test_collect_is_the_library_call(tmp_path, capsys):
    arguments = ["collect", "secret_rl/Triggers-v0", "--out", str(tmp_path / "m"), "--episodes", "200"]
    assert main([*arguments, "--success-share", "0.1", "--option", "triggers=1", "window=None", "--seed", "4"]) == 0
    assert "10.00%" in capsys.readouterr().out
    expected = srl.collect(
        "secret_rl/Triggers-v0", 200, seed=4, success_share=0.1, env_options={"triggers": 1, "window": None}
    )
    assert srl.Trajectories.load(tmp_path / "m").equals(expected)
    assert main(arguments) == 1
    assert "overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_info_for_people_and_machines(tmp_path, capsys):
    srl.collect("secret_rl/Triggers-v0", 30, seed=2).save(tmp_path / "m")
    assert main(["info", str(tmp_path / "m"), "--verify"]) == 0
    assert "observations" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "m"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["summary"]["episodes"] == 30
    assert content["meta"]["seed"] == 2
    rewards = tmp_path / "m" / "rewards.npy"
    rewards.write_bytes(rewards.read_bytes()[:-4])
    assert main(["info", str(tmp_path / "m")]) == 1
    assert "rewards.npy has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "nowhere"], "nowhere is not a folder"),
        (["collect", "secret_rl/Triggers-v0", "--out", "x", "--option", "window=2"], "window must be odd"),
        (["collect", "Nowhere-v3", "--out", "x"], "Nowhere"),
        (["play", "--size", "1"], "a 1x1 grid has 1"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect"], "secret-rl collect --help"),
        (["fit", "mazes", "--out", "m", "--steps", "0"], "steps must be at least 1, got 0"),
        (["collect", "secret_rl/Triggers-v0", "--out", "x", "--option", "size"], "KEY=VALUE words, got 'size'"),
        (["learn", "FrozenLake-v1", "--seeds", "1", "--out", "x"], "--seeds must be at least 2, for intervals, got 1"),
        (["demo", "--out", "x", "--mazes", "0"], "--mazes must be at least 1, got 0\nsee secret-rl demo --help"),
        (["demo", "--out", "x", "--mazes", "1", "--seeds", "1"], "raise --mazes or --seeds"),
        (["report"], "see secret-rl report --help"),
        (
            ["--print-completion", "tcl"],
            "--print-completion takes one of bash, zsh, fish, got tcl\nsee secret-rl --help",
        ),
    ],
)
def test_wrong_usage_exits_with_two_and_a_hint(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    error = capsys.readouterr().err
    assert (code, message in error, "Traceback" in error) == (2, True, False), error
    assert list(tmp_path.iterdir()) == []


def test_play_from_a_pipe_follows_the_env(capfd):
    done = subprocess.run(
        [COMMAND, "play", "--layout-seed", "1", "--triggers", "0", "--size", "2"],
        input="dsawdsawq",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "prize: +1" in done.stdout
    assert "return +1" in done.stdout


def test_play_in_a_terminal_reads_arrow_keys():
    main_end, child_end = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "play", "--seed", "3"], stdin=child_end, stdout=child_end, stderr=child_end
    ) as child:
        os.close(child_end)
        shown = b""
        while b"q quit" not in shown:
            shown += os.read(main_end, 4096)
        os.write(main_end, b"\x1b[A\x1b[Dq")
        try:
            while chunk := os.read(main_end, 4096):
                shown += chunk
        except OSError:  # the terminal closes with its last user
            pass
    os.close(main_end)
    assert child.returncode == 0
    assert shown.count(b"\x1b[2J") == 3


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
def test_demo_leaves_a_model_curves_and_a_verdict(tmp_path, capsys, monkeypatch):
    quick_fits(monkeypatch)
    small = ["--trajectories", "600", "--updates", "60", "--mazes", "2", "--seeds", "2", "--episodes", "50"]
    arguments = ["demo", "--out", str(tmp_path), *small, "--size", "3", "--switches", "1", "--quiet"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    record = json.loads((tmp_path / "run.json").read_text())
    assert shown.strip() == record["verdict"], "quiet: the answer alone"
    assert record["verdict"].startswith("OnlineCredit: reached 90% of optimal in ")
    assert record["finished"] and record["settings"]["trajectories"] == 600
    assert record["data"]["episodes"] == 600 and record["quality"].keys() == {"held-out mazes"}
    assert record["verdict"] in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "parts").exists()
    secret = srl.Secret.load(tmp_path / "credit.safetensors")
    assert len(srl.Trajectories.load(tmp_path / "source")) == 600
    curves = LearningCurves.load(tmp_path / "curves.safetensors")
    assert curves["none"].shape == curves["OnlineCredit"].shape == (2, 2, 50)
    env = gym.make("secret_rl/Triggers-v0", size=3, triggers=1, layout_seed=1_000_000)
    for name, task in {
        "none": env,
        "OnlineCredit": srl.PotentialShaping(env, srl.OnlineCredit(secret), discount=0.99),
    }.items():
        np.testing.assert_array_equal(curves[name][0, 1], srl.QLearning(seed=1).learn(task, 50).curve.returns)
    assert len(pandas.read_csv(tmp_path / "curves.csv")) > 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_verdict_in_words():
    fast, slow = np.ones((2, 3, 100)), np.zeros((2, 3, 100))
    slow[..., 60:] = 1.0
    never = np.zeros((2, 3, 100))
    curves = LearningCurves({"none": slow, "OnlineCredit": fast}, optimal=1.0)
    assert verdict(curves, fraction=0.9)[1] == "OnlineCredit: reached 90% of optimal in 20 instead of 78 episodes"
    curves = LearningCurves({"none": never, "potential": slow})
    words = "potential: reached a return of 0.5 in 70 instead of more than 100 episodes"
    assert verdict(curves, threshold=0.5)[1] == words
    assert verdict(curves)[1] == "potential: mean return 0.40 over training instead of 0.00"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_potential_and_learn_are_the_library_calls(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick_fits(monkeypatch)
    options = {"size": 3, "triggers": 1, "layout_seed": 5}
    data = srl.collect("secret_rl/Triggers-v0", 300, success_share=0.3, env_options=options)
    data.save("target")
    secret = srl.Secret(steps=30, units=16, batch_size=32, evaluate_every=10, device="cpu").fit(data)
    secret.save("m.safetensors")
    cpu = ["--device", "cpu"]
    assert main(["potential", "target", "--out", "p.json", "--model", "m.safetensors", *cpu]) == 0
    pending = srl.estimate_potential(data, secret.attribute(data), "pending")
    assert srl.TablePotential.load("p.json").values == pending.values
    assert main(["potential", "target", "--out", "v.json", "--kind", "value", "--discount", "0.9"]) == 0
    value = srl.estimate_potential(data, kind="value", discount=0.9)
    assert srl.TablePotential.load("v.json").values == value.values
    assert main(["potential", "target", "--out", "b.json", "--kind", "mixed", "--model", "m.safetensors", *cpu]) == 0
    mixed = srl.estimate_potential(data, secret.attribute(data), "mixed")
    assert srl.TablePotential.load("b.json").values == mixed.values
    adapting = ["potential", "target", "--out", "a.json", "--model", "m.safetensors", "--adapt", "12", *cpu]
    assert main(adapting) == 0
    adapted = srl.adapt(srl.Secret.load("m.safetensors"), data, steps=12).attribute(data)
    assert srl.TablePotential.load("a.json").values == srl.estimate_potential(data, adapted).values
    assert main(["potential", "target", "--out", "x.json"]) == 2
    assert "needs a credit model: give --model" in capsys.readouterr().err

    task = ["secret_rl/Triggers-v0", "--option", "size=3", "triggers=1", "layout_seed=5"]
    learning = ["learn", *task, "--episodes", "60", "--seeds", "2", "--out", "learned", "--discount", "0.95"]
    assert main([*learning, "--potential", "p.json", "--credit", "m.safetensors", "--threshold", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["baseline"] == "none"
    curves = LearningCurves.load("learned/curves.safetensors")
    env = gym.make("secret_rl/Triggers-v0", **options)
    for name, shaped in {
        "none": env,
        "potential": srl.PotentialShaping(env, pending, discount=0.95),
        "OnlineCredit": srl.PotentialShaping(env, srl.OnlineCredit(secret), discount=0.95),
    }.items():
        learned = srl.QLearning(seed=1, discount=0.95).learn(shaped, 60).curve
        np.testing.assert_array_equal(curves[name][0, 1], learned.returns)
    learning[learning.index("learned")] = "repeating"
    assert main([*learning, "--credit", "m.safetensors", "--repeat"]) == 0
    repeating = srl.PotentialShaping(env, srl.OnlineCredit(secret, repeat=True), discount=0.95)
    learned = srl.QLearning(seed=1, discount=0.95).learn(repeating, 60).curve
    curves = LearningCurves.load("repeating/curves.safetensors")
    np.testing.assert_array_equal(curves["OnlineCredit"][0, 1], learned.returns)
    capsys.readouterr()
    assert main(["learn", "FrozenLake-v1", "--episodes", "40", "--seeds", "2", "--out", "lake", "--quiet"]) == 0
    assert "mean return" in capsys.readouterr().out
    assert not Path("x.json").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
def test_other_readouts_and_a_model_that_is_doubted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick_fits(monkeypatch)
    options = {"size": 3, "triggers": 1, "prizes": 1, "max_steps": 12}
    data = srl.collect("secret_rl/Triggers-v0", 200, success_share=0.3, env_options=options)
    data.save("mazes")
    secret = srl.Secret(steps=40, units=16, batch_size=32, weights="paper", device="cpu").fit(data)
    secret.report = replace(secret.report, verdict="not learned")
    secret.save("m.safetensors")
    given = ["m.safetensors", "mazes", "--device", "cpu"]
    commands = {
        "attribute": ["--out", "a.safetensors", "--readout", "leave-one-out", "--decided", "--json"],
        "quality": [],
        "explore": ["--trajectories", "2", "--no-replay"],
    }
    for command, more in commands.items():
        with pytest.warns(NotCreditWarning, match="not learned: the past may decide the rewards"):
            assert main([command, *given, *more]) == 0
        if command == "attribute":
            assert json.loads(capsys.readouterr().out)["verdict"] == "not learned"
    expected = secret.attribute(data, decided=True, readout="leave-one-out")
    np.testing.assert_array_equal(srl.Attributions.load("a.safetensors").weights, expected.weights)
    secret.report = replace(secret.report, verdict="credit")
    secret.save("m.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCreditWarning)
        assert main(["quality", *given]) == 0


def test_fit_attribute_and_quality_are_the_library_calls(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick_fits(monkeypatch)
    options = {"size": 3, "triggers": 1, "prizes": 1, "max_steps": 12}
    data = srl.collect("secret_rl/Triggers-v0", 300, success_share=0.3, env_options=options)
    data.save("mazes")
    fit = ["fit", "mazes", "--out", "m.safetensors", "--steps", "60", "--units", "16", "--batch-size", "32"]
    with warnings.catch_warnings(action="ignore"):  # so short a fit may be warned of
        assert main([*fit, "--evaluate-every", "30", "--device", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    with warnings.catch_warnings(action="ignore"):
        expected = srl.Secret(steps=60, units=16, batch_size=32, evaluate_every=30, device="cpu").fit(data)
    assert report["validation"] == expected.report.to_json()["validation"]
    assert main(["attribute", "m.safetensors", "mazes", "--out", "a.safetensors", "--device", "cpu"]) == 0
    ours = srl.Attributions.load("a.safetensors")
    np.testing.assert_array_equal(ours.weights, expected.attribute(data).weights)
    assert main(["attribute", "m.safetensors", "mazes", "--out", "a.csv", "--threshold", "0.1", "--device", "cpu"]) == 0
    table = ours.to_pandas(0.1)
    written = pandas.read_csv("a.csv")
    assert list(written.columns) == list(table.columns)
    assert len(written) == len(table) > 0
    capsys.readouterr()
    assert main(["quality", "m.safetensors", "mazes", "--json", "--device", "cpu"]) == 0
    quality = json.loads(capsys.readouterr().out)
    assert quality["recall"] == srl.credit_quality(expected.attribute(data, rewards="positive"), data).recall
    near = ["--tolerance", "3", "--events", "any", "--reward-tolerance", "1"]
    assert main(["quality", "m.safetensors", "mazes", "--json", "--device", "cpu", *near]) == 0
    attributions = expected.attribute(data, rewards="positive", tolerance=1)
    judged = srl.credit_quality(attributions, data, tolerance=3, events="any")
    assert json.loads(capsys.readouterr().out) == judged.to_json()
    assert main(["quality", "mazes/rewards.npy", "mazes"]) == 1
    error = capsys.readouterr().err
    assert "rewards.npy cannot be read as 'secret-rl credit model': it has" in error
    assert "bytes and is not a whole safetensors file; restore it or fit again" in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.safetensors", "m.run", "m.safetensors", "mazes"]
    record = json.loads(Path("m.run/run.json").read_text())
    assert record["fit"] == report and record["settings"]["units"] == 16 and record["data"]["episodes"] == 300
    held_out = data[data.split_indices(0.1, seed=0)[1]]
    judged = srl.credit_quality(expected.attribute(held_out, rewards="positive"), held_out)
    assert record["quality"] == {"held out for validation": judged.to_json()}


def test_paper_is_run_from_a_clone(tmp_path):
    root = Path(__file__).parent.parent
    done = subprocess.run([COMMAND, "paper", "maze"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "root of a clone" in done.stderr
    done = subprocess.run([COMMAND, "paper", "nothing"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such result: nothing; choose from maze, credit_quality" in done.stderr
