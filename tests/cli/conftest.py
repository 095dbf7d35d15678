"""Trajectories and a model for the commands."""

import shutil

import pytest
from tests.quick import quick_fits

import secret_rl as srl

OPTIONS = {"size": 3, "triggers": 1, "max_steps": 12}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with trajectories of random mazes and of one maze, and a model."""
    folder = tmp_path_factory.mktemp("made")
    for name, options in {"mazes": {}, "target": {"layout_seed": 5}}.items():
        data = srl.collect("secret_rl/Triggers-v0", 200, success_share=0.3, env_options={**OPTIONS, **options})
        data.save(folder / name)
    options = {"steps": 600, "units": 32, "learning_rate": 0.005, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch, updates=300)
        more = srl.collect("secret_rl/Triggers-v0", 2000, success_share=0.3, env_options=OPTIONS)
        srl.Secret(**options).fit(more).save(folder / "m.safetensors")
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A working folder with what was made; fits are quick."""
    for path in made.iterdir():
        shutil.copytree(path, tmp_path / path.name) if path.is_dir() else shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    quick_fits(monkeypatch)
    return tmp_path
