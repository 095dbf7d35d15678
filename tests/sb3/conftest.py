"""Nothing here runs without Stable-Baselines3 and sb3-contrib."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("stable_baselines3") and find_spec("sb3_contrib") else ["*.py"]
