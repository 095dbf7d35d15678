"""Pictures: too large to be kept as a table, read ahead or kept beside the model; convolutions as products."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from secret_rl.credit import Secret, TrainingOptions, memoryless, tokens
from secret_rl.credit.encoders import ImageEncoder, has_colours, observation_encoder, recoloured, with_levels
from secret_rl.credit.tokens import Tokens
from secret_rl.credit.training import Trainer
from secret_rl.trajectories import Trajectories
from secret_rl.trajectories.spaces import to_json

SPACE = spaces.Box(0, 255, (20, 24, 3), np.uint8)


@pytest.fixture(scope="module")
def pictures():
    """Episodes of noise in which a bright picture, once seen, makes the dark one at the end pay."""
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(24):
        length = int(rng.integers(4, 9))
        seen = rng.integers(80, 120, (length, *SPACE.shape)).astype(np.uint8)
        if number % 2:
            seen[rng.integers(length - 1)] += 100
        seen[-1] //= 8
        rewards = np.zeros(length)
        rewards[-1] = number % 2
        episodes.append({"observations": seen, "actions": rng.integers(0, 2, length), "rewards": rewards})
    return Trajectories.from_episodes(episodes, observation_space=SPACE, action_space=spaces.Discrete(2))


@pytest.fixture
def make_trainer(pictures, make_model, signs):
    def make(found=None, initialisation=0):
        model = make_model(SPACE, spaces.Discrete(2), initialisation, filters=(4, 4))
        options = TrainingOptions(steps=20, batch_size=6)
        found = Tokens.of(pictures, signs) if found is None else found
        return Trainer(model, found, np.arange(20), np.ones(20), options, 0, torch.device("cpu"))

    return make


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("shape", "filters"),
    [((30, 40, 3), (16, 16)), ((15, 20, 3), (8,)), ((11, 9, 3), (4, 5)), ((30, 40), (6, 6)), ((84, 84, 4), (4, 4))],
)
def test_a_convolution_as_one_product_is_the_convolution(shape, filters):
    torch.manual_seed(0)
    encoder = ImageEncoder({"type": "Box", "shape": list(shape), "low": 0, "high": 255, "dtype": "uint8"}, 8, filters)
    rows = torch.randint(0, 256, (5, *shape), dtype=torch.uint8)
    planes = (rows.float() * encoder.scale).reshape(5, *shape[:2], -1).permute(0, 3, 1, 2)
    torch.testing.assert_close(encoder.by_products(rows), encoder.convolutions(planes).flatten(1))


def test_batches_read_ahead_are_those_of_their_updates(make_trainer, monkeypatch):
    ahead = make_trainer()
    assert ahead.tokens.ids is None, "pictures are not kept as a table"
    losses = [ahead.train(4), ahead.train(5)]
    monkeypatch.setattr(Trainer, "_batch", lambda self, episodes: self.tokens.batch(episodes, self.device))
    plain = make_trainer()
    assert losses == [plain.train(4), plain.train(5)]
    assert same(ahead.state(), plain.state())


def test_training_on_pictures_goes_on_from_its_state_as_if_never_stopped(make_trainer):
    whole, part, resumed = make_trainer(), make_trainer(), make_trainer(initialisation=1)
    whole.train(9)
    part.train(3)
    resumed.train(2)  # what was read ahead for another update is not used
    resumed.restore(part.state(), part.step)
    resumed.train(6)
    assert same(resumed.state(), whole.state())


def test_rows_beside_the_model_make_the_same_batches(pictures, make_trainer, monkeypatch, signs):
    monkeypatch.setattr(tokens, "_ROWS_AT_A_TIME", 7)
    cpu = torch.device("cpu")
    read = Tokens.of(pictures, signs).weighted(np.linspace(0, 1, pictures.steps, dtype=np.float32))
    beside = read.moved(cpu)
    episodes = np.array([3, 0, 7])
    here, there = (found.batch(episodes) for found in (read, beside))
    real = torch.arange(here.index.shape[1]) < torch.from_numpy(read.lengths[episodes])[:, None]
    for mine, theirs in zip(here.rows, there.rows, strict=True):
        assert torch.equal(mine[here.index[real]], theirs[there.index[real]])
    assert torch.equal(here.classes, there.classes) and torch.equal(here.weights, there.weights)
    judged = [make_trainer(found).evaluate(np.arange(24)) for found in (read, beside)]
    np.testing.assert_allclose(*(e.log_probabilities for e in judged), rtol=1e-4, atol=1e-5)
    assert np.array_equal(*(e.confusion.counts for e in judged))
    some = np.array([5, 0, 9])
    for mine, theirs in zip(read.rows(some), beside.rows(some), strict=True):
        assert torch.equal(mine, theirs)
    other = beside.weighted(np.zeros(pictures.steps, np.float32))
    assert not other.batch(episodes).weights.any(), "weights are brought anew"
    losses = make_trainer(beside).train(3), make_trainer(read.moved(cpu)).train(3)
    assert losses[0] == losses[1]
    assert read.near(cpu) is read


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_store_of_pictures_is_learned_from_as_if_it_were_in_memory(pictures, tmp_path):
    options = {"filters": (4, 4), "units": 8, "steps": 6, "batch_size": 6, "validation": 0.2}
    stored = Trajectories.load(pictures.save(tmp_path / "pictures"))
    models = [Secret(**options).fit(data).model for data in (pictures, stored)]
    assert same(*(model.state_dict() for model in models))


KINDS = spaces.Box(0, 255, (3, 3, 2), np.uint8)  # as MiniGrid describes a view: what a place holds, and its colour
WALL, DOOR, KEY, BALL = 2, 4, 5, 6


def things(count, seed, shift=0):
    """Episodes in which a key, once seen, makes the door at the end pay, and a ball makes it cost."""
    rng = np.random.default_rng(seed)
    episodes = []
    for number in range(count):
        seen = np.full((6, *KINDS.shape), WALL, np.uint8)
        seen[..., 1] = rng.integers(0, 3, (6, 3, 3))
        seen[rng.integers(5), 1, 1, 0] = (KEY, BALL)[number % 2] + shift
        seen[-1, 1, 1, 0] = DOOR
        rewards = np.zeros(6)
        rewards[-1] = (1.0, -1.0)[number % 2]
        episodes.append({"observations": seen, "actions": rng.integers(0, 2, 6), "rewards": rewards})
    return Trajectories.from_episodes(episodes, observation_space=KINDS, action_space=spaces.Discrete(2))


def test_kinds_of_things_are_told_apart_and_kept_in_files(tmp_path, monkeypatch):
    """As shades of grey, 5 and 6 of 255 would look the same."""
    monkeypatch.setattr(memoryless, "_BATCH", 512)
    secret = Secret(units=32, filters=(8,), steps=400, device="cpu").fit(things(400, 0))
    assert secret.report.verdict == "credit"
    assert secret.specs[0]["levels"] == BALL + 1
    unseen = things(200, 1)
    assert secret.evaluate(unseen).accuracy[[0, 2]].min() > 0.9
    again = Secret.load(secret.save(tmp_path / "model.safetensors"), device="cpu")
    assert again.specs[0]["levels"] == BALL + 1
    np.testing.assert_array_equal(again.attribute(unseen).weights, secret.attribute(unseen).weights)
    larger = things(20, 2, shift=30)  # kinds that it has never seen
    assert secret.evaluate(larger).counts.sum() == 120
    np.testing.assert_array_equal(again.evaluate(larger).counts, secret.evaluate(larger).counts)


@pytest.mark.parametrize(
    ("values", "dtype", "levels"),
    [
        ((0, 2), np.uint8, 3),
        ((0, 15), np.int64, 16),
        ((0, 16), np.uint8, None),  # shades
        ((0, 1), np.uint8, None),  # bits are numbers as they are
        ((-1, 3), np.int64, None),
        ((0, 3), np.float32, None),
    ],
)
def test_few_whole_numbers_are_kinds_and_all_others_shades(values, dtype, levels):
    rows = np.zeros((4, 5, 5, 2), dtype)
    rows[0, 0, 0], rows[1, 2, 3] = values
    spec = to_json(spaces.Box(-99, 99, (5, 5, 2), dtype) if dtype != np.uint8 else spaces.Box(0, 255, (5, 5, 2), dtype))
    assert with_levels(spec, rows).get("levels") == levels
    nested = {
        "type": "Dict",
        "spaces": [["a", {"type": "Tuple", "spaces": [spec]}], ["b", to_json(spaces.Discrete(3))]],
    }
    found = with_levels(nested, {"a": (rows,), "b": np.zeros(4, np.int64)})
    assert found["spaces"][0][1]["spaces"][0].get("levels") == levels
    assert found["spaces"][1] == ["b", to_json(spaces.Discrete(3))]
    vector = to_json(spaces.Box(0, 9, (5,), np.int64))
    assert with_levels(vector, np.full((4, 5), 3)) == vector, "only pictures hold kinds of things"


@pytest.mark.parametrize("shape", [(3, 3, 2), (7, 7, 3), (5, 4)])
def test_each_kind_has_a_channel_of_its_own(shape):
    torch.manual_seed(0)
    spec = {"type": "Box", "shape": list(shape), "low": 0, "high": 255, "dtype": "uint8", "levels": 4}
    encoder = ImageEncoder(spec, 8, (5,))
    rows = torch.randint(0, 4, (6, *shape), dtype=torch.uint8)
    channels = shape[2] if len(shape) == 3 else 1
    pictures = torch.zeros(6, *shape[:2], channels, 4)
    for place in np.ndindex(6, *shape[:2]):
        for channel, kind in enumerate(rows[place].reshape(channels).tolist()):
            pictures[(*place, channel, kind)] = 1
    if encoder.is_product:
        features = torch.relu(encoder.convolutions(pictures.reshape(6, -1)))
    else:
        features = encoder.convolutions(pictures.flatten(3).permute(0, 3, 1, 2)).flatten(1)
    torch.testing.assert_close(encoder(rows), torch.relu(encoder.dense(features)))
    unseen = torch.where(rows == 3, 200, rows)
    assert torch.equal(encoder(unseen), encoder(rows)), "what was never seen is read as the last kind"
    assert not has_colours(encoder)


def test_three_kinds_of_things_are_no_colours():
    spec = {"type": "Box", "shape": [3, 3, 1], "low": 0, "high": 255, "dtype": "uint8", "levels": 3}
    assert not has_colours(ImageEncoder(spec, 8, (5,)))


RED, GREEN, BLUE = np.eye(3, dtype=np.uint8) * 200


def matching(pairs, copies, seed):
    """Episodes in which the last picture pays if a square of its colour was seen before, and costs otherwise."""
    rng = np.random.default_rng(seed)
    episodes = []
    for first, last in pairs * copies:
        seen = rng.integers(0, 40, (4, 3, 3, 3)).astype(np.uint8)
        seen[rng.integers(3), 1, 1] += first
        seen[-1, :, 0] += last
        rewards = np.array([0.0, 0.0, 0.0, 1.0 if np.array_equal(first, last) else -1.0])
        episodes.append({"observations": seen, "actions": np.zeros(4, np.int64), "rewards": rewards})
    space = spaces.Box(0, 255, (3, 3, 3), np.uint8)
    return Trajectories.from_episodes(episodes, observation_space=space, action_space=spaces.Discrete(2))


def test_what_holds_for_two_colours_is_known_of_the_third_when_colours_trade_places(monkeypatch):
    monkeypatch.setattr(memoryless, "_BATCH", 256)
    known = [(one, other) for one in (RED, GREEN) for other in (RED, GREEN)]
    new = [(BLUE, BLUE), (BLUE, RED), (RED, BLUE), (GREEN, BLUE), (BLUE, BLUE)]
    options = {"units": 32, "filters": (16,), "steps": 1200, "learning_rate": 1e-3}
    right = {}
    for recolour in (False, True):
        secret = Secret(**options, recolour=recolour, device="cpu")
        secret.fit(matching(known, 100, seed=0), progress=False)
        right[recolour] = secret.evaluate(matching(new, 20, seed=1)).accuracy[[0, 2]].mean()
        assert secret.evaluate(matching(known, 20, seed=2)).accuracy[[0, 2]].min() > 0.9
    assert right[True] > right[False] + 0.5, right


@pytest.mark.parametrize(
    "space", [SPACE, spaces.Dict(text=spaces.Discrete(4), seen=SPACE, grey=spaces.Box(0, 1, (9, 9)))]
)
def test_colours_trade_places_and_nothing_else_changes(space):
    encoder = observation_encoder(to_json(space), 8, (4,))
    assert has_colours(encoder) and not has_colours(observation_encoder(to_json(spaces.Discrete(4)), 8, (4,)))
    batch = [space.sample() for _ in range(6)]
    rows = torch_rows(space, batch)
    orders = set()
    for seed in range(40):
        changed = recoloured(encoder, rows, torch.Generator().manual_seed(seed))
        if isinstance(space, spaces.Dict):
            assert all(changed[key] is rows[key] for key in ("text", "grey"))
        one, other = (part["seen"] if isinstance(space, spaces.Dict) else part for part in (rows, changed))
        order = tuple(int(np.argmax([torch.equal(other[..., i], one[..., j]) for j in range(3)])) for i in range(3))
        assert torch.equal(other, one[..., list(order)])
        orders.add(order)
    assert len(orders) == 6, "every order comes up"


def torch_rows(space, batch):
    if isinstance(space, spaces.Dict):
        return {key: torch_rows(part, [row[key] for row in batch]) for key, part in space.items()}
    return torch.from_numpy(np.stack([np.asarray(row) for row in batch]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_there_must_be_colours_to_trade_places(pictures):
    grey = Trajectories(**{**vars(pictures), "observations": np.asarray(pictures.observations)[..., :1],
                           "observation_space": spaces.Box(0, 255, (20, 24, 1), np.uint8)})  # fmt: skip
    with pytest.raises(ValueError, match="recolour=True needs pictures of three colours"):
        Secret(recolour=True, steps=5, filters=(4,), device="cpu").fit(grey)
