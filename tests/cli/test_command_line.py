"""The command line itself: exit codes, errors in one line, signals, pipes, completion, and commands of plug-ins."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import gymnasium as gym
import pytest
import torch

import secret_rl as srl
from secret_rl.cli import command as registry
from secret_rl.cli import main
from secret_rl.cli.command import OURS, commands, find_command, summaries
from secret_rl.cli.completion import candidates
from secret_rl.cli.data import Info

COMMAND = Path(sys.executable).parent / "secret-rl"
ALIKE = {**os.environ, "OMP_NUM_THREADS": "1"}  # sums of several threads are rounded otherwise than those of one
# The command, in a process of its own with quick fits.
QUICKLY = [
    sys.executable, "-c",
    f"import sys, pytest; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    "from tests.quick import quick_fits; quick_fits(pytest.MonkeyPatch()); "
    "from secret_rl.cli import main; sys.exit(main())",
]  # fmt: skip
FIT = ["--steps", "300", "--evaluate-every", "10", "--units", "16", "--batch-size", "32", "--device", "cpu"]


def started(*words):
    """The command as a process of its own, which a real signal can reach."""
    return subprocess.Popen(
        [*QUICKLY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ALIKE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip


def wait_until(true, running):
    while running.poll() is None and not true():
        time.sleep(0.02)


def test_version_and_help_and_signals_as_they_were(capsys):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, ["--version"]).result() == 0, "handlers can be set in the main thread only"
    for handler in (signal.SIG_IGN, signal.SIG_DFL):
        before = signal.signal(signal.SIGTERM, handler)
        assert main(["--version"]) == 0
        assert signal.signal(signal.SIGTERM, before) is handler
    capsys.readouterr()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"secret-rl {srl.__version__}\n"
    assert main(["--help"]) == main([]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    shown = " ".join(shown.split())
    assert "0 done, 1 refused or failed, 2 wrong usage, 130 interrupted, 143 terminated" in shown
    assert 'eval "$(secret-rl --print-completion bash)"' in shown and "--version" in shown


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (1, ["info", "nowhere"], "nowhere is not a folder"),
        (1, ["collect", "MiniGrid-Unlock-v0", "--out", "x"], "doesn't exist: write minigrid:MiniGrid-Unlock-v0"),
        (1, ["learn", "Nowhere-v3", "--out", "x"], "an id of another package is written module:Id"),
        (
            1,
            ["collect", "CartPole-v1", "--out", "x", "--success-share", "2"],
            "--success-share must lie in (0, 1], got",
        ),
        (2, ["colect"], "there is no command 'colect': did you mean collect?\nsee secret-rl --help"),
        (
            2,
            ["collect", "--episods", "3"],
            "no option --episods: did you mean --episodes?\nsee secret-rl collect --help",
        ),
        (2, ["collect"], "secret-rl: ENV and --out PATH are missing\nsee secret-rl collect --help"),
        (2, ["quality", "m"], "secret-rl: DATA is missing\n"),
        (2, ["fit", "d", "--out", "m", "--method", "rudr"], "--method has no 'rudr': did you mean rudder?\n"),
        (2, ["fit", "d", "--out", "m", "--steps"], "--steps takes a value\n"),
        (2, ["fit", "d", "--out", "m", "--seed", "x"], "--seed takes a whole number, got 'x'\n"),
        (2, ["fit", "d", "--out", "m", "--units", "3"], "--units must be an even number of at least 2, got 3\n"),
        (2, ["fit", "d", "e", "--out", "m"], "nothing takes e\n"),
        (1, ["collect", "secret_rl/Triggers-v0", "--out", "x", "--option", "window=2"], "window must be odd"),
        (1, ["collect", "Nowhere-v3", "--out", "x"], "Nowhere"),
        (1, ["play", "--option", "size=1"], "a 1x1 grid has 1"),
        (2, ["collect"], "secret-rl collect --help"),
        (2, ["fit", "mazes", "--out", "m", "--steps", "0"], "steps must be at least 1, got 0"),
        (2, ["collect", "secret_rl/Triggers-v0", "--out", "x", "--option", "size"], "KEY=VALUE words, got 'size'"),
        (2, ["learn", "FrozenLake-v1", "--seeds", "1", "--out", "x"], "--seeds must be at least 2, for intervals, got"),
        (2, ["demo", "--out", "x", "--mazes", "0"], "--mazes must be at least 1, got 0\nsee secret-rl demo --help"),
        (2, ["demo", "--out", "x", "--mazes", "1", "--seeds", "1"], "raise --mazes or --seeds"),
        (2, ["report"], "see secret-rl report --help"),
        (2, ["--print-completion", "tcl"], "takes one of bash, zsh, fish, got tcl\nsee secret-rl --help"),
    ],
)
def test_refusals_name_the_remedy_and_leave_nothing(code, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in gym.registry if name.startswith("MiniGrid")]:  # where other tests have imported it
        monkeypatch.delitem(gym.registry, name)
    try:
        found = main(arguments)
    except SystemExit as leaving:
        found = leaving.code
    error = capsys.readouterr().err
    assert (found, message in error, "Traceback" in error) == (code, True, False), error
    assert len([line for line in error.splitlines() if "Warning" not in line]) == code, "one line, and where to read on"
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_commands_says_what_their_help_says():
    for name, (module, summary) in OURS.items():
        cls = find_command(name)
        assert cls.__module__ == f"secret_rl.cli.{module}" and summary.endswith(".") and cls.__doc__, name
        assert len(f"  {name:9}  {summary}") <= 80


PLUGIN = '''
from tyro.conf import Positional
from secret_rl.cli.command import Command, command

@command("shout")
class Shout(Command):
    """Print a word in capitals."""

    word: Positional[str]  # The word.

    def run(self) -> None:
        self.answer(self.word.upper(), {"word": self.word.upper()})
'''
OTHERS = '''from secret_rl.credit import register_method
from secret_rl.credit.references import Uniform
from secret_rl.shaping import register_kind


@register_method("blind")
class Blind(Uniform):
    """Credit that looks at nothing."""


@register_kind("hurry", "minus a hundredth for every step to come", needs_credit=False)
def hurry(evidence, visits): ...
'''


def install(folder, name, code, entry_points):
    """A package with plug-ins."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """An installed package with a command, and with one that cannot be loaded."""
    install(tmp_path, "shouting", PLUGIN, "[secret_rl.commands]\nshout = shouting\nbroken = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    caches = (summaries, registry._of_plugins)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()
    sys.modules.pop("shouting", None)


def test_a_plug_in_adds_a_command_with_one_file(plug_in, capsys):
    with pytest.warns(UserWarning, match="commands: 'broken' cannot be loaded from no_such_module: No module"):
        known = commands()
    assert "shout" in known and "demo" in known and "broken" not in known
    for words in (["--help"], ["shout", "--help"]):
        with suppress(SystemExit):
            assert main(words) == 0
        shown = capsys.readouterr().out
        assert "shout" in shown and "Print a word in capitals." in shown
    assert main(["shout", "hey", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"word": "HEY"}
    assert candidates(["sh"]) == ["shout"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["co"], {"collect"}),
        (["--ver"], {"--version"}),
        (["--print-completion", "b"], {"bash"}),
        (["collect", "secret_rl/"], {"secret_rl/Triggers-v0", "secret_rl/KeysDoors-v0"}),
        (["learn", "--seeds", "3", "FrozenL"], {"FrozenLake-v1", "FrozenLake8x8-v1"}),
        (["learn", "FrozenLake-v1", "--se"], {"--seeds"}),
        (["learn", "FrozenLake-v1", "--seeds", "F"], set()),
        (["explore", "m", "data", "--env", "MountainCarC"], {"MountainCarContinuous-v0"}),
        (["explore", "--no-r"], {"--no-replay"}),
        (["fit", "--method", "secret-p"], {"secret-paper"}),
        (["fit", "--evaluate"], {"--evaluate-every"}),
        (["benchmark", "--methods", "oracle", "rud"], {"rudder", "rudder-transformer"}),
        (["quality", "m", "data", "--events", ""], {"all", "any"}),
        (["info", ""], set()),  # the shell completes files
        (["nothing", ""], set()),
    ],
)
def test_completion_knows_commands_options_methods_and_environments(words, expected):
    assert set(candidates(words)) == expected


def test_bash_completes_words_with_the_script(tmp_path):
    (tmp_path / "mazes").mkdir()
    code = f"""
export PATH={COMMAND.parent}:$PATH
eval "$(secret-rl --print-completion bash)"
COMP_WORDS=(secret-rl fit mazes --method secret-p) COMP_CWORD=4; _secret_rl; echo "${{COMPREPLY[*]}}"
COMP_WORDS=(secret-rl fit ma) COMP_CWORD=2; _secret_rl; echo "${{#COMPREPLY[@]}} then $(complete -p secret-rl)"
"""
    shown = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert shown.stdout.splitlines() == ["secret-paper", "0 then complete -o default -F _secret_rl secret-rl"]


START = """
import sys, time
sys.argv = ["secret-rl", *{words!r}]
from secret_rl.cli import main
try:
    main()
finally:
    print(sorted({{"torch", "numpy", "gymnasium", "numba", "tyro", "rich"}} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ([], []),
        (["--help"], []),
        (["--version"], []),
        (["--print-completion", "bash"], []),
        (["--complete", "f"], []),
        (["info", "--help"], ["tyro"]),
        (["fit", "--help"], ["numpy", "tyro"]),
        (["demo", "--help"], ["numpy", "tyro"]),
        (["learn", "--help"], ["numpy", "tyro"]),
    ],
)
def test_start_up_imports_nothing_that_is_slow(words, needed):
    run = [sys.executable, "-c", START.format(words=words)]
    shown = subprocess.run(run, capture_output=True, text=True, check=True)
    assert shown.stderr.strip() == str(needed) and shown.stdout


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["--print-completion", "bash"]])
def test_start_up_takes_less_than_a_third_of_a_second_of_cpu(words):
    def seconds():
        before = os.times()
        subprocess.run([COMMAND, *words], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])  # user and system time of children

    assert min(seconds() for _ in range(3)) < 0.3


def test_a_plug_in_adds_a_credit_method_and_a_kind_of_potential(tmp_path):
    install(tmp_path, "others", OTHERS, "[secret_rl.credit]\nblind = others\n[secret_rl.potentials]\nx = others\n")
    for command, option, name in (("fit", "--method", "blind"), ("potential", "--kind", "hurry")):
        code = f"from secret_rl.cli import main; main([{command!r}, '--help'])"
        run = [sys.executable, "-W", "error::UserWarning", "-c", code]
        shown = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert name in shown.stdout.partition(option)[2].partition("--")[0], shown


def assert_stopped(running, number, code, last):
    """A signal ends the command with an exit code, the last word, and no traceback."""
    running.send_signal(number)
    _, error = running.communicate(timeout=60)  # on a busy machine
    assert (running.returncode, error.splitlines()[-1:], "Traceback" in error) == (code, last, False), error


@pytest.mark.slow
def test_a_fit_that_ctrl_c_interrupts_goes_on_to_the_same_model(here):
    command = ["fit", "mazes", *FIT, "--out"]
    state = Path("new.safetensors.partial/state.json")
    running = started(*command, "new.safetensors")
    wait_until(state.is_file, running)
    assert_stopped(running, signal.SIGINT, 130, ["interrupted: the same command goes on where this one stopped"])
    assert state.is_file() and not Path("new.safetensors").exists()
    assert not json.loads(Path("new.run/run.json").read_text())["finished"]

    shown, _ = started(*command, "new.safetensors", "--json").communicate()
    assert started(*command, "whole.safetensors").communicate() and not state.parent.exists()
    one, other = (srl.Secret.load(f"{name}.safetensors", device="cpu") for name in ("new", "whole"))
    for name, tensor in other.model.state_dict().items():
        assert torch.equal(one.model.state_dict()[name], tensor), name
    assert {**json.loads(shown), "seconds": 0} == {**other.report.to_json(), "seconds": 0}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path, workers):
    many = ["--episodes", "9999999", "--workers", str(workers)]
    running = started("collect", "CartPole-v1", "--out", tmp_path / "data", *many)
    wait_until(lambda: list(tmp_path.glob("data.partial/*")), running)
    time.sleep(0.5)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert_stopped(running, signal.SIGTERM, 143, ["terminated: the same command goes on where this one stopped"])
    assert list(tmp_path.iterdir()) == [], "nothing was committed yet"
    assert len(children) >= (workers if workers > 1 else 0)
    limit = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("error", [RuntimeError, KeyError])
def test_an_interrupt_that_a_library_makes_an_error_of_is_still_one(monkeypatch, capsys, number, code, error):
    def run(_):
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except KeyboardInterrupt:
            raise error("from compiled code") from None

    monkeypatch.setattr(Info, "run", run)
    assert main(["info", "x"]) == code
    assert "Error" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_leaves_early_causes_no_message(here):
    with subprocess.Popen([COMMAND, "info", "mazes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1


@pytest.mark.parametrize("colour", [True, False])
def test_help_has_colours_in_a_terminal_unless_no_color_says_otherwise(colour):
    main_end, child_end = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "" if colour else "1"}
    with subprocess.Popen([COMMAND, "quality", "--help"], stdout=child_end, env=env):
        os.close(child_end)
        shown = b""
        with suppress(OSError):  # the terminal closes with its last user
            while part := os.read(main_end, 4096):
                shown += part
    os.close(main_end)
    assert b"MODEL DATA" in re.sub(rb"\x1b\[[\d;]*m", b"", shown) and (b"\x1b[" in shown) == colour


@pytest.mark.slow
def test_play_in_a_terminal_reads_arrow_keys():
    main_end, child_end = pty.openpty()
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), child_end)
    with subprocess.Popen([COMMAND, "play", "--seed", "3"], **ends, start_new_session=True) as child:
        os.close(child_end)
        shown = b""
        while b"q quit" not in shown:
            shown += os.read(main_end, 4096)
        os.write(main_end, b"\x1b[A\x1b[Dq")
        with suppress(OSError):  # the terminal closes with its last user
            while True:
                shown += os.read(main_end, 4096)
        assert (child.wait(20), shown.count(b"\x1b[2J")) == (0, 3)
    os.close(main_end)
