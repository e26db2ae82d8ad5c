"""The digest of a compiled row (contract 15.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from securebench.core.digests import json_digest

if TYPE_CHECKING:
    from securebench.benchmark.pack.task import SecureBenchTask


def row_digest(task: SecureBenchTask) -> str:
    """Return the digest of a compiled row: everything but the place of the pack.

    Args:
        task: A compiled task; all its values are JSON.
    """
    pack = task.metadata.get("benchmark_pack")
    metadata = {
        **task.metadata,
        "benchmark_pack": {**pack, "manifest_path": None} if isinstance(pack, Mapping) else None,
    }
    row = {
        "id": task.id,
        "benchmark_id": task.benchmark_id,
        "task_type": task.task_type,
        "metadata": metadata,
        "resources": [
            [item.name, item.visibility.value, item.kind, item.value] for item in task.resources
        ],
    }
    return json_digest(row)
