"""Progress bars: when they appear, what they show, and that there is one at a time."""

import io
import sys
import time

import pytest

from secret_rl import progress
from secret_rl.progress import no_bars, progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch):
    """Standard error as an interactive terminal; in the test itself, after pytest has put its own in place."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(progress, "_PATIENCE", 0.05)
    return screen


def test_what_takes_long_shows_how_far_it_is_and_the_time_that_remains(monkeypatch):
    screen, clock = terminal(monkeypatch), [0.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: clock[0])
    with progress_bar(None, "mazes") as tick:
        for done in range(4):
            tick("[slow] work", done, 400)
            clock[0] += 0.1
        time.sleep(0.2)  # until it appears
    shown = screen.getvalue().replace("\x1b[0m", "")
    assert "3/400 mazes" in shown and "[slow] work" in shown
    assert "0:00:40" in shown, "at ten a second"


def test_neither_what_is_soon_over_nor_a_file_is_shown_a_bar(monkeypatch):
    for screen, patience in ((terminal(monkeypatch), 60.0), (io.StringIO(), 0.0)):
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(progress, "_PATIENCE", patience)
        with progress_bar(None, "mazes") as tick:
            tick("quick", 1, 1)
        assert screen.getvalue() == ""


def test_a_step_that_takes_long_does_not_hide_the_bar(monkeypatch):
    screen = terminal(monkeypatch)
    with progress_bar(None, "mazes"):
        time.sleep(0.3)
    assert "mazes" in screen.getvalue()


def test_a_total_that_is_known_is_shown_from_the_start(monkeypatch):
    screen = terminal(monkeypatch)
    with progress_bar(None, "mazes", 12):
        time.sleep(0.3)
    assert "0/12" in screen.getvalue()


def test_there_is_one_bar_at_a_time_and_none_when_none_is_wanted(monkeypatch):
    screen = terminal(monkeypatch)
    with progress_bar(True, "outer"), progress_bar(True, "inner") as tick:
        tick("", 1, 2)
    assert "outer" in screen.getvalue() and "inner" not in screen.getvalue()
    with no_bars(), progress_bar(True, "unwanted"):
        pass
    assert "unwanted" not in screen.getvalue()
    with pytest.raises(ZeroDivisionError), progress_bar(True, "failing"):
        raise ZeroDivisionError
    with progress_bar(True, "after"):
        pass
    assert "after" in screen.getvalue()


def test_a_function_is_called_instead(monkeypatch):
    screen, calls = terminal(monkeypatch), []
    with progress_bar(lambda *news: calls.append(news), "mazes") as tick:
        tick("one", 1, 3)
    assert calls == [("one", 1, 3)] and screen.getvalue() == ""


def test_lines_printed_meanwhile_stay_on_standard_output(monkeypatch, capsys):
    screen = terminal(monkeypatch)
    with progress_bar(True, "mazes"):
        print("an answer")
    assert capsys.readouterr().out == "an answer\n"
    assert "an answer" not in screen.getvalue()
