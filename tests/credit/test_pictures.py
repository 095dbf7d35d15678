"""Pictures: too large to be kept as a table, read ahead or kept beside the model; convolutions as products."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from secret_rl.credit import Confusion, Secret, TrainingOptions, fitting, tokens
from secret_rl.credit.encoders import ImageEncoder, has_colours, observation_encoder, recoloured
from secret_rl.credit.options import Weights
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
def make_trainer(pictures, make_model):
    def make(found=None, initialisation=0):
        model = make_model(SPACE, spaces.Discrete(2), initialisation, filters=(4, 4))
        options = TrainingOptions(steps=20, batch_size=6)
        found = Tokens.of(pictures) if found is None else found
        return Trainer(model, found, np.arange(20), (0.3, 0.3, 0.4), options, 0, torch.device("cpu"))

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


def test_rows_beside_the_model_make_the_same_batches(pictures, make_trainer, monkeypatch):
    monkeypatch.setattr(tokens, "_ROWS_AT_A_TIME", 7)
    cpu = torch.device("cpu")
    read = Tokens.of(pictures)
    beside = read.moved(cpu)
    here, there = (found.batch(np.array([3, 0, 7])) for found in (read, beside))
    real = torch.arange(here.index.shape[1]) < here.lengths[:, None]
    for name in ("observations", "actions"):
        rows = [getattr(batch, name)[batch.index[real]] for batch in (here, there)]
        assert torch.equal(*rows), name
    assert torch.equal(here.classes, there.classes) and torch.equal(here.lengths, there.lengths)
    judged = [make_trainer(found).evaluate(np.arange(24)) for found in (read, beside)]
    assert judged[0].loss == pytest.approx(judged[1].loss) and np.array_equal(*(e.confusion.counts for e in judged))
    alone = replace(beside, offsets=np.arange(len(read.rewards) + 1))
    assert torch.equal(alone.batch(np.array([5])).observations[0], torch.from_numpy(pictures.observations[5]))
    losses = make_trainer(beside).train(3), make_trainer(read.moved(cpu)).train(3)
    assert losses[0] == losses[1]
    assert read.near(cpu) is read


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_store_of_pictures_is_learned_from_as_if_it_were_in_memory(pictures, tmp_path):
    options = {"filters": (4, 4), "units": 8, "steps": 6, "batch_size": 6, "class_weights": (0.3, 0.3, 0.4)}
    stored = Trajectories.load(pictures.save(tmp_path / "pictures"))
    models = [Secret(validation=0.2, restarts=0, **options).fit(data).model for data in (pictures, stored)]
    assert same(*(model.state_dict() for model in models))


def test_with_one_sign_mistakes_are_counted_by_weight_and_with_both_by_class():
    """A mean over classes would prefer the predictor that calls every door a success."""
    judge = object.__new__(fitting.Fitting)
    judge._held_out_counts = np.array([0, 9_900, 100])
    hasty = Confusion(np.array([[0, 0, 0], [0, 9_840, 60], [0, 4, 96]]))
    careful = Confusion(np.array([[0, 0, 0], [0, 9_890, 10], [0, 12, 88]]))
    judge._both_signs = False
    even, paper = Weights(0.5, 0.5, 0.5), Weights(0.499, 0.02, 0.499)
    assert judge._mistakes(hasty, even) == pytest.approx(64 / 10_000)
    assert judge._mistakes(careful, even) == pytest.approx(22 / 10_000)
    assert judge._mistakes(hasty, paper) < judge._mistakes(careful, paper)
    assert judge._alike(0.0024, 0.0022) and not judge._alike(0.0025, 0.0022)
    nothing_held_out = Weights(1.0, 0.0, 0.0)
    assert judge._mistakes(hasty, nothing_held_out) == pytest.approx(1 - hasty.balanced_accuracy)
    judge._both_signs = True
    assert judge._mistakes(hasty, even) == pytest.approx(1 - hasty.balanced_accuracy)
    assert judge._alike(0.104, 0.1) and not judge._alike(0.106, 0.1)


RED, GREEN, BLUE = np.eye(3, dtype=np.uint8) * 200


def matching(pairs, copies, seed):
    """Episodes in which the last picture pays if a square of its colour was seen before, and costs otherwise."""
    rng = np.random.default_rng(seed)
    episodes = []
    for first, last in pairs * copies:
        seen = rng.integers(0, 40, (4, 12, 12, 3)).astype(np.uint8)
        seen[rng.integers(3), 3:9, 3:9] += first
        seen[-1, :, :5] += last
        rewards = np.array([0.0, 0.0, 0.0, 1.0 if np.array_equal(first, last) else -1.0])
        episodes.append({"observations": seen, "actions": np.zeros(4, np.int64), "rewards": rewards})
    space = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    return Trajectories.from_episodes(episodes, observation_space=space, action_space=spaces.Discrete(2))


def test_what_holds_for_two_colours_is_known_of_the_third_when_colours_trade_places():
    known = [(one, other) for one in (RED, GREEN) for other in (RED, GREEN)]
    new = [(BLUE, BLUE), (BLUE, RED), (RED, BLUE), (GREEN, BLUE), (BLUE, BLUE)]
    options = {"units": 32, "filters": (8,), "steps": 400, "batch_size": 32, "restarts": 0, "learning_rate": 3e-3}
    right = {}
    for recolour in (False, True):
        secret = Secret(**options, recolour=recolour, class_weights="paper", device="cpu")
        secret.fit(matching(known, 40, seed=0), progress=False)
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
