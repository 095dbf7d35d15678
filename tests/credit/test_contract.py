"""What every credit method must do, and how one is added: a file that registers a class."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
from gymnasium import spaces
from tests.credit.conftest import cue_trajectories, cut, little_work, single_threaded

from secret_rl.credit import ModelOptions, NotFittedError, Secret, TrainingOptions, adapt
from secret_rl.credit.attributions import REWARD_KINDS
from secret_rl.credit.base import inspector, load_method, method_class, methods, register_method, write_model
from secret_rl.credit.rivals import RIVALS
from secret_rl.files import FileFormatError
from secret_rl.shaping import OnlineCredit

OPTIONS = {"secret": {"units": 8, "steps": 4, "evaluate_every": 2, "batch_size": 16}}
OPTIONS |= {name: {"units": 8, "steps": 4, "batch_size": 16} for name in RIVALS}
VERDICTS = {"credit", "not learned", "past not needed"}
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.usefixtures("quick")]


@pytest.fixture(scope="module", params=methods())
def make(request):
    """A method that is not fitted yet."""
    method = method_class(request.param)
    return lambda: method(seed=0, device="cpu", **OPTIONS.get(request.param, {}))


@pytest.fixture(scope="module")
def fitted(make):
    with little_work(), single_threaded():
        return make().fit(cue_trajectories(40), progress=False)


@pytest.fixture
def scoring(fitted, learned):
    """A method that can score steps: SECRET has to have learned something for that."""
    return learned if isinstance(fitted, Secret) else fitted


def test_attributions_are_shares_of_rewards_among_earlier_steps(fitted, cues):
    data = cues(30, seed=1)
    for kind, signs in REWARD_KINDS.items():
        found = fitted.attribute(data, rewards=kind, progress=False)
        assert set(np.sign(found.reward)) <= set(signs) and len(found) <= found.rewards_seen
        np.testing.assert_array_equal(found.reward, data.rewards[data.offsets[found.episode] + found.step])
        assert (found.weights >= 0).all()
        for r in range(len(found)):
            assert found.row(r).sum() == pytest.approx(1, abs=1e-5)
            assert len(found.row(r)) == found.predicted_at[r] + 1 <= data.lengths[found.episode[r]]
    with pytest.raises(ValueError, match="rewards must be one of .*'all'.* got 'some'"):
        fitted.attribute(data, rewards="some")


def test_attribution_is_causal(fitted, cues):
    """What comes after a reward does not change who earned it."""
    data = cues(30, seed=1).with_rewards(lambda rewards: np.where(np.arange(len(rewards)) % 8 == 4, 1.0, rewards))
    parts = data, cut(data, lambda _: slice(5))
    whole, part = (fitted.attribute(one, rewards="positive", progress=False) for one in parts)
    early = np.flatnonzero(whole.step < 5)
    np.testing.assert_array_equal(whole.episode[early], part.episode)
    for r, row in enumerate(early):
        np.testing.assert_allclose(whole.row(row), part.row(r), rtol=1e-4, atol=1e-6)


def test_the_same_seed_gives_the_same_credit(make, fitted, cues):
    again, data = make().fit(cues(40), progress=False), cues(20, seed=2)
    np.testing.assert_array_equal(again.attribute(data).weights, fitted.attribute(data).weights)
    np.testing.assert_array_equal(fitted.attribute(data).weights, fitted.attribute(data).weights)


def test_step_credit_is_a_share_for_each_step(scoring, cues):
    data = cues(20, seed=2)
    found = scoring.step_credit(data.observations, data.actions, data.observations)
    assert found.shape == (data.steps,) and found.dtype == np.float64
    assert (found >= 0).all() and (found <= 1).all()
    np.testing.assert_array_equal(scoring.step_credit(data.observations[:3], data.actions[:3]), found[:3])
    for kind in (np.uint8, np.int64):  # data may be stored in small types
        same = (np.asarray(part).astype(kind) for part in (data.observations, data.actions))
        np.testing.assert_array_equal(scoring.step_credit(*same), found)
    OnlineCredit(scoring).check_spaces(data.observation_space, data.action_space)


def test_a_file_brings_it_back(fitted, cues, tmp_path):
    again, data = load_method(fitted.save(tmp_path / "model.safetensors"), device="cpu"), cues(20, seed=2)
    assert type(again) is type(fitted)
    assert again.report.to_json() == fitted.report.to_json()
    for name, value in vars(fitted.attribute(data)).items():
        np.testing.assert_array_equal(getattr(again.attribute(data), name), value, err_msg=name)
    resaved = again.save(tmp_path / "again.safetensors")
    assert resaved.read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    other = next(name for name in methods() if name != fitted.name)
    with pytest.raises(FileFormatError, match=f"a model of method '{fitted.name}', expected '{other}'"):
        method_class(other).load(resaved)


def test_it_can_be_inspected(make, fitted, cues):
    assert method_class(fitted.name) is type(fitted) and make().report is None
    assert fitted.report.verdict in VERDICTS
    assert f"verdict       {fitted.report.verdict}" in str(fitted.report)
    data = cues(6, seed=2)
    found = inspector(fitted, data)
    assert found.probabilities(1).shape == (8, len(fitted.report.classes))
    np.testing.assert_allclose(found.probabilities(1).sum(1), 1, atol=1e-5)
    credit = fitted.attribute(data)
    for r in range(len(credit)):
        seen = found.attention(int(credit.episode[r]), credit.step[r : r + 1])[0]
        np.testing.assert_allclose(seen[: len(credit.row(r))], credit.row(r), atol=1e-5)


def test_other_spaces_are_refused(scoring, cues):
    other = cues(20, doors={1: 4, -1: 4, 0: 4})
    with pytest.raises(ValueError, match="fitted on observations of .*'n': 4.* there are .*'n': 5"):
        scoring.attribute(other)
    with pytest.raises(ValueError, match="fitted on actions"):
        scoring.check_spaces(spaces.Discrete(4), spaces.Box(0, 1, (2,)))


def test_what_is_not_fitted_says_so(make, cues, tmp_path):
    for call in (
        lambda method: method.save(tmp_path / "model"),
        lambda method: method.step_credit(np.zeros(2, int), np.zeros(2, int)),
        lambda method: inspector(method, cues(3)),
    ):
        with pytest.raises(NotFittedError):
            call(make())


def test_progress_goes_to_standard_error_only_if_asked_for(make, cues, capfd):
    make().fit(cues(20), progress=False).attribute(cues(20), progress=False)
    assert capfd.readouterr() == ("", "")
    make().fit(cues(20), progress=True)
    assert capfd.readouterr().out == ""


def test_the_references_bound_credit(cues):
    data = cues(60)
    oracle, uniform = (method_class(name)().fit(data) for name in ("oracle", "uniform"))
    assert (oracle.report.verdict, uniform.report.verdict) == ("credit", "not learned")
    cue = np.asarray(data.annotations["cue"])
    steps = oracle.step_credit(data.observations, data.actions)
    assert steps[cue].min() > 0 and not steps[np.asarray(data.observations) == 3].any()
    assert not oracle.step_credit(np.array([99]), np.array([0])).any(), "a pair that was never met"
    assert set(uniform.step_credit(data.observations, data.actions)) == {1 / 8}
    with pytest.raises(ValueError, match="it was given 'key', the trajectories have cue"):
        method_class("oracle")("key").fit(data)
    with pytest.raises(TypeError, match="'uniform' cannot be adapted: fit it on the target"):
        adapt(uniform, data)


def test_a_name_is_registered_once_and_an_unknown_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'uniform' is registered already"):
        register_method("uniform")(type("Other", (), {}))
    with pytest.raises(
        ValueError, match=r"unknown credit method 'mine': expected one of .*oracle, .*secret, .*uniform"
    ):
        method_class("mine")
    path = write_model(tmp_path / "model", "mine", {}, {})
    with pytest.raises(FileFormatError, match="unknown credit method 'mine': expected one of"):
        load_method(path)


def test_options_of_the_signature_are_the_fields_of_the_options():
    found = {p.name: p.default for p in inspect.signature(Secret).parameters.values()}
    expected = {f.name: f.default for kind in (ModelOptions, TrainingOptions) for f in fields(kind)}
    assert found == {"seed": 0, "device": "auto", **expected}
    assert all(p.annotation != p.empty for p in inspect.signature(Secret).parameters.values())
