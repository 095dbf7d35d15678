"""Follow the README word for word: on a fresh clone, with a fresh virtual environment, as somebody new would.

``make test-readme`` runs this with any Python; it needs nothing installed. What the README shows is run in one shell,
in order: its commands, and all of its Python where the first of it stands. Left out is ``make test``, which
runs the same code and commands in the environment it has set up.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from documents import ROOT, blocks

LEFT_OUT = ("make test",)
KEYS = "wasdq"  # for what asks for them: a walk in a maze, and the way out


def script(readme: str) -> str:
    """The README as a script for bash.

    >>> commands, code = "```console\\nmake test  # long\\necho one\\n```\\n", "```python\\nx = 1\\n```\\n"
    >>> print(script(commands + code + code))
    set -euxo pipefail
    # left out: make test  # long
    echo one
    python -W error quickstart.py
    """
    first = blocks(readme, "python")[0]
    readme = readme.replace(f"```python\n{first}", "```console\npython -W error quickstart.py\n", 1)
    lines = [line for code in blocks(readme, "console") for line in code.splitlines() if line.strip()]
    left_out = [f"# left out: {line}" if line.startswith(LEFT_OUT) else line for line in lines]
    return "\n".join(["set -euxo pipefail", *left_out])


def main() -> int:
    """Clone what is committed, and do what its README says."""
    with tempfile.TemporaryDirectory(prefix="readme-") as folder:
        clone = Path(folder) / "secret-rl"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        readme = (clone / "README.md").read_text(encoding="utf-8")
        (clone / "quickstart.py").write_text("\n".join(blocks(readme, "python")), encoding="utf-8")
        (clone / "readme.sh").write_text(script(readme), encoding="utf-8")
        newcomer = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(["bash", "readme.sh"], cwd=clone, env=newcomer, input=KEYS, text=True).returncode


if __name__ == "__main__":
    sys.exit(main())
