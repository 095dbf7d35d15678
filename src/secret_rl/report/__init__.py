"""Figures, pages that report on runs, and the credit explorer.

Imported on first use: runs are recorded without matplotlib and Pillow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
