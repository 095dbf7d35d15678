"""Views of environments and stored trajectories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from secret_rl.trajectories import Trajectories
from secret_rl.views.kinds import View, as_views, is_own, view_to_json

ViewsLike = View | Mapping[str, Any] | Sequence[View | Mapping[str, Any]]


class ViewObservation(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """An environment seen through one or several views, one after another.

    >>> import gymnasium as gym, secret_rl
    >>> from secret_rl.views import CropView, ViewObservation
    >>> env = ViewObservation(gym.make("secret_rl/Triggers-v0", window=7), CropView(3))
    >>> env.observation_space.shape, env.reset(seed=0)[0].shape
    ((3, 3, 3), (3, 3, 3))
    >>> gym.make(env.spec).observation_space.shape
    (3, 3, 3)
    """

    def __init__(self, env: gym.Env[Any, Any], views: ViewsLike) -> None:
        self.views = as_views(views)
        # As JSON, so that env.spec.to_json() holds the views.
        RecordConstructorArgs.__init__(self, views=[view_to_json(v) if is_own(v) else v for v in self.views])
        gym.ObservationWrapper.__init__(self, env)
        self.observation_space = self.views.space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        """What the views leave of it."""
        return self.views.one(observation)


def apply_view(data: Trajectories, *views: View) -> Trajectories:
    """The same episodes, seen through ``views`` one after another.

    Only the observations, the final ones and their space change, to what an environment wrapped in
    ``ViewObservation`` would have given; ``meta["views"]`` describes the views. What is cropped or masked is a copy in
    memory: for data that does not fit there, give it one of ``data.batches()`` at a time.

    >>> import secret_rl as srl
    >>> from secret_rl.views import CropView, apply_view
    >>> data = srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 7})
    >>> cropped = apply_view(data, CropView(3))
    >>> cropped.equals(srl.collect("secret_rl/Triggers-v0", 10, env_options={"window": 3}))
    True
    >>> cropped.meta["views"]
    [{'kind': 'CropView', 'window': 3, 'key': None}]
    """
    applied = as_views(views)
    if not applied:
        return data
    return replace(
        data,
        observation_space=applied.space(data.observation_space),
        observations=applied.rows(data.observations),
        final_observations=None if data.final_observations is None else applied.rows(data.final_observations),
        meta={**data.meta, "views": [*data.meta.get("views", []), *map(view_to_json, applied)]},
        trusted=all(map(is_own, applied)),
    )
