"""What the API server said about the Pods of a namespace, kept when they are gone."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from support.release import Raw

_CONTENT = re.compile(r"\S")


class PodLog:
    """Every state of every Pod, as a watch reported it."""

    def __init__(self, path: Path) -> None:
        """Read from the file that a watch writes."""
        self._path = path
        self._states: list[Raw] = []
        self._end = 0

    def states(self) -> Sequence[Raw]:
        """Return the states, oldest first; one that is being written is left out."""
        with self._path.open("rb") as file:
            file.seek(self._end)
            text = file.read().decode("utf-8", "replace")
        decoder = json.JSONDecoder()
        at = 0
        while found := _CONTENT.search(text, at):
            try:
                event, at = decoder.raw_decode(text, found.start())
            except json.JSONDecodeError:
                break
            self._states.append(event["object"])
        self._end += len(text[:at].encode())
        return tuple(self._states)

    def last(self, run: str, role: str, task: int) -> list[Raw]:
        """Return the last state of each Pod of a task, in the order of their creation."""
        found: dict[str, Raw] = {}
        for state in self.states():
            labels = state["metadata"].get("labels", {})
            annotations = state["metadata"].get("annotations", {})
            is_of_task = annotations.get("securebench.dev/task-index") == str(task)
            is_of_run = labels.get("securebench.dev/run") == run
            if is_of_run and is_of_task and labels.get("securebench.dev/role") == role:
                found[state["metadata"]["uid"]] = state
        return list(found.values())


@contextmanager
def watched(namespace: str) -> Iterator[PodLog]:
    """Watch the Pods of a namespace."""
    stop = threading.Event()
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        watcher = threading.Thread(target=_watch, args=(namespace, out, stop))
        watcher.start()
        try:
            yield PodLog(Path(out.name))
        finally:
            stop.set()
            watcher.join()


def _watch(namespace: str, out: IO[bytes], stop: threading.Event) -> None:
    # The API server ends every watch after 30 to 60 minutes, and kubectl with it.
    while not stop.is_set():
        words = ["kubectl", "-n", namespace, "get", "pods", "-w", "-o", "json"]
        with subprocess.Popen([*words, "--output-watch-events"], stdout=out) as process:
            while process.poll() is None and not stop.wait(0.2):
                pass
            process.terminate()
