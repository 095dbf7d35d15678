"""Manners of the command line: JSON for machines, silence on request, interruptions, completion, pipes."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.quick import quick_fits

import secret_rl as srl
from secret_rl.agents import q_learning
from secret_rl.cli import main
from secret_rl.cli.data import Info
from secret_rl.evaluation import LearningCurves

COMMAND = Path(sys.executable).parent / "secret-rl"
ROOT = Path(__file__).parent.parent
TASK = ["secret_rl/Triggers-v0", "--option", "size=3", "triggers=1"]
TINY = ["--units", "16", "--batch-size", "32", "--device", "cpu"]
COMMANDS = {
    "collect": [*TASK, "--out", "new", "--episodes", "20"],
    "info": ["mazes"],
    "fit": ["mazes", "--out", "new.safetensors", "--steps", "20", "--evaluate-every", "10", *TINY],
    "attribute": ["m.safetensors", "mazes", "--out", "new.safetensors", "--device", "cpu"],
    "quality": ["m.safetensors", "mazes", "--device", "cpu"],
    "potential": ["target", "--out", "new.json", "--model", "m.safetensors", "--device", "cpu"],
    "learn": [*TASK, "layout_seed=5", "--out", "new", "--episodes", "30", "--seeds", "2", "--credit", "m.safetensors"],
    "report": ["m.safetensors", "--out", "new.html"],
}
ANSWERS = ("info", "quality", "learn")  # what they are asked for is text, the others leave a file
# The command, in a process of its own with quick fits.
QUICKLY = [
    sys.executable, "-c",
    f"import sys, pytest; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); "
    "from tests.quick import quick_fits; quick_fits(pytest.MonkeyPatch()); "
    "from secret_rl.cli import main; sys.exit(main())",
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so short fits may be warned of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Trajectories and a model, for every command."""
    folder = tmp_path_factory.mktemp("made")
    for name, options in {"mazes": {}, "target": {"layout_seed": 5}}.items():
        data = srl.collect(TASK[0], 200, success_share=0.3, env_options={"size": 3, "triggers": 1, **options})
        data.save(folder / name)
    options = {"steps": 150, "units": 16, "batch_size": 32, "learning_rate": 0.01, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        quick_fits(patch)
        srl.Secret(**options).fit(srl.Trajectories.load(folder / "mazes")).save(folder / "m.safetensors")
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A working folder with what was made."""
    for path in made.iterdir():
        shutil.copytree(path, tmp_path / path.name) if path.is_dir() else shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    quick_fits(monkeypatch)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_document_and_alone_on_standard_output(command, here, capsys):
    assert main([command, *COMMANDS[command], "--json"]) == 0
    told = capsys.readouterr()
    content = json.loads(told.out, parse_constant=pytest.fail)
    assert isinstance(content, dict) and content
    for path in [content.get("saved"), content.get("report")]:
        assert path is None or Path(path).exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_says_only_what_was_asked_for(command, here, capsys):
    assert main([command, *COMMANDS[command], "--quiet"]) == 0
    told = capsys.readouterr()
    assert bool(told.out) == (command in ANSWERS)
    assert "saved" not in told.out and told.err == ""


def test_playing_and_the_paper_speak_json_too(tmp_path):
    played = subprocess.run(
        [COMMAND, "play", "--layout-seed", "1", "--triggers", "0", "--size", "2", "--json"],
        input="dsawdsawq", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(played.stdout)["returns"][0] == 1
    assert "prize: +1" in played.stderr
    shutil.copytree(ROOT / "paper", tmp_path / "paper", ignore=shutil.ignore_patterns("results"))
    drawn = subprocess.run(
        [COMMAND, "paper", "maze", "--json", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert [Path(file).name for file in json.loads(drawn.stdout)["files"]] == ["maze.png", "maze.svg"]
    assert drawn.stderr == ""


ALIKE = {**os.environ, "OMP_NUM_THREADS": "1"}  # sums of several threads are rounded otherwise than those of one


def test_a_fit_that_ctrl_c_interrupts_goes_on_to_the_same_model(here, tmp_path):
    """A real process, a real signal."""
    options = {"steps": 300, "evaluate_every": 10, "units": 16, "batch_size": 32, "device": "cpu"}
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [*QUICKLY, "fit", here / "mazes", "--out", tmp_path / "new.safetensors", *words]
    state = tmp_path / "new.safetensors.partial" / "state.json"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ALIKE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as running:  # fmt: skip
        while running.poll() is None and not state.is_file():
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate()
    assert running.returncode == 130
    assert error.splitlines()[-1] == "interrupted: the same command goes on where this one stopped"
    assert "Traceback" not in error
    assert state.is_file() and not (tmp_path / "new.safetensors").exists()
    assert not json.loads((tmp_path / "new.run" / "run.json").read_text())["finished"]

    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, env=ALIKE)
    resumed = srl.Secret.load(tmp_path / "new.safetensors", device="cpu").model.state_dict()
    command[command.index("--out") + 1] = tmp_path / "whole.safetensors"
    subprocess.run(command, check=True, env=ALIKE)
    undisturbed = srl.Secret.load(tmp_path / "whole.safetensors", device="cpu")
    for name, tensor in undisturbed.model.state_dict().items():
        assert torch.equal(resumed[name], tensor), name
    expected = undisturbed.report.to_json()
    found = json.loads(done.stdout)
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}
    assert not state.parent.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path, workers):
    out = tmp_path / "data"
    code = "import sys; from secret_rl.cli import main; sys.exit(main())"
    words = ["collect", "CartPole-v1", "--episodes", "9999999", "--out", out, "--workers", str(workers)]
    running = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not list(tmp_path.glob("data.partial/*")):
        time.sleep(0.02)
    time.sleep(0.5)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    running.send_signal(signal.SIGTERM)
    _, error = running.communicate(timeout=20)
    assert running.returncode == 143
    assert error.splitlines()[-1] == "terminated: the same command goes on where this one stopped"
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == [], "nothing was committed yet"
    assert len(children) >= (workers if workers > 1 else 0)
    limit = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_a_server_that_is_terminated_says_so(here):
    words = ["explore", "m.safetensors", "mazes", "--out", "page.html", "--no-replay", "--serve", "--device", "cpu"]
    running = subprocess.Popen([*QUICKLY, *words], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any(line.startswith("serving") for line in running.stdout)
    time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    _, error = running.communicate(timeout=20)
    assert (running.returncode, error) == (143, "\nterminated\n")


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


def test_the_handler_of_sigterm_is_put_back(capsys):
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(main, ["--version"]).result() == 0, "handlers can be set in the main thread only"
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert main(["--version"]) == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_fit_is_judged_on_other_trajectories_if_they_are_named(here, capsys):
    command = ["fit", *COMMANDS["fit"], "--quiet", "--held-out"]
    assert main([*command, "nowhere"]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert not Path("new.run").exists(), "refused before anything is done"
    assert main([*command, "target"]) == 0
    secret, target = srl.Secret.load("new.safetensors", device="cpu"), srl.Trajectories.load("target")
    expected = srl.credit_quality(secret.attribute(target, rewards="positive"), target)
    assert json.loads(Path("new.run/run.json").read_text())["quality"] == {"target": expected.to_json()}


def interrupt_after(monkeypatch, calls):
    """Ctrl-C when an agent begins to learn, after so many have done; counts those that begin."""
    begun = []
    real = q_learning.QLearning.learn

    def learn(self, *arguments, **options):
        if len(begun) == calls:
            raise KeyboardInterrupt
        begun.append(self.seed)
        return real(self, *arguments, **options)

    monkeypatch.setattr(q_learning.QLearning, "learn", learn)
    return begun


def test_learn_keeps_the_agents_that_were_done_when_it_was_interrupted(here, capsys):
    command = ["learn", *COMMANDS["learn"], "--quiet"]
    assert main([*command, "--out", "undisturbed"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, 3)
        assert main(command) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not Path("new/curves.safetensors").exists()
    with pytest.MonkeyPatch.context() as patch:
        begun = interrupt_after(patch, 99)
        assert main(command) == 0
    assert begun == [1], "of two agents without and two with credit, the last one was missing"
    one, other = (LearningCurves.load(f"{folder}/curves.safetensors") for folder in ("new", "undisturbed"))
    assert one.names == other.names
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    with pytest.MonkeyPatch.context() as patch:
        begun = interrupt_after(patch, 99)
        assert main(command) == 0
    assert len(begun) == 4, "a finished run is run anew"


def test_a_demo_that_was_interrupted_repeats_nothing(here, monkeypatch, capsys):
    small = ["--trajectories", "300", "--updates", "200", "--mazes", "2", "--seeds", "2", "--episodes", "30"]
    command = ["demo", "--out", "demo", *small, "--size", "3", "--switches", "1"]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, 5)
        assert main(command) == 130
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(srl.Secret, "fit", lambda *_, **__: pytest.fail("fitted again"))
        begun = interrupt_after(patch, 99)
        assert main([*command, "--json"]) == 0
    assert len(begun) == 4, "the part that was not whole: the two agents of one maze, and two more"
    told = capsys.readouterr()
    content = json.loads(told.out)
    assert content["report"] == "demo/report.html" and Path(content["report"]).is_file()
    assert told.err.splitlines()[-1] == "report      demo/report.html"
    assert "3. Q-learning in 2 held-out mazes" in told.err


def test_bash_completes_commands_options_and_files(here):
    """What a real, interactive bash makes of Tab."""
    script = subprocess.run([COMMAND, "--print-completion", "bash"], capture_output=True, text=True, check=True).stdout
    Path("completion.bash").write_text(script)
    for typed, completed in {
        "secret-rl dem": "secret-rl demo ",
        "secret-rl fit mazes --out x --evaluate-e": "secret-rl fit mazes --out x --evaluate-every ",
        "secret-rl potential target --kind pen": "secret-rl potential target --kind pending ",
        "secret-rl info targ": "secret-rl info target/",
        "secret-rl quality m.safetensors maz": "secret-rl quality m.safetensors mazes/",
        "secret-rl fit mazes --out m.safe": "secret-rl fit mazes --out m.safetensors ",
    }.items():
        assert typed_in_bash(typed) == completed


def typed_in_bash(words):
    """The line that bash shows after Tab; it is not run."""
    main_end, child_end = pty.openpty()
    environment = {**os.environ, "PS1": "ready> ", "TERM": "dumb", "INPUTRC": os.devnull}
    with subprocess.Popen(
        ["bash", "--norc", "-i"], stdin=child_end, stdout=child_end, stderr=child_end, env=environment,
        start_new_session=True,
    ) as bash:  # fmt: skip
        os.close(child_end)
        read_until(main_end, b"ready> ")
        os.write(main_end, b"source completion.bash\n")
        read_until(main_end, b"ready> ")
        os.write(main_end, f"{words}\t#end".encode())
        shown = read_until(main_end, b"#end")
        bash.kill()
    os.close(main_end)
    return shown.decode().replace("\a", "").split("#end")[0]


def read_until(descriptor, wanted):
    shown = b""
    while wanted not in shown:
        shown += os.read(descriptor, 4096)
    return shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell, capsys):
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert "secret-rl" in script and "demo" in script and "--evaluate-every" in script


def test_help_tells_exit_codes_and_completion(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 done, 1 refused or failed, 2 wrong usage, 130 interrupted, 143 terminated" in shown
    assert 'eval "$(secret-rl --print-completion bash)"' in shown and "--version" in shown


def test_a_reader_that_leaves_early_is_no_failure_to_tell_of(here):
    with subprocess.Popen([COMMAND, "info", "mazes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 1


def test_a_warning_is_one_line_without_code(here):
    done = subprocess.run([*QUICKLY, "fit", *COMMANDS["fit"]], capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if "Warning" in line]
    assert line.startswith("secret-rl: ") and ".py" not in line
