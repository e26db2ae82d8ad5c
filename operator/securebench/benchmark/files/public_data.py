"""What an agent is shown of a task, as one digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark.files.assets import asset_source
from securebench.benchmark.pack.lane_plan import LaneFile, lane_plan
from securebench.benchmark.resources import Lane
from securebench.digests import json_digest
from securebench.files.content import file_sha256
from securebench.files.tree_digest import tree_digest

if TYPE_CHECKING:
    from securebench.benchmark.pack.task import SecureBenchTask


def public_digest(task: SecureBenchTask, pack_root: Path, task_file: str) -> str:
    """Return a digest of the public lane of a task; nothing is written.

    Args:
        task: A compiled task.
        pack_root: Folder of the manifest, with the asset roots below.
        task_file: Workspace path of the whole public payload.

    Raises:
        PackError: The plan or an asset does not hold.
        StorageError: An asset is or holds something else than files and folders.
    """
    below = f"{Lane.PUBLIC.value}/"
    files = (file for file in lane_plan(task, task_file).files if file.path.startswith(below))
    return json_digest({file.path: _content(file, pack_root) for file in files})


def _content(file: LaneFile, pack_root: Path) -> str:
    if file.reference is None:
        return hashlib.sha256(file.content or b"").hexdigest()
    source = asset_source(pack_root, file.root, file.reference)
    return tree_digest(source) if source.is_dir() else file_sha256(source)
