"""What the number of threads changes: nothing that repeats with the same number, the last digits with another."""

import inspect

import numpy as np
import pytest
import torch

from secret_rl.credit import Secret
from secret_rl.sb3 import train

OPTIONS = {"seed": 0, "steps": 12, "batch_size": 16, "units": 32, "validation": 0.3, "device": "cpu"}


@pytest.fixture
def fitted(cues):
    """(weights, attention) of a fit with so many threads."""
    data, before = cues(60), torch.get_num_threads()

    def fit(threads):
        torch.set_num_threads(threads)
        secret = Secret(**OPTIONS).fit(data)
        weights = torch.cat([value.flatten().double() for value in secret.model.state_dict().values()]).numpy()
        return weights, secret.attribute(data).weights

    yield fit
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("quick")
def test_the_same_number_of_threads_gives_the_same_bits_and_another_the_same_credit(fitted):
    one, again, two = fitted(1), fitted(1), fitted(2)
    for mine, same, other in zip(one, again, two, strict=True):
        np.testing.assert_array_equal(mine, same)
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-3)


@pytest.mark.parametrize("promise", [Secret.fit, Secret.attribute, train])
def test_whoever_promises_equal_bits_names_the_threads(promise):
    assert "threads" in inspect.getdoc(promise)
