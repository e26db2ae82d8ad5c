"""Polls a pack's files for changes, which works on every file system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from securebench.client.packs.source import PackFiles, PackSource, pack_source
from securebench.errors import ConfigErrors

POLL_SECONDS = 0.5
"""Between two looks."""

_Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""


def each_version(files: PackFiles) -> Iterator[Mapping[Path, _Stamp]]:
    """Yield what the pack's files look like: now, and after each change.

    Args:
        files: Looked up again each time, since a tester YAML may come to name other files.
    """
    seen: Mapping[Path, _Stamp] | None = None
    while True:
        found = stamps(files)
        if found != seen:
            seen = found
            yield found
        time.sleep(POLL_SECONDS)


def stamps(files: PackFiles) -> Mapping[Path, _Stamp]:
    """Return when each file that lint may read was changed; files that are not there are left out.

    Everything below the manifest's folder counts, but for the run's output folder.
    """
    paths = {path for path in (files.config, files.manifest, files.tasks) if path is not None}
    try:
        source = pack_source(files)
    except ConfigErrors:
        return _stamped(paths)
    return _stamped({*paths, source.manifest, source.tasks, *_below(source)})


def _below(source: PackSource) -> Iterator[Path]:
    output = None if source.config is None else source.config.run.output_dir.resolve()
    for folder, folders, names in os.walk(source.manifest.parent.resolve()):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name != output]
        yield from (here / name for name in (*folders, *names))


def _stamped(paths: set[Path]) -> Mapping[Path, _Stamp]:
    found = {}
    for path in paths:
        try:
            state = path.lstat()
        except OSError:
            continue
        found[path] = (state.st_mtime_ns, state.st_size)
    return found
