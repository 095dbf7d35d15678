"""What comes from users is a whole number, and what comes from a file steers no terminal."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import secret_rl as srl
from secret_rl.checks import check_integer, printable
from secret_rl.progress import progress_bar

EVIL = "\x1b]0;evil\x07 \x9b31m \u202e \x7f \r \ud800"
STORED = EVIL.rstrip("\ud800")  # which no file of ours can hold
MAIN = "import sys; from secret_rl.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (0, ValueError, "count must be an integer of at least 1, got 0"),
        (2.0, TypeError, "count must be an integer of at least 1, got 2.0"),
        (True, TypeError, "got True"),
        ("3", TypeError, "got '3'"),
    ],
)
def test_what_is_no_whole_number_in_range_is_named(value, error, said):
    with pytest.raises(error, match=said):
        check_integer("count", value, 1)
    with pytest.raises(ValueError, match="count must be an integer from 1 to 4, got"):
        check_integer("count", np.int8(5), 1, 4)
    assert type(check_integer("count", np.int8(4), 1, 4)) is int


def test_only_what_steers_or_cannot_be_encoded_is_replaced():
    letters = "plain\ttext\nin lines äß 日本語 \N{NO-BREAK SPACE} 👩\N{ZERO WIDTH JOINER}🔬"
    assert printable(letters) == letters
    assert printable(EVIL) == "�]0;evil� �31m � � � �"
    unsafe = [range(32), range(0x7F, 0xA0), range(0xD800, 0xE000), range(0x202A, 0x202F), range(0x2066, 0x206A)]
    for letter in (chr(number) for numbers in unsafe for number in numbers):
        assert printable(f"a{letter}b") == (f"a{letter}b" if letter in "\n\t" else "a�b")


@pytest.fixture
def stored(tmp_path):
    """Trajectories whose file holds what it should not."""
    episode = {"observations": np.zeros((3, 2)), "actions": np.zeros(2, int), "rewards": np.ones(2), "terminated": True}
    meta = {"env_id": STORED, STORED: STORED, "drawn": STORED}
    data = srl.Trajectories.from_episodes([episode] * 3, meta=meta)
    data.save(tmp_path / "stored")
    return tmp_path / "stored"


def assert_tame(output: bytes, encoding: str = "utf-8") -> str:
    text = output.decode(encoding)
    assert printable(text) == text
    return text


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_info_shows_a_mark_in_place_of_what_steers_a_terminal(stored, options, encoding):
    words = [sys.executable, "-c", MAIN, "info", stored, *options]
    shown = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (shown.returncode, shown.stderr) == (0, b"")
    text = assert_tame(shown.stdout, encoding)
    if options:
        assert json.loads(text)["meta"] == {"env_id": STORED, STORED: STORED, "drawn": STORED}
    else:
        assert ("�]0;evil�" if encoding == "utf-8" else "?]0;evil?") in text


def test_errors_and_words_of_the_command_line_are_shown_so_too(tmp_path):
    (tmp_path / os.fsdecode(b"\x1b[31m\xff")).mkdir()
    for words in (["info", b"\x1b[31m\xff"], ["fit", b"\x1b[31m\xff", "--out", "x"], [b"\x1b[31m\xff"]):
        shown = subprocess.run([sys.executable, "-c", MAIN, *words], capture_output=True, cwd=tmp_path)
        assert shown.returncode in (1, 2)
        assert b"Traceback" not in shown.stderr and b"UnicodeEncodeError" not in shown.stderr
        if len(words) > 1:
            assert "�[31m�" in assert_tame(shown.stderr)


WARNING = f"""
import sys, warnings
import gymnasium as gym
import secret_rl.cli.data

def run(_):
    warnings.warn("of a file: " + {EVIL!a}, UserWarning, stacklevel=1)
    gym.logger.warn("of Gymnasium")

secret_rl.cli.data.Info.run = run
sys.exit(secret_rl.cli.main(["info", "x"]))
"""


def test_warnings_are_shown_so_too_and_without_colours():
    shown = subprocess.run([sys.executable, "-c", WARNING], capture_output=True, check=True)
    error = assert_tame(shown.stderr)
    assert "UserWarning: of a file: �]0;evil�" in error and "UserWarning: WARN: of Gymnasium\n" in error


def test_a_progress_bar_shows_what_is_going_on_so_too(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(True, "mazes") as tick:
        tick(EVIL, 1, 2)
    assert "�]0;evil�" in screen.getvalue()
    assert not any(letter in screen.getvalue() for letter in "\x07\x9b\u202e\ud800")


def test_trajectories_name_their_environment_so_too(stored):
    data = srl.Trajectories.load(stored)
    for text in (repr(data), str(data.summary()), repr(data.summary())):
        assert_tame(text.encode())
    assert data.summary().drawn is None, "no number"
    assert "�]0;evil�" in repr(data)
