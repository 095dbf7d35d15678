"""Every example runs, switches credit on as it says, and tells unshaped returns."""

import hashlib
import re
import runpy
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import secret_rl as srl
from secret_rl import credit
from secret_rl.credit import NotLearnedWarning, PastNotNeededWarning
from secret_rl.shaping import NotCreditWarning

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def credit_models(tmp_path_factory):
    return tmp_path_factory.mktemp("credit")


@pytest.fixture(autouse=True)
def fitted_once(monkeypatch, credit_models):
    """The examples fit the same model to the same data: fit it in the first of them."""
    fit = srl.Secret.fit

    def fit_or_load(secret, data, **options):
        asked = repr((secret.model_options, secret.training_options, secret.seed, data.fingerprint, options))
        path = credit_models / f"{hashlib.sha256(asked.encode()).hexdigest()}.safetensors"
        if not path.exists():
            fit(secret, data, **options).save(path)
        return srl.Secret.load(path)

    monkeypatch.setattr(srl.Secret, "fit", fit_or_load)
    yield
    assert len(list(credit_models.iterdir())) <= 1


def run(name, monkeypatch, capsys, *arguments):
    """Run an example as a program; what it printed, and its global names."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # 20 updates teach a model nothing
        for category in (NotLearnedWarning, PastNotNeededWarning, NotCreditWarning):
            warnings.simplefilter("ignore", category)
        names = runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out, names


def watch(monkeypatch, module, name):
    """The arguments, the options and the result of each call of a function."""
    calls, real = [], getattr(module, name)

    def watched(*arguments, **options):
        result = real(*arguments, **options)
        calls.append((arguments, options, result))
        return result

    monkeypatch.setattr(module, name, watched)
    return calls


def verdict_of(printed):
    *_, unshaped_line, credit_line, last = printed.strip().splitlines()
    pattern = r"verdict: \(too small to tell\) (credit helped|credit did not help), (\S+) against (\S+)"
    found = re.fullmatch(pattern, last)
    assert found, last
    credit, unshaped = float(found[2]), float(found[3])
    assert unshaped_line.endswith(f" {unshaped:.2f}") and credit_line.endswith(f" {credit:.2f}")
    if credit != unshaped:  # as printed, rounded
        assert (found[1] == "credit helped") == (credit > unshaped)
    return credit, unshaped


@pytest.mark.parametrize(("name", "discount"), [("sb3_dqn", 0.9), ("sb3_ppo", 0.99)])
def test_deep_agents_differ_in_credit_alone(name, discount, monkeypatch, capsys):
    calls = watch(monkeypatch, srl.sb3, "train")
    credit, unshaped = verdict_of(run(name, monkeypatch, capsys, "--quick")[0])

    (plain_arguments, plain_options, plain), (credited_arguments, credited_options, credited) = calls
    credited_options.pop("shaping")
    assert (plain_arguments, plain_options) == (credited_arguments, credited_options)
    assert [plain.curve.area(), credited.curve.area()] == pytest.approx([unshaped, credit], abs=0.0051)

    assert not plain.model.get_env().has_attr("shaping_discount")
    assert set(credited.model.get_env().get_attr("shaping_discount")) == {discount} == {credited.model.gamma}
    assert np.array_equal(plain.curve.training_returns, plain.curve.training_shaped_returns)
    assert not np.allclose(credited.curve.training_returns, credited.curve.training_shaped_returns)
    assert set(np.unique(credited.curve.training_returns)) <= {-1.0, 0.0, 1.0}  # what the maze pays
    layouts = {options["env_options"]["layout_seed"] for _, options, _ in calls}
    assert layouts == {7} and plain_options["env_options"]["window"] is None

    if name == "sb3_dqn":
        for trained, shaped in ((plain, False), (credited, True)):
            buffer = trained.model.replay_buffer
            assert isinstance(buffer, srl.sb3.ShapedReplayBuffer) and buffer.priority == 0.25
            assert bool(np.any(buffer.terms > 0)) is shaped


def test_own_loop_is_shaped_with_its_own_discount(monkeypatch, capsys):
    made = watch(monkeypatch, srl, "PotentialShaping")
    printed, names = run("plain_loop", monkeypatch, capsys, "--quick")
    verdict_of(printed)
    assert [env.shaping_discount for _, _, env in made] == [names["DISCOUNT"]]


def test_own_loop_learns_and_tells_unshaped_returns():
    loop = runpy.run_path(str(ROOT / "examples" / "plain_loop.py"))
    maze = gym.make("secret_rl/Triggers-v0", size=4, triggers=1, layout_seed=3)
    random_play = srl.collect(maze, 100, progress=False)
    assert loop["learn"](maze, episodes=300) > random_play.returns.mean() + 0.5
    paid = []
    counted = gym.wrappers.TransformReward(maze, lambda reward: paid.append(reward) or reward)
    rng = np.random.default_rng(0)
    potential = srl.TablePotential({state: float(rng.random()) for state in range(64)})
    mean_return = loop["learn"](srl.PotentialShaping(counted, potential, loop["DISCOUNT"]), episodes=30)
    assert sum(paid) != 0
    assert mean_return == pytest.approx(sum(paid) / 30)


def test_own_method_finds_the_switch(monkeypatch, capsys):
    monkeypatch.setattr("secret_rl.credit.base._registered", dict(credit.base._registered))
    printed, names = run("own_method", monkeypatch, capsys, "--quick")
    own, uniform = (float(line.split("average precision ")[1].split(",")[0]) for line in printed.splitlines())
    assert own > 0.6 > 0.1 > uniform
    assert credit.base.method_class("contrast") is names["Contrast"]


def test_examples_are_short_and_listed_and_links_lead_somewhere():
    readme = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 60 and f"python examples/{path.name} " in source, path.name
        assert f"]({path.name})" in readme and f"python examples/{path.name}" in readme, path.name
    links = re.findall(r"\]\((?!http)([^)]+)\)", readme)
    assert [link for link in links if not (ROOT / "examples" / link).exists()] == []
