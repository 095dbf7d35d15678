"""What the model says of any step, rewarded or not, and where it looks: for people who look back at it."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from secret_rl.credit.model import Dropout
from secret_rl.credit.tokens import Tokens

if TYPE_CHECKING:
    from secret_rl.credit.secret import Secret
    from secret_rl.trajectories import Trajectories

_ROWS_AT_A_TIME = 512  # bounds memory for long episodes: a row holds the scores of all steps before it


class Outlook:
    """Predictions and attention of a fitted model, one episode at a time.

    >>> import secret_rl as srl
    >>> data = srl.collect("secret_rl/Triggers-v0", 200, env_options={"triggers": 0, "size": 3}, success_share=0.5)
    >>> secret = srl.Secret(seed=0, steps=20, units=16, validation=0.2).fit(data, progress=False)
    >>> outlook = Outlook(secret, data)
    >>> outlook.probabilities(0).shape == (len(data[0]), len(secret.reward_classes))
    True
    """

    def __init__(self, secret: "Secret", data: "Trajectories") -> None:
        self._model, self._device = secret.fitted_for(data).eval(), secret.device
        self._tokens = Tokens.of(data, secret.reward_classes)

    def probabilities(self, episode: int) -> NDArray[np.float32]:
        """(steps, class) how likely the reward of each step is of each class of the model."""
        return self._look(episode, np.arange(int(self._tokens.lengths[episode])))[0]

    def attention(self, episode: int, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """(rows, all steps) attention of some steps of an episode to the steps before them; rows sum to 1."""
        return self._look(episode, np.asarray(steps, np.int64))[1]

    @torch.no_grad()
    def _look(self, episode: int, steps: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        batch = self._tokens.batch(np.array([episode]), self._device)
        encoded = self._model.prepare(self._model.encode(batch.rows, Dropout(None)))
        said, seen = [], []
        for first in range(0, len(steps), _ROWS_AT_A_TIME):
            times = torch.from_numpy(steps[None, first : first + _ROWS_AT_A_TIME]).to(self._device)
            prediction, _, _ = self._model.predict_rows(encoded, batch.index, times)
            said.append(prediction.logits[0].softmax(-1).cpu().numpy())
            seen.append(prediction.attention[0].cpu().numpy())
        return np.concatenate(said), np.concatenate(seen)
