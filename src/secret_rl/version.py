"""The version of this library."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("secret-rl")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"
