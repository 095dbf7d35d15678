"""The machinery of in-domain transfer in 3D, at a tiny size."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from tests.quick import quick_fits

pytest.importorskip("stable_baselines3")
pytest.importorskip("vizdoom")

from paper.keys_doors_credit import DEVELOPMENT_MAPS
from paper.keys_doors_runs import Goals
from paper.keys_doors_study import Condition, Files, Study, done, left_by
from paper.keys_doors_transfer import CONDITIONS, Panel, TransferResult, curve, speed_up
from paper.keys_doors_way import DISCOUNT

import secret_rl as srl
from paper import keys_doors_potentials, keys_doors_runs, keys_doors_transfer
from secret_rl.envs import KEYS_DOORS_ID
from secret_rl.envs.keys_doors import Solver
from secret_rl.shaping import LearnedPotential, TablePotential
from secret_rl.sweep import Workers
from secret_rl.testing.shaping import OneEnvironment

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit may be warned of
WORLD = {"preset": "2x2-easy", "core": 1, "size": (40, 30), "goal_reward": 5.0, "max_steps": 240}
PPO = {"n_envs": 2, "n_steps": 64, "batch_size": 64, "n_epochs": 1}


@pytest.fixture(scope="module")
def credit(tmp_path_factory):
    path = tmp_path_factory.mktemp("credit") / "credit.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch)
        keys_doors_transfer.small_credit(WORLD, path, episodes=12, steps=12)
    return path


@pytest.fixture
def tiny(scratch, tmp_path, monkeypatch, credit):
    """A panel; its result is called tiny, too."""
    monkeypatch.setattr(keys_doors_transfer, "SPACING", 64)
    few = [c for c in CONDITIONS if c.label not in ("paper", "pending", "mixed", "value", "known way")]
    study = Study(
        few, maps=1, seeds=2, steps=256, first_map=DEVELOPMENT_MAPS, world=WORLD, ppo=PPO,
        target_trajectories=4, learning={"steps": 4, "units": 8},
    )  # fmt: skip
    return Panel("maps", study, Files(tmp_path / "runs", (credit,)), window=1)


def result_of(*panels):
    return TransferResult("tiny", panels)


def test_every_condition_is_run_reported_and_not_run_twice(tiny, monkeypatch):
    result = result_of(tiny)
    keys_doors_transfer.run(result, "the command", Workers(2))
    left = {path: path.stat().st_mtime_ns for path in tiny.files.folder.iterdir()}
    assert len([path for path in left if path.name.startswith("run-")]) == 6
    potentials = {c.label: tiny.files.potential(c, 0) for c in tiny.study.conditions if c.needs_data}
    assert isinstance(LearnedPotential.load(potentials["learned pending"]), LearnedPotential)
    content = done(tiny.study, tiny.files, (CONDITIONS[0], 0, 0))
    assert content["played"] == 256
    assert content["settings"]["env"]["frame_skip"] == 8
    assert len(content["goals"]) == len(content["steps"]) == len(content["lengths"]) == len(content["returns"])
    assert [paid >= 5 for paid in content["returns"]] == content["goals"]
    keys_doors_transfer.run(result, "the command", Workers(2))  # nothing is left to do
    assert {path: path.stat().st_mtime_ns for path in tiny.files.folder.iterdir()} == left
    monkeypatch.setattr(keys_doors_transfer, "result", lambda quick: result)
    written = keys_doors_transfer.main(False, "the command", analyse_only=True)
    assert [path.rsplit(".", 1)[1] for path in written] == ["md", "png", "svg"]
    page = (result.path.parent / "tiny.md").read_text()
    for words in ("## maps", "| learned pending | 2 |", "`the command`", "the goal 5 (50 in the paper", "1 maps (`lay"):
        assert words in page


def test_what_changed_is_run_again(tiny, tmp_path, credit):
    study = replace(tiny.study, conditions=(Condition("none"), Condition("OnlineCredit", "OnlineCredit")), seeds=1)
    with pytest.raises(FileNotFoundError, match="no run of this study"):
        keys_doors_transfer.gather(result_of(replace(tiny, study=study)), "the command")
    job, online = (study.conditions[0], 0, 0), (study.conditions[1], 0, 0)
    for each in (job, online):
        keys_doors_runs.run(study, tiny.files, *each)
        assert done(study, tiny.files, each)
        assert done(replace(study, steps=512), tiny.files, each) is None
    secret = srl.Secret.load(credit)
    secret.seed += 1
    elsewhere = Files(tiny.files.folder, (secret.save(tmp_path / "other.safetensors"),))
    assert done(study, elsewhere, job)
    assert done(study, elsewhere, online) is None
    assert left_by(study, Files(tiny.files.folder), online)  # to be analysed without the model
    more = replace(tiny, label="more", study=replace(study, seeds=2))
    none = replace(tiny, label="none", files=Files(tmp_path / "nothing"))
    path = keys_doors_transfer.gather(result_of(replace(tiny, study=study), more, none), "the command")
    panels = json.loads(path.read_text())["panels"]
    assert [(panel["label"], panel["missing"]) for panel in panels] == [("maps", 0), ("more", 2)]
    page = keys_doors_transfer.table(result_of(more, none)).read_text()
    assert page.index("## more") < page.index("2 runs are missing") < page.index("## none") < page.index("not run")


def test_tables_are_over_cells_and_held_keys_and_on_the_scale_of_the_rewards(tiny):
    conditions = [condition for condition in CONDITIONS if condition.label in ("value", "paper", "pending", "mixed")]
    study = replace(tiny.study, conditions=conditions, target_trajectories=3)
    tiny.files.folder.mkdir()
    summary = keys_doors_potentials.make_potentials(study, tiny.files, 0)
    data = keys_doors_potentials.target_trajectories(study, 0)
    assert summary.startswith(f"map 0: 3 target trajectories, {np.mean(~data.truncated):.0%}")
    visited = set(map(tuple, np.asarray(data.states).tolist()))
    for condition in conditions:
        table = TablePotential.load(tiny.files.potential(condition, 0))
        assert {tuple(state) for state in visited} <= set(table._values)
    value = TablePotential.load(tiny.files.potential(conditions[0], 0))
    assert 1 < max(value._values.values()) <= 6  # doors pay 1 and the goal 5
    panel, mixed = replace(tiny, study=study), next(c for c in conditions if c.label == "mixed")
    twice = TablePotential({state: 2 * worth for state, worth in value.values.items()})
    for table, apart in ((value, 0.0), (twice, 1.0)):
        table.save(tiny.files.potential(mixed, 0))
        assert keys_doors_transfer._mixed_from_value(panel, 0) == pytest.approx(apart)
    assert keys_doors_transfer._mixed_from_value(tiny, 1) is None, "nothing was made for that map"


def test_the_known_way_is_worth_more_at_every_turn_of_a_solution(tiny):
    ways = (Condition("known way", "way"),)
    study = replace(tiny.study, conditions=ways, target_trajectories=12, world={**WORLD, "core": 2, "max_steps": 900})
    tiny.files.folder.mkdir()
    keys_doors_potentials.make_potentials(study, tiny.files, 0)
    potential = keys_doors_potentials.potential_of(tiny.files, ways[0], 0)
    env = gym.make(KEYS_DOORS_ID, **study.env(0))
    solver, (observation, info) = Solver(env), env.reset(seed=0)
    phi = OneEnvironment(potential)
    at = {"start": phi.start(observation, info)}
    over, doors = False, 0
    while not over:
        action = solver(observation)
        observation, reward, over, truncated, info = env.step(action)
        now = phi.step(action, observation, reward, info)
        assert not truncated and 0 <= now <= 7
        if info["key_picked"]:
            at[f"key {doors}"] = now
        if info["door_opened"]:
            doors += 1
            at[f"door {doors}"] = now
    env.close()
    assert list(at) == ["start", "key 0", "door 1", "key 1", "door 2"]
    assert at["start"] < at["key 0"] and at["door 1"] < at["key 1"] and at["door 2"] > 5 * DISCOUNT**20
    assert OneEnvironment(potential).start(observation, {"state": (0, 0, 0)}) == 0, "a place that nobody has been to"


def test_goal_rates_are_of_the_last_episodes_and_stay_where_a_run_ends(monkeypatch):
    monkeypatch.setattr(keys_doors_transfer, "SPACING", 10)
    content = {"steps": [10, 20, 30, 40, 50], "goals": [False, True, True, True, True]}
    assert keys_doors_transfer._time(content, 2) == 30
    assert keys_doors_transfer._time(content, 5) == 50  # 4 of 5
    assert keys_doors_transfer._time(content, 6) is None
    np.testing.assert_array_equal(curve(content, 80, 2), [0, 0, 0.5, 1, 1, 1, 1, 1, 1])
    early = {"steps": [10, 20, 30], "goals": [True, True, False]}
    np.testing.assert_allclose(curve(early, 40, 3), np.array([0, 1, 2, 2, 2]) / 3)  # what is to come may fail


def test_speed_ups_pair_runs_and_count_those_that_never_got_there_with_all_their_steps():
    base = np.array([[400.0, np.inf], [200.0, 800.0]])
    assert speed_up(base / 2, base, 1_000)[0].value == pytest.approx(2_400 / 1_700)
    found = speed_up(np.array([[200.0, 500.0], [100.0, 400.0]]), base, 1_000)
    assert [estimate.value for estimate in found] == pytest.approx([2.0, 2.0])
    assert [found[1].low, found[1].high] == pytest.approx([2.0, 2.0])
    partly = np.array([[100.0, 500.0], [100.0, np.nan]])
    assert speed_up(partly, base, 1_000)[0].value == pytest.approx(3.0)  # of the first seed alone
    assert speed_up(np.full((2, 2), np.nan), base, 1_000) is None
    assert speed_up(base[:1, :1], base[:1, :1], 1_000) is None


def test_training_ends_once_nearly_all_episodes_reach_the_goal():
    goals = Goals(0.75, 4)
    for step, reached in enumerate([True, True, True, False]):
        goals.num_timesteps = step
        goals.locals = {"dones": np.array([False, True]), "infos": [{}, {"goal_reached": reached}]}
        assert goals._on_step() == (step < 3)
    assert goals.over
    assert goals.steps == [0, 1, 2, 3]
