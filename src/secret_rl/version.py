"""The version, from the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("secret-rl")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"
