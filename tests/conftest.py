"""What every tier does."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()
