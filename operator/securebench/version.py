"""The version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("securebench")
except PackageNotFoundError:
    VERSION = "unknown"
