"""The namespaces in which trials run, and what came of each."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from support import api
from support.release import Raw, Record, Release, benchmark_run, condition, keyed_pack, release
from threats.kit import weaken
from threats.kit.batch import Batch, Trial
from threats.kit.podlog import PodLog, watched

RUNC_CLASS = f"threats-runc-{uuid.uuid4().hex[:6]}"
"""A runtime class that runs may name and that is no sandbox; a test makes it."""
FALSE_CLASS = f"{RUNC_CLASS}-listed"
"""The same, listed among those that must be sandboxes."""
VALUES = {
    "settings.bounds.workspaceBytes": 64 * 1024 * 1024,
    "settings.launch.retryBackoffSeconds": 1,
    "viewers.enabled": True,
    "settings.podTemplate.runtimeClassNames": ["gvisor", RUNC_CLASS, FALSE_CLASS],
    "settings.podTemplate.sandboxedRuntimeClassNames": ["gvisor", FALSE_CLASS],
}
"""Small bounds and short waits, so that reaching them takes seconds."""
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
AT_ONCE = 2
"""Runs that go side by side; more of them would only wait for the node."""


@dataclass(slots=True)
class Place:
    """A release and what its Pods did."""

    release: Release
    pods: PodLog


@dataclass(slots=True)
class Arena:
    """Runs the trials of the chosen tests.

    Attacks and honest runs go where Pods are held to Pod Security ``baseline``; twins whose Pods
    are weakened go in a namespace that admits every Pod.
    """

    stack: ExitStack
    _places: dict[bool, Place] = field(default_factory=dict)
    _waiting: dict[Batch, list[Trial]] = field(default_factory=dict)
    _started: dict[Batch, list[Trial]] = field(default_factory=dict)
    _ended: dict[Batch, list[Record]] = field(default_factory=dict)

    def queue(self, trials: Iterable[Trial]) -> None:
        """Have these trials run, those of one batch together, a few runs at a time."""
        self._waiting |= _by_batch(trials)
        self._fill()

    def start(self, trials: Iterable[Trial]) -> None:
        """Start the runs of these trials now, those of one batch together."""
        for batch, chosen in _by_batch(trials).items():
            self._start(batch, chosen)

    def place(self, batch: Batch) -> Place:
        """Return where a batch runs; its run is under way."""
        if batch in self._waiting:
            self._start(batch, self._waiting.pop(batch))
        return self._place(batch)

    def _place(self, batch: Batch) -> Place:
        is_weakened = batch.weakening is not None
        if is_weakened not in self._places:
            self._places[is_weakened] = self._install(is_weakened=is_weakened)
        return self._places[is_weakened]

    def records(self, trial: Trial) -> list[Record]:
        """Return a trial's records, one per attempt, when its run has ended."""
        batch = trial.batch
        if batch not in self._ended:
            place = self.place(batch)
            ended = condition(place.release.wait(batch.name, self._is_over))
            assert ended["status"] == batch.ended, ended
            self._ended[batch] = place.release.records(batch.name)
        return [record for record in self._ended[batch] if record["task_id"] == trial.name]

    def record(self, trial: Trial) -> Record:
        """Return a trial's only record."""
        (record,) = self.records(trial)
        return record

    def pods(self, trial: Trial, role: str) -> list[Raw]:
        """Return the last state of the Pods of a trial, by creation."""
        self.records(trial)
        index = self._started[trial.batch].index(trial)
        return self.place(trial.batch).pods.last(trial.batch.name, role, index)

    def run(self, batch: Batch) -> Raw:
        """Return a batch's BenchmarkRun when it has ended."""
        return self.place(batch).release.wait(batch.name, self._is_over)

    def file(self, trial: Trial, path: str) -> bytes:
        """Return a file of the run's folder on the volume.

        Args:
            trial: Its run is meant.
            path: May hold ``{task}``, the trial's folder.
        """
        self.records(trial)
        index = self._started[trial.batch].index(trial)
        place = path.format(task=f"tasks/{index}")
        return self.place(trial.batch).release.file(trial.batch.name, place)

    def _is_over(self, run: Raw) -> bool:
        self._fill()
        return _has_ended(run)

    def _fill(self) -> None:
        """Start runs that wait, as long as few are under way."""
        free = AT_ONCE - self._under_way() if self._waiting else 0
        for batch in list(self._waiting)[: max(0, free)]:
            self._start(batch, self._waiting.pop(batch))

    def _under_way(self) -> int:
        runs = (
            run
            for place in self._places.values()
            for run in api.benchmark_runs(place.release.namespace)
        )
        return sum(not _has_ended(run) for run in runs)

    def _start(self, batch: Batch, trials: Sequence[Trial]) -> None:
        place = self._place(batch)
        if batch.weakening is not None:
            weaken.weaken(place.release, batch)
        files = batch.pack([trial.row for trial in trials])
        pack, source = keyed_pack("ConfigMap", f"{batch.name}-pack", files)
        spec = {**batch.run_spec(), "pack": source}
        place.release.create(pack, benchmark_run(batch.name, spec))
        self._started[batch] = list(trials)

    def _install(self, *, is_weakened: bool) -> Place:
        prefix, labels = ("sb-twins", PRIVILEGED) if is_weakened else ("sb-threats", None)
        installed = self.stack.enter_context(release(prefix, VALUES, labels))
        if is_weakened:
            self.stack.callback(weaken.remove, installed.namespace)
        return Place(installed, self.stack.enter_context(watched(installed.namespace)))


def _by_batch(trials: Iterable[Trial]) -> dict[Batch, list[Trial]]:
    batches: dict[Batch, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial not in batches[trial.batch]:
            batches[trial.batch].append(trial)
    return dict(batches)


def _has_ended(run: Raw) -> bool:
    return bool(condition(run)["status"] != "Unknown")


@contextmanager
def open_arena() -> Iterator[Arena]:
    """Open an arena; its namespaces are made when they are needed and removed at the end."""
    with ExitStack() as stack:
        yield Arena(stack)
