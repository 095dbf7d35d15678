"""The explorer, before any browser: what goes on the page, what is left out, and what is refused."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import gymnasium as gym
import numpy as np
import pytest
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.cli import main
from secret_rl.credit.outlook import Outlook
from secret_rl.report import explore
from secret_rl.report.explorer.choosing import candidates, choose
from secret_rl.report.explorer.page import page, unpack
from secret_rl.report.explorer.pictures import Film, as_rgb, film, is_picture, sheet
from secret_rl.report.explorer.scenes import rooms_map
from secret_rl.shaping import ReplayShaping

pytestmark = pytest.mark.xdist_group("explorer")  # one model for all
QUICK = {"device": "cpu", "validation": 0.2, "units": 16, "steps": 4}
MAZES = {"size": 4, "triggers": 1, "prizes": 1}


@pytest.fixture(autouse=True, scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch, updates=50)
        yield


def fitted(data):
    return srl.Secret(seed=0, **QUICK).fit(data, progress=False)


@pytest.fixture(scope="module")
def task():
    data = srl.collect("secret_rl/Triggers-v0", 300, seed=5, success_share=0.3, env_options=MAZES)
    options = {**QUICK, "steps": 250, "units": 32, "batch_size": 64, "warmup": 20, "learning_rate": 3e-3}
    return srl.Secret(seed=0, **options).fit(data, progress=False), data


def content_of(made):
    """What is on the page, with its frames where they belong."""
    content = unpack(made.path.read_text(encoding="utf-8"))
    for entry, frames in zip(content["trajectories"], content["frames"], strict=True):
        if frames is not None:
            entry["frames"] = frames
    return content


def shown(tmp_path, secret, data, **options):
    made = explore(secret, data, tmp_path / "page.html", progress=False, **options)
    return made, content_of(made)


def test_the_page_tells_what_the_model_and_the_data_say(task, tmp_path):
    secret, data = task
    made, content = shown(tmp_path, secret, data, discount=0.9)
    assert content["verdict"].startswith(f"verdict: {secret.report.verdict}; the past removes ")
    assert content["model"].startswith("seed 0, ") and content["classes"]["signs"] == [-1, 0, 1]
    assert len(made.episodes) == 50 and made.bytes == made.path.stat().st_size < 2_000_000 and made.notes == ()
    attributed = secret.attribute(data)
    rows = {(int(e), int(t)): r for r, (e, t) in enumerate(zip(attributed.episode, attributed.step, strict=True))}
    paid = ReplayShaping(srl.OnlineCredit(secret), 0.9).over(data)
    kinds = set()
    for entry in content["trajectories"]:
        number = entry["episode"]
        episode = data[number]
        rewards = np.asarray(episode.rewards)
        assert dict(map(tuple, entry["rewards"])) == {t: rewards[t] for t in np.flatnonzero(rewards)}
        assert entry["truth"]["trigger_activated"] == np.flatnonzero(episode.annotations["trigger_activated"]).tolist()
        start = int(data.offsets[number])
        np.testing.assert_allclose(entry["shaping"], paid[start : start + len(episode)], rtol=1e-4, atol=1e-9)
        after = [*entry["potential"][1:], 0.0 if episode.terminated else None]
        for t, (phi, following) in enumerate(zip(entry["potential"], after, strict=True)):
            if following is not None:
                assert 0.9 * following - phi == pytest.approx(entry["shaping"][t], abs=1e-4)
        assert entry["wrong"] == np.flatnonzero(np.array(entry["predicted"]) - 1 != np.sign(rewards)).tolist()
        np.testing.assert_allclose(np.sum(entry["chances"], 0), 255, atol=2)
        for row in entry["attention"]:
            kinds.add(row["kind"])
            right = (number, row["step"]) in rows
            assert right == (row["kind"] == "right")
            if right:
                whole = attributed.row(rows[number, row["step"]])
                kept = dict(zip(row["to"], row["weights"], strict=True))
                for t, weight in enumerate(whole):
                    assert kept.get(t, 0) / 10_000 == pytest.approx(weight, abs=1e-4 if t in kept else 0.0021)
    assert "right" in kinds


def test_predictions_of_all_steps_are_those_of_attribution(task):
    secret, data = task
    outlook = Outlook(secret, data)
    attributed = secret.attribute(data, decided=True)
    right = set(zip(attributed.episode.tolist(), attributed.step.tolist(), strict=True))
    for e in range(0, len(data), 17):
        chances = outlook.probabilities(e)
        np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
        hits = np.flatnonzero(chances.argmax(1) == secret.reward_classes.index(data[e].rewards))
        assert set(hits.tolist()) - {0} == {t for n, t in right if n == e}, "a first step has no past"


@pytest.mark.filterwarnings("ignore::UserWarning")  # so short a fit is warned of
def test_any_number_of_classes_and_what_is_not_credit(tmp_path):
    rng = np.random.default_rng(0)
    episodes = [
        {
            "observations": rng.random((7, 2)).astype(np.float32), "actions": rng.integers(0, 2, 6),
            "rewards": np.append(np.full(5, -1.0), rng.choice([-10.0, 2.0, 20.0])), "terminated": True,
        }
        for _ in range(40)
    ]  # fmt: skip
    data = srl.Trajectories.from_episodes(episodes, action_space=gym.spaces.Discrete(2))
    path = fitted(data).save(tmp_path / "m.safetensors")
    _, content = shown(tmp_path, path, data, trajectories=5)
    verdict = srl.Secret.load(path).report.verdict
    assert verdict != "credit" and content["doubt"].startswith(f"{verdict}: the ")
    assert content["model"].startswith("m.safetensors, seed 0, ")
    assert content["classes"] == {"names": ["-10", "-1", "+2", "+20"], "signs": [-1, -1, 1, 1]}
    for entry in content["trajectories"]:
        assert np.shape(entry["chances"]) == (4, 6) and len(entry["predicted"]) == 6


def test_the_maze_on_the_page_is_the_maze_that_was_played(task, tmp_path):
    secret, data = task
    _, content = shown(tmp_path, secret, data, trajectories=8)
    env = gym.make("secret_rl/Triggers-v0", **MAZES)
    for entry in content["trajectories"]:
        scene, episode = entry["scene"], data[entry["episode"]]
        env.reset(seed=int(episode.episode_annotations["seed"]))
        for count in range(len(episode) + 1):
            if count:
                env.step(int(episode.actions[count - 1]))
            maze = env.unwrapped.contents
            assert divmod(scene["agent"][count], scene["size"]) == tuple(maze.agent)
            for kind in ("triggers", "prizes"):
                there = {divmod(cell, scene["size"]) for cell, gone in scene[kind] if gone < 0 or count < gone}
                assert there == set(map(tuple, getattr(maze, kind)))
            assert entry["places"]["x"][count] == round(1000 * (maze.agent[1] + 1.5) / (maze.size + 2))


def test_a_mix_of_trajectories_is_chosen():
    rng = np.random.default_rng(0)
    lengths, successful = rng.integers(5, 50, 400), rng.random(400) < 0.1
    wrong = np.where(rng.random(400) < 0.2, rng.integers(1, 9, 400), 0)
    chosen = choose(lengths, successful, wrong, 40)
    assert len(set(chosen.tolist())) == 40 and (np.diff(chosen) > 0).all()
    assert successful[chosen].sum() >= 20 and (wrong[chosen] > 0).sum() >= 10
    assert lengths.argmax() in chosen and wrong.argmax() in chosen
    assert choose(lengths[:7], successful[:7], wrong[:7], 40).tolist() == list(range(7))
    data = srl.collect("secret_rl/Triggers-v0", 3000, seed=5, success_share=0.02, env_options=MAZES)
    pool = candidates(data, 10)
    assert len(pool) == 80 and data.successful[pool].sum() >= 40 and data.lengths[pool].max() == data.lengths.max()


def test_asking_for_too_many_is_capped_with_a_note(task, tmp_path):
    secret, data = task
    made, content = shown(tmp_path, secret, data, trajectories=10_000)
    assert len(made.episodes) == 200
    assert made.notes == tuple(content["notes"]) == ("10,000 trajectories were asked for; a page shows at most 200.",)
    made, _ = shown(tmp_path, secret, data, episodes=[7, 2, 7])
    assert made.episodes == (7, 2)
    for options, message in (
        ({"trajectories": 0}, "trajectories must be an integer of at least 1, got 0"),
        ({"episodes": [300]}, "episode 300 was asked for, but there are 300: from 0 to 299"),
        ({"episodes": []}, "no episodes were asked for"),
        ({"discount": 1.5}, "discount must be the agent's own"),
    ):
        with pytest.raises(ValueError, match=message):
            shown(tmp_path, secret, data, **options)


def test_a_model_of_other_data_is_refused(task, tmp_path):
    secret, _ = task
    other = srl.collect("secret_rl/Triggers-v0", 5, env_options={**MAZES, "window": 5})
    with pytest.raises(ValueError, match="the model was fitted on observations of .* these trajectories hold"):
        explore(secret, other, tmp_path / "page.html")
    with pytest.raises(RuntimeError, match="not fitted yet"):
        explore(srl.Secret(device="cpu"), other, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_potential_from_a_file_is_shown_and_one_that_does_not_fit_refused(task, tmp_path):
    secret, data = task
    srl.TablePotential({state: state / 1000 for state in range(300)}).save(tmp_path / "table.json")
    _, content = shown(tmp_path, secret, data, trajectories=3, potential=tmp_path / "table.json")
    assert "TablePotential" in content["potential"]
    for entry in content["trajectories"]:
        states = np.asarray(data[entry["episode"]].states)
        np.testing.assert_allclose(entry["potential"], states / 1000, rtol=1e-4)
    srl.TablePotential({"a": 1.0}).save(tmp_path / "other.json")
    with pytest.raises(ValueError, match="other states"):
        shown(tmp_path, secret, data, trajectories=3, potential=tmp_path / "other.json")


def vectors(count, steps=9, seed=0, **more):
    rng = np.random.default_rng(seed)
    return [
        {
            "observations": rng.normal(size=(steps + 1, 3)).astype(np.float32),
            "actions": rng.integers(2, size=steps),
            "rewards": np.where(np.arange(steps) == steps - 1, 1.0 if i % 2 else -1.0, 0.0),
            "terminated": True,
            **more,
        }
        for i in range(count)
    ]


def test_data_without_frames_shows_its_numbers_and_says_why(tmp_path):
    data = srl.Trajectories.from_episodes(vectors(12))
    made, content = shown(tmp_path, fitted(data), data)
    assert any("does not name its environment" in note for note in made.notes)
    for entry in content["trajectories"]:
        values = entry["values"]
        assert values["names"] == ["observation[0]", "observation[1]", "observation[2]"]
        seen = [*data[entry["episode"]].observations, data[entry["episode"]].final_observation]
        np.testing.assert_allclose(np.array(values["rows"]).T, seen, rtol=1e-4)
        assert "frames" not in entry and "scene" not in entry


def test_long_episodes_with_a_reward_at_every_step_stay_within_bounds(tmp_path):
    rewards = (np.arange(600) % 3 > 0).astype(float)
    data = srl.Trajectories.from_episodes([{**episode, "rewards": rewards} for episode in vectors(10, 600)])
    made, content = shown(tmp_path, fitted(data), data)
    assert made.bytes < 2_000_000
    for entry in content["trajectories"]:
        assert len(entry["attention"]) == 40 and entry["rows_left_out"] >= 360
        assert all(len(row["to"]) <= 60 for row in entry["attention"])
        assert len(entry["values"]["rows"]) * 601 <= 4_000 + 601


def test_pages_too_large_show_fewer_trajectories(task, tmp_path, monkeypatch):
    secret, data = task
    from secret_rl.report.explorer import making

    monkeypatch.setattr(making, "BYTES", 60_000)
    made, content = shown(tmp_path, secret, data)
    assert 1 <= len(made.episodes) < 50 and made.bytes <= 60_000
    assert any("longer pages load slowly" in note for note in content["notes"])


def pictures(count, steps=40, side=32):
    """Noisy pictures, none like another: they compress badly."""
    rng = np.random.default_rng(1)
    return [
        {
            "observations": rng.integers(0, 256, (steps + 1, side, side, 3), np.uint8),
            "actions": rng.integers(2, size=steps),
            "rewards": np.where(np.arange(steps) == steps - 1, 1.0 if i % 2 else -1.0, 0.0),
            "terminated": True,
        }
        for i in range(count)
    ]


def test_pictures_stay_within_the_bytes_and_those_that_matter_are_kept(tmp_path, monkeypatch):
    from secret_rl.report.explorer import making

    data = srl.Trajectories.from_episodes(pictures(10))
    secret = fitted(srl.Trajectories.from_episodes(pictures(10, steps=3)))
    made, content = shown(tmp_path, secret, data)
    assert made.bytes <= 2_000_000
    monkeypatch.setattr(making, "BYTES", 200_000)
    made, content = shown(tmp_path, secret, data)
    assert made.bytes <= 200_000
    assert any("frames are left out" in note for note in made.notes)
    for entry in content["trajectories"]:
        frames = entry["frames"]
        assert len(frames["at"]) == 41 and frames["left_out"] > 0
        kept = max(frames["at"]) + 1
        assert kept + frames["left_out"] == 41
        # What is after the reward is a frame of its own, and so are most of the steps that earned it.
        assert frames["at"].count(frames["at"][-1]) <= 3


def test_sheets_hold_each_distinct_frame_once():
    import base64
    from io import BytesIO

    from PIL import Image

    tones = [0, 80, 160, 80, 0, 240]
    seen = film(np.full((20, 30, 3), tone, np.uint8) for tone in tones)
    assert seen.at == [0, 1, 2, 1, 0, 3]
    found, level = sheet(seen, 100_000, [])
    assert level == 0 and found["left_out"] == 0
    picture = np.asarray(Image.open(BytesIO(base64.b64decode(found["sheet"].partition(",")[2]))).convert("RGB"))
    for at, tone in zip(found["at"], tones, strict=True):
        top, left = at // found["columns"] * found["pitch"][1], at % found["columns"] * found["pitch"][0]
        tile = picture[top : top + 20, left : left + 30]
        assert tile.shape == (20, 30, 3) and (tile == tone).all()
    large = film([np.zeros((1000, 500, 3), np.uint8)])
    assert large.frames[0].shape == (250, 125, 3)
    noise = Film([np.random.default_rng(i).integers(0, 256, (64, 64, 3), np.uint8) for i in range(30)], list(range(30)))
    small, _ = sheet(noise, 12_000, [17])
    assert len(base64.b64decode(small["sheet"].partition(",")[2])) <= 12_000
    assert len({small["at"][0], small["at"][17], small["at"][29]}) == 3
    assert small["at"].count(small["at"][17]) < 12


@pytest.mark.parametrize(
    ("space", "row", "expected"),
    [
        (gym.spaces.Box(0, 1, (3, 3, 3), np.uint8), np.ones((3, 3, 3), np.uint8), 255),
        (gym.spaces.Box(0, 255, (4, 4), np.uint8), np.full((4, 4), 7, np.uint8), 7),
        (gym.spaces.Box(-1.0, 1.0, (4, 5, 1), np.float32), np.zeros((4, 5, 1), np.float32), 127),
        (gym.spaces.Box(0, 255, (4, 4, 4), np.uint8), np.full((4, 4, 4), 9, np.uint8), 9),
    ],
)
def test_any_picture_becomes_rgb(space, row, expected):
    assert is_picture(space)
    rgb = as_rgb(space, row[None])
    assert rgb.shape == (1, *row.shape[:2], 3) and rgb.dtype == np.uint8 and (rgb == expected).all()
    assert not is_picture(gym.spaces.Box(0, 1, (3, 3, 7))) and not is_picture(gym.spaces.Discrete(3))


def test_frames_that_would_lie_are_not_shown(task, tmp_path):
    """The data says that it comes from other mazes than it does."""
    secret, data = task
    liar = data.with_meta(env_options={**MAZES, "triggers": 2})
    made, content = shown(tmp_path, secret, liar, trajectories=6)
    assert any(note.startswith("Mazes are not drawn: the environment") for note in made.notes)
    assert all("scene" not in entry and "frames" in entry for entry in content["trajectories"])
    made, content = shown(tmp_path, secret, data, trajectories=6, replay=False)
    assert made.notes == () and all("frames" in entry for entry in content["trajectories"])


def test_a_minigrid_with_heat_where_the_agent_was(tmp_path):
    from gymnasium.wrappers import FilterObservation

    name = "minigrid:MiniGrid-Empty-5x5-v0"
    data = srl.collect(lambda: FilterObservation(gym.make(name), ["image", "direction"]), 30, seed=2)
    secret = fitted(data)
    made, content = shown(tmp_path, secret, data, trajectories=4, env=name)
    assert content["actions"][:3] == ["left", "right", "forward"]
    assert not any("environment" in note for note in made.notes)
    env = gym.make(name)
    for entry in content["trajectories"]:
        episode = data[entry["episode"]]
        env.reset(seed=int(episode.episode_annotations["seed"]))
        for count in range(len(episode) + 1):
            if count:
                env.step(int(episode.actions[count - 1]))
            x, y = env.unwrapped.agent_pos
            assert (entry["places"]["x"][count], entry["places"]["y"][count]) == (200 * x + 100, 200 * y + 100)
        assert len(entry["frames"]["at"]) == len(episode) + 1


def alike(data):
    """Short episodes of the same spaces, to fit a model in no time."""
    rng = np.random.default_rng(0)
    shape = data.observation_space.shape
    episodes = [
        {
            "observations": rng.integers(0, 256, (4, *shape), np.uint8),
            "actions": rng.integers(4, size=3),
            "rewards": np.array([0.0, 0.0, i % 2 * 2 - 1]),
            "terminated": True,
        }
        for i in range(10)
    ]
    spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
    return srl.Trajectories.from_episodes(episodes, **spaces)


def test_a_map_of_rooms_with_what_was_taken_and_opened_when(tmp_path):
    from secret_rl.envs.keys_doors import Solver

    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", core=2, size=(40, 30), max_steps=400)
    data = srl.collect(env, 3, Solver(env), seed=4)
    maps = []
    for episode in data:
        env.reset(seed=int(episode.episode_annotations["seed"]))
        maps.append(rooms_map(env.unwrapped.puzzle, episode))
    env.close()
    for found, episode in zip(maps, data, strict=True):
        for thing, name in (("keys", "key_picked"), ("doors", "door_opened")):
            gone = sorted(entry[3] for entry in found["map"][thing] if entry[3] >= 0)
            assert gone == (np.flatnonzero(episode.annotations[name]) + 1).tolist()
    assert rooms_map(env.unwrapped.puzzle, data[0]) is None  # that of the last episode: another map
    made, content = shown(tmp_path, fitted(alike(data)), data)
    assert made.bytes < 2_000_000 and content["actions"][0] == "forward"
    for entry, found in zip(content["trajectories"], maps, strict=True):
        assert entry["map"] == json.loads(json.dumps(found["map"])) and entry["places"] == found["places"]
        assert set(entry["truth"]) >= {"key_picked", "door_opened"} and "held_key" not in entry["truth"]
        assert "held_key" in entry["known"]


def test_nothing_in_the_data_can_be_mistaken_for_markup():
    evil = "</script><!-- {{data}} {{script}} \u2028 <b>"
    html = page({"x": evil}, evil)
    assert unpack(html) == {"x": evil}
    assert html.count("</script>") == 2 and html.count("<!--") == 0 and "<b>" not in html
    assert re.search(r'http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;;', html)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)", html)


def test_the_command(task, tmp_path, capsys):
    secret, data = task
    secret.save(tmp_path / "model.safetensors")
    data[:40].save(tmp_path / "data")
    arguments = ["explore", str(tmp_path / "model.safetensors"), str(tmp_path / "data"), "--device", "cpu"]
    out = str(tmp_path / "page.html")
    assert main([*arguments, "--out", out, "--trajectories", "5000", "--title", "Mine"]) == 0
    printed = capsys.readouterr().out
    assert "40 trajectories" in printed and "at most 200" in printed
    assert unpack(Path(out).read_text(encoding="utf-8"))["title"] == "Mine"
    assert main([*arguments, "--out", out, "--episodes", "3", "1", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    for wrong, code, message in (
        (["--episodes", "77"], 1, "episode 77 was asked for"),
        (["--port", "70000"], 2, "port must be from 0 to 65535"),
        (["--potential", str(tmp_path / "none.json")], 1, "none.json"),
    ):
        assert main([*arguments, "--out", out, *wrong]) == code
        assert message in capsys.readouterr().err
    srl.collect("secret_rl/Triggers-v0", 3, env_options={**MAZES, "window": 5}).save(tmp_path / "other")
    assert main(["explore", arguments[1], str(tmp_path / "other"), "--out", out]) == 1
    assert "the model was fitted on observations" in capsys.readouterr().err


def test_the_command_serves_until_interrupted(task, tmp_path):
    secret, data = task
    secret.save(tmp_path / "model.safetensors")
    data[:10].save(tmp_path / "data")
    code = "import sys; from secret_rl.cli import main; sys.exit(main(sys.argv[1:]))"
    files = [str(tmp_path / name) for name in ("model.safetensors", "data")]
    command = [sys.executable, "-c", code, "explore", *files, "--out", str(tmp_path / "p.html"), "--serve"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as running:  # fmt: skip
        try:
            line = next(line for line in running.stdout if line.startswith("serving"))
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            with urlopen(address[0]) as answer:
                assert answer.read() == (tmp_path / "p.html").read_bytes()
            with socket.socket() as other:  # no other address of this machine answers
                other.settimeout(1)
                assert other.connect_ex(("127.0.0.2", int(address[1]))) != 0
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0
        finally:
            running.kill()
