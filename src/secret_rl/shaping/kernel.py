"""The compiled step of a table over whole numbers: lookup, payment and restart of every environment in one pass."""

from numba import njit, uintp


@njit(cache=True, inline="always")
def _look_up(values, first, state):
    """Phi of a state; ``values`` holds 0 at both ends for all that lie outside."""
    return values[uintp(min(max(state, first - 1), first + len(values) - 2) - first + 1)]


@njit(cache=True)
def pay(values, first, scale, discount, keep, states, last_states, terminated, truncated, before, rewards, out, masks):
    """One step of n environments that reset within it; ``before`` (n,) becomes Phi of the states they are in now.

    ``out`` (6, n) gets the shaped rewards, the shaping, and the two parts of the rewards where an episode goes on and
    where one ended; ``masks`` (2, n) tell where. Gives the number of episodes that ended.
    """
    shaped, shapings, told, told_shaping, last, last_shaping = out[0], out[1], out[2], out[3], out[4], out[5]
    going_on, ended = masks[0], masks[1]
    over = 0
    for i in range(len(states)):
        present, reward = scale * _look_up(values, first, states[i]), rewards[i]
        shaping = discount * present - before[i]
        going_on[i], told[i], told_shaping[i] = True, reward, shaping
        ended[i], last[i], last_shaping[i] = False, 0.0, 0.0
        if terminated[i] | truncated[i]:  # now and then: the present state is that of the next episode
            after = 0.0
            if not terminated[i] and keep:
                after = scale * _look_up(values, first, last_states[i])
            shaping = discount * after - before[i]
            going_on[i], told[i], told_shaping[i] = False, 0.0, 0.0
            ended[i], last[i], last_shaping[i] = True, reward, shaping
            over += 1
        before[i] = present
        shaped[i] = reward + shaping
        shapings[i] = shaping
    return over
