"""secret-rl: find out which past actions earned a reward, and learn new tasks faster with it.

Names are imported on first use (``__init__.pyi`` says from where): ``import secret_rl`` stays quick and pulls neither
PyTorch nor Numba.
"""

from importlib import import_module
from importlib.util import find_spec

import lazy_loader

from secret_rl.files import VERSION as __version__

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = ["__version__", *_names]

if find_spec("gymnasium"):  # credit itself runs where only PyTorch and NumPy are
    import_module("secret_rl.envs").register()
