"""``python -m secret_rl.cli``: the ``secret-rl`` command, as torchrun starts it."""

import sys

from secret_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
