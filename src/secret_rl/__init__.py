"""secret-rl: find out which past actions earned a reward, and learn new tasks faster with it.

Names are imported on first use (``__init__.pyi`` says from where): ``import secret_rl`` is quick and pulls neither
NumPy nor Gymnasium. Its environments are registered as soon as Gymnasium is imported, before or after.
"""

import lazy_loader

from secret_rl.plugins import with_module
from secret_rl.version import VERSION as __version__

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]

with_module("gymnasium", "secret_rl.envs")
