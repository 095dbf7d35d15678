"""The explorer, before any browser: what is on the page, what is left out, and what is refused."""

import base64
import json
import re
from io import BytesIO

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FilterObservation
from PIL import Image
from tests.report.conftest import MAZES, episodes, fitted, numbers

import secret_rl as srl
from secret_rl.credit.base import method_class
from secret_rl.report import explore
from secret_rl.report.explorer import build, overview
from secret_rl.report.explorer.build import choose, render_page, unpack
from secret_rl.report.explorer.pictures import as_rgb, is_picture, keys_doors_map, sheet
from secret_rl.shaping import ReplayShaping

pytestmark = [
    pytest.mark.xdist_group("explorer"),  # one model for all
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # fits this short warn
]


def shown(tmp_path, secret, data, **options):
    """The page, and its content with frames where they belong."""
    made = explore(secret, data, tmp_path / "page.html", progress=False, **options)
    content = unpack(made.path.read_text(encoding="utf-8"))
    for entry, frames in zip(content["trajectories"], content["frames"], strict=True):
        entry |= {} if frames is None else {"frames": frames}
    return made, content


def noise(rng, rows):
    """Pictures that compress badly."""
    return rng.integers(0, 256, (rows, 32, 32, 3), np.uint8)


def test_the_page_shows_what_the_model_and_the_data_say(task, tmp_path):
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
        episode, start = data[number], int(data.offsets[number])
        rewards = np.asarray(episode.rewards)
        assert dict(map(tuple, entry["rewards"])) == {t: rewards[t] for t in np.flatnonzero(rewards)}
        assert entry["truth"]["trigger_activated"] == np.flatnonzero(episode.annotations["trigger_activated"]).tolist()
        np.testing.assert_allclose(entry["shaping"], paid[start : start + len(episode)], rtol=1e-4, atol=1e-9)
        after = [*entry["potential"][1:], *([0.0] if episode.terminated else [])]
        for phi, following, shaping in zip(entry["potential"], after, entry["shaping"], strict=False):
            assert 0.9 * following - phi == pytest.approx(shaping, abs=1e-4)
        assert entry["wrong"] == np.flatnonzero(np.array(entry["predicted"]) - 1 != np.sign(rewards)).tolist()
        np.testing.assert_allclose(np.sum(entry["chances"], 0), 255, atol=2)
        for row in entry["attention"]:
            kinds.add(row["kind"])
            right = (number, row["step"]) in rows
            assert right == (row["kind"] == "right")
            if right:
                kept = dict(zip(row["to"], row["weights"], strict=True))
                for t, weight in enumerate(attributed.row(rows[number, row["step"]])):
                    assert kept.get(t, 0) / 10_000 == pytest.approx(weight, abs=1e-4 if t in kept else 0.0021)
    assert "right" in kinds


def test_any_number_of_classes_and_what_is_not_credit(tmp_path):
    data = episodes(40, numbers, 6, before=-1.0, last=(-10.0, 2.0, 20.0))
    path = fitted(data).save(tmp_path / "m.safetensors")
    _, content = shown(tmp_path, path, data, trajectories=5)
    verdict = srl.Secret.load(path).report.verdict
    assert verdict != "credit" and content["doubt"].startswith(f"{verdict}: the ")
    assert content["model"].startswith("m.safetensors, seed 0, ")
    assert content["classes"] == {"names": ["-10", "-1", "+2", "+20"], "signs": [-1, -1, 1, 1]}
    for entry in content["trajectories"]:
        assert np.shape(entry["chances"]) == (4, 6) and len(entry["predicted"]) == 6


def test_the_whole_data_set_is_counted_and_judged(task, tmp_path, monkeypatch):
    secret, data = task
    beside = {"uniform": method_class("uniform")().fit(data), "stored": secret.attribute(data)}
    made, content = shown(tmp_path, secret, data, trajectories=5, beside=beside)
    assert content["method"] == "secret" and content["gain"] == secret.report.history_gain
    over, judged = content["overview"], content["overview"]["quality"]
    assert over["counted"] == len(data) == 400 and np.sum(over["confusion"]) == data.steps
    found = secret.attribute(data)
    expected = srl.credit_quality(found, data)
    assert judged["truth"] == "trigger_activated" and judged["rows"] == expected.rows
    assert judged["average_precision"] == pytest.approx(expected.average_precision, abs=1e-4)
    stored, even = content["about_beside"][1]["quality"], content["about_beside"][0]["quality"]
    assert stored == judged and even["average_precision"] < judged["average_precision"]
    classes = secret.report.classes
    found = found[~np.isin(np.array(classes.names)[classes.index(found.reward)], secret.report.inferred)]
    row, _ = found.places()
    back = found.step[row] - (np.arange(len(row)) - found.offsets[row])
    assert [over["distances"][0]["from"], over["distances"][-1]["to"] >= back.max()] == [0, True]
    for each in over["distances"]:
        there = (each["from"] <= back) & (back <= each["to"]) & (found.reward[row] > 0)
        assert each["positive"] == pytest.approx(found.weights[there].sum() / len(found), abs=1e-4)
    monkeypatch.setattr(overview, "_MOST", 7)
    assert shown(tmp_path, secret, data, trajectories=5)[1]["overview"]["counted"] == 7
    made = explore(secret, data, tmp_path / "a b" / "page.html", trajectories=2, report=tmp_path / "r?.html")
    assert unpack(made.path.read_text(encoding="utf-8"))["report"] == "../r%3F.html"


def replayed(env, episode):
    """The environment after the reset and after each step of an episode."""
    env.reset(seed=int(episode.episode_annotations["seed"]))
    yield env.unwrapped
    for action in episode.actions:
        env.step(int(action))
        yield env.unwrapped


def test_the_maze_on_the_page_is_the_maze_that_was_played(task, tmp_path):
    secret, data = task
    srl.TablePotential({state: state / 1000 for state in range(300)}).save(tmp_path / "table.json")
    _, content = shown(tmp_path, secret, data, trajectories=8, potential=tmp_path / "table.json")
    assert "TablePotential" in content["potential"]
    env = gym.make("secret_rl/Triggers-v0", **MAZES)
    for entry in content["trajectories"]:
        scene = entry["scene"]
        np.testing.assert_allclose(entry["potential"], np.asarray(data[entry["episode"]].states) / 1000, rtol=1e-4)
        for count, now in enumerate(replayed(env, data[entry["episode"]])):
            maze = now.contents
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


def test_named_episodes_are_shown_and_bad_input_is_refused(task, tmp_path):
    secret, data = task
    made, _ = shown(tmp_path, secret, data, episodes=[7, 2, 7])
    assert made.episodes == (7, 2)
    made.path.unlink()
    other = srl.collect("secret_rl/Triggers-v0", 5, env_options={**MAZES, "window": 5})
    for model, trajectories, options, message in (
        (secret, data, {"trajectories": 0}, "trajectories must be an integer from 1 to 2000, got 0"),
        (secret, data, {"episodes": [400]}, "an episode must be an integer from 0 to 399, got 400"),
        (secret, data, {"episodes": []}, "the number of episodes must be an integer from 1 to 2000, got 0"),
        (secret, data, {"discount": 1.5}, "discount must be the agent's own"),
        (secret, other, {}, "the model was fitted on observations of .* there are"),
        (srl.Secret(device="cpu"), other, {}, "not fitted yet"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            shown(tmp_path, model, trajectories, **options)
    assert not made.path.exists()


def test_data_without_frames_shows_its_numbers_and_says_why(tmp_path):
    data = episodes(12, numbers)
    made, content = shown(tmp_path, fitted(data), data)
    assert any("does not name its environment" in note for note in made.notes)
    for entry in content["trajectories"]:
        assert entry["values"]["names"] == ["observation[0]", "observation[1]", "observation[2]"]
        seen = [*data[entry["episode"]].observations, data[entry["episode"]].final_observation]
        np.testing.assert_allclose(np.array(entry["values"]["rows"]).T, seen, rtol=1e-4)
        assert "frames" not in entry and "scene" not in entry


def test_large_pages_stay_within_bounds(task, tmp_path, monkeypatch):
    """Long episodes with a reward at every step, many trajectories, and pictures that compress badly."""
    data = episodes(10, numbers, 600, before=(0.0, 1.0, 1.0), last=(1.0,))
    made, content = shown(tmp_path, fitted(data), data)
    assert made.bytes < 2_000_000
    rows = sum(entry["left_out"]["rewards"] for entry in content["trajectories"])
    assert any(note.startswith(f"{rows:,} rewards and ") for note in made.notes)
    for entry in content["trajectories"]:
        assert len(entry["attention"]) == 40
        kept = {row["step"] for row in entry["attention"]}
        rewarded = [t for t, _ in entry["rewards"] if t not in kept]
        alarms = [t for t in entry["wrong"] if t not in kept | set(rewarded)]
        assert entry["left_out"] == {"rewards": len(rewarded), "alarms": len(alarms)}
        wrong = [t for t in entry["wrong"] if content["classes"]["signs"][entry["predicted"][t]] or t in kept]
        assert set(wrong[:12]) <= kept, "mispredicted ones come first"
        assert all(len(row["to"]) <= 60 for row in entry["attention"])
        assert len(entry["values"]["rows"]) * 601 <= 4_000 + 601
    pictures = fitted(episodes(10, noise, 3)), episodes(10, noise, 40)
    assert shown(tmp_path, *pictures)[0].bytes <= 2_000_000
    monkeypatch.setattr(build, "_FRAME_BYTES", 150_000)
    made, content = shown(tmp_path, *pictures)
    assert made.bytes <= 230_000 and any("frames are left out" in note for note in made.notes)
    for entry in content["trajectories"]:
        frames = entry["frames"]
        assert len(frames["at"]) == 41 == max(frames["at"]) + 1 + frames["left_out"] and frames["left_out"] > 0
        assert frames["at"].count(frames["at"][-1]) <= 3, "the frame after the reward is kept"


def test_sheets_hold_each_distinct_frame_once():
    tones = [0, 80, 160, 80, 0, 240]
    found = sheet((np.full((20, 30, 3), tone, np.uint8) for tone in tones), 100_000, [])
    assert found["at"] == [0, 1, 2, 1, 0, 3] and found["left_out"] == 0
    picture = np.asarray(Image.open(BytesIO(base64.b64decode(found["sheet"].partition(",")[2]))).convert("RGB"))
    for at, tone in zip(found["at"], tones, strict=True):
        top, left = at // found["columns"] * found["pitch"][1], at % found["columns"] * found["pitch"][0]
        tile = picture[top : top + 20, left : left + 30]
        assert tile.shape == (20, 30, 3) and (tile == tone).all()
    assert sheet([np.zeros((1000, 500, 3), np.uint8)], 100_000, [])["size"] == (125, 250)
    grains = [np.random.default_rng(i).integers(0, 256, (64, 64, 3), np.uint8) for i in range(30)]
    small = sheet(grains, 12_000, [17])
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
    assert not is_picture(gym.spaces.Box(0, 1, (3, 3, 4), np.uint8)), (
        "four kinds of things, not colours and their opacity"
    )
    assert not is_picture(gym.spaces.Box(0, 1, (3, 3, 7))) and not is_picture(gym.spaces.Discrete(3))


def test_frames_that_would_lie_are_not_shown(task, tmp_path):
    """The data says that it comes from other mazes than it does."""
    secret, data = task
    liar = data.with_meta(env_options={**MAZES, "triggers": 2})
    made, content = shown(tmp_path, secret, liar, trajectories=6)
    assert any(note.startswith("Some episodes are not shown as the environment draws them") for note in made.notes)
    assert all("scene" not in entry and "frames" in entry for entry in content["trajectories"])
    made, content = shown(tmp_path, secret, data, trajectories=6, replay=False)
    assert made.notes == () and all("frames" in entry for entry in content["trajectories"])


def test_a_minigrid_with_heat_where_the_agent_was(tmp_path):
    name = "minigrid:MiniGrid-Empty-5x5-v0"
    data = srl.collect(lambda: FilterObservation(gym.make(name), ["image", "direction"]), 30, seed=2)
    made, content = shown(tmp_path, fitted(data), data, trajectories=4, env=name)
    assert content["actions"][:3] == ["left", "right", "forward"]
    assert not any("environment" in note for note in made.notes)
    env = gym.make(name)
    for entry in content["trajectories"]:
        episode = data[entry["episode"]]
        for count, now in enumerate(replayed(env, episode)):
            x, y = now.agent_pos
            assert (entry["places"]["x"][count], entry["places"]["y"][count]) == (200 * x + 100, 200 * y + 100)
        assert len(entry["frames"]["at"]) == len(episode) + 1


def test_a_map_with_the_steps_at_which_keys_and_doors_were_used(tmp_path):
    from secret_rl.envs.keys_doors import Solver

    env = gym.make("secret_rl/KeysDoors-v0", preset="2x2-easy", core=2, size=(40, 30), max_steps=400)
    data = srl.collect(env, 3, Solver(env), seed=4)
    maps = []
    for episode in data:
        env.reset(seed=int(episode.episode_annotations["seed"]))
        maps.append(keys_doors_map(env.unwrapped.puzzle, episode))
    env.close()
    for found, episode in zip(maps, data, strict=True):
        for thing, name in (("keys", "key_picked"), ("doors", "door_opened")):
            used = sorted(entry[3] for entry in found["map"][thing] if entry[3] >= 0)
            assert used == (np.flatnonzero(episode.annotations[name]) + 1).tolist()
    with pytest.raises(ValueError, match="of other maps"):  # the map of the last episode is another
        keys_doors_map(env.unwrapped.puzzle, data[0])
    spaces = {"observation_space": data.observation_space, "action_space": data.action_space}
    short = episodes(10, lambda rng, rows: rng.integers(0, 256, (rows, 30, 40, 3), np.uint8), 3, **spaces)
    made, content = shown(tmp_path, fitted(short), data)
    assert made.bytes < 2_000_000 and content["actions"][0] == "forward"
    for entry, found in zip(content["trajectories"], maps, strict=True):
        assert entry["map"] == json.loads(json.dumps(found["map"])) and entry["places"] == found["places"]
        assert set(entry["truth"]) >= {"key_picked", "door_opened"} and "held_key" not in entry["truth"]


def test_nothing_in_the_data_can_be_mistaken_for_markup():
    evil = "</script><!-- {{ data }} {% raw %} \u2028 <b>"
    html = render_page({"title": evil})
    assert unpack(html) == {"title": evil}
    assert html.count("</script>") == 2 and html.count("<!--") == 0 and "<b>" not in html and len(html) < 130_000
    assert "Content-Security-Policy\" content=\"default-src 'none';" in html
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)", html)
