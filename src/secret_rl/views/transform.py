"""Views of stored trajectories."""

from dataclasses import replace
from typing import Any

from secret_rl.trajectories import Trajectories
from secret_rl.views.described import as_views, is_own, view_to_json
from secret_rl.views.kinds import View


def apply_view(data: Trajectories, *views: View) -> Trajectories:
    """The same episodes, seen through ``views`` one after another.

    Only the observations, the final ones and their space change, to what an environment wrapped in
    ``ViewObservation`` would have given; ``meta["views"]`` tells of it. What is cropped or masked is a copy in
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
    space, seen, last_seen = data.observation_space, data.observations, data.final_observations
    for view in applied:
        space = view.space(space)
        seen = view.rows(seen)
        last_seen = None if last_seen is None else view.rows(last_seen)
    descriptions: list[dict[str, Any]] = [*data.meta.get("views", []), *map(view_to_json, applied)]
    return replace(
        data,
        observations=seen,
        final_observations=last_seen,
        observation_space=space,
        meta={**data.meta, "views": descriptions},
        trusted=all(map(is_own, applied)),
    )
