"""What launches left is read, within bounds, and becomes entries of the journal.

``OutputProcessor`` has the output of attempts read in the child process of ``controller.reading``.
``capture`` reads an ended launch, on the volume and in its containers' messages. Candidate
patches are judged here or handed to the check (contract 14.5.1). A member's verdict is taken from
what the verifier of its batch left: whatever does not hold together makes the whole batch lost, its
members are judged alone, and nobody is blamed (decision 0061).

Secret values that a tester forwards to an agent are masked in what is kept of its launches. They
are in memory only. A value is found as it is and in the encodings that programs print by
themselves. What an agent splits, encrypts or spells otherwise stays: such a run's records say
``credentials: exposed`` (A-182, threats 5).
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.reading import Reading
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume.artifacts import ArtifactStore
from securebench.controller.volume.gateway_reports import (
    GatewayReplacedError,
    ReportMissingError,
    launch_report,
    lost_usage,
    require_same_gateway,
)
from securebench.controller.volume.store import RunStore, last_words
from securebench.errors import DigestMismatchError, InvariantViolationError
from securebench.json_values import object_at
from securebench.protocol.candidate import STREAMS, TEXT_FILE
from securebench.reasons import (
    EGRESS_REPORT_MISSING,
    EGRESS_SETUP_FAILED,
    EXTRACTION_FAILED,
)
from securebench.run.artifacts import Artifact, Part
from securebench.run.decide.attempt import Capture, unreadable_output_finish
from securebench.run.layout import COURIER, HARNESS
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import container_report
from securebench.run.observe.termination import (
    BadMessageError,
    kernel_release,
    launch_evidence,
    sealed_candidate,
)
from securebench.run.plan.model import (
    HarnessPlan,
    LaunchKey,
    Role,
    TaskPlan,
)
from securebench.run.state.attempts import (
    CommandReport,
    Finish,
    HarnessResult,
    Loss,
    Lost,
    PodFacts,
    SealedCandidate,
    StreamInfo,
    Usage,
    VerifierResult,
)
from securebench.run.state.entries import (
    EvidenceByAttempt,
    LaunchLost,
    Produced,
    Verified,
)
from securebench.run.verification.base import SharedPodLostError
from securebench.sizes import MIB
from securebench.text import MINIMUM_BYTES, any_of, base64_forms, filled

logger = logging.getLogger(__name__)


class OutputProcessor:
    """Reads and journals the output of one run's launches.

    Args:
        reading: Reads for all runs of the operator.
        ledger: The run's journal and records.
    """

    def __init__(self, reading: Reading, ledger: RunLedger) -> None:
        self._reading = reading
        self._ledger = ledger

    async def capture(
        self, jobs: Sequence[Capture], take: Callable[[Capture], Callable[[], Captured]]
    ) -> list[Finish]:
        """Journal what ended launches left.

        Args:
            jobs: The launches.
            take: Returns what reads one of them.

        Returns:
            The ends of the attempts whose output cannot be read.
        """
        unreadable: list[Finish] = []
        async for found in self._reading.turns(jobs, take):
            await self._ledger.write([entry for _, entry in found if entry is not None])
            unreadable += [
                unreadable_output_finish(job.launch.attempt_key)
                for job, entry in found
                if entry is None
            ]
        return unreadable

    async def finish(self, jobs: Sequence[Finish], evidence: EvidenceByAttempt) -> None:
        """Write the records of attempts.

        Args:
            jobs: How the attempts end.
            evidence: Pods of the launches that this ends.
        """
        attempts = self._ledger.history.attempts
        texts = [job for job in jobs if attempts[job.key].production is not None]
        others = [job for job in jobs if attempts[job.key].production is None]
        await self._ledger.finish(others, evidence)
        record = partial(self._ledger.record, evidence=evidence)
        async for found in self._reading.turns(texts, record):
            await self._ledger.write([entry for _, entry in found if entry is not None])
            lost = [unreadable_output_finish(job.key) for job, entry in found if entry is None]
            await self.finish_unreadable(lost, evidence)

    async def finish_unreadable(self, ends: Sequence[Finish], evidence: EvidenceByAttempt) -> None:
        """Write the records of attempts whose output cannot be read, without it."""
        for end in ends:
            logger.warning("attempt %d of task %d: %s", end.key.attempt, end.key.task, end.message)
        await self._ledger.finish(ends, evidence, is_readable=False)


PIECE_BYTES = MIB

Captured = Produced | Verified | LaunchLost


class CandidateFolder(NamedTuple):
    """The folder of a sealed candidate."""

    artifacts: ArtifactStore
    artifact: Artifact

    def read(self, name: str) -> bytes:
        """Return the content of a file that the courier sealed."""
        with self.artifacts.opened(self.artifact, name) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the candidate, durably; writing it again replaces it."""
        self.artifacts.put(self.artifact, name, [content])


class LaunchLeft(NamedTuple):
    """What a verifier launch left in its Pod's messages and as artifacts."""

    store: RunStore
    job: Capture

    @property
    def launch(self) -> LaunchKey:
        """The launch."""
        return self.job.launch

    @property
    def batch(self) -> LaunchKey | None:
        """First of the launches that shared the Pod, or None."""
        return self.job.batch

    @property
    def view(self) -> PodView:
        """The Pod."""
        return self.job.view

    @property
    def code(self) -> int:
        """Exit code of the container whose end is the launch's end."""
        return self.job.ended.code

    def message(self, container: str) -> str:
        """Return the termination message of a container; empty without one."""
        return _message(self.job.view, container)

    def read(self, launch: LaunchKey, name: str, most_bytes: int) -> bytes:
        """Return what a launch collected in its folder of verification."""
        artifact = self.store.part(launch, Part.VERIFICATION)
        with self.store.artifacts.opened(artifact, name) as file:
            return file.read(most_bytes + 1)


def capture(
    store: RunStore,
    task: TaskPlan,
    job: Capture,
    now: float,
    *,
    gateway_since: float | None = None,
    exposed: SecretMatcher,
) -> Captured:
    """Turn an ended launch into its journal entry. Blocks: it hashes the candidate again.

    Args:
        store: The run's folder.
        task: The launch's task.
        job: What to capture.
        now: Seconds since the epoch.
        gateway_since: When the run's gateway Pod was created, in seconds since the epoch; then its
            last word on the launch is needed. None: the run's harnesses have no egress.
        exposed: What is filled up in the launch's streams and in what git said of its diff.

    Returns:
        The result, or the loss of the launch when what it left does not hold together.
    """
    entry = _captured(store, task, job, now, gateway_since, exposed)
    has_evidence_elsewhere = job.batch not in {None, job.launch}
    return replace(entry, evidence=None if has_evidence_elsewhere else launch_evidence(job.view))


def _captured(
    store: RunStore,
    task: TaskPlan,
    job: Capture,
    now: float,
    gateway_since: float | None,
    exposed: SecretMatcher,
) -> Captured:
    try:
        hide_values(store, job.launch, exposed)
        if job.launch.role is Role.HARNESS:
            production = _production(store, task, job)
            command = without_values(production.command, exposed)
            production = replace(
                production, command=command, candidate=_scrubbed(production.candidate, exposed)
            )
            if gateway_since is not None:
                require_same_gateway(job.view, gateway_since)
                report = launch_report(store, job.view, job.ended.problem)
                production = replace(production, egress=report)
            return Produced(job.launch.attempt_key, production, now)
        verification = _verification(store, task, job)
        dropped = losses_without_values(verification.command.dropped, exposed)
        command = replace(verification.command, dropped=dropped)
        return Verified(job.launch.attempt_key, replace(verification, command=command), now)
    except SharedPodLostError as error:
        return LaunchLost(Lost(job.launch, EXTRACTION_FAILED, str(error), now, is_shared=True))
    except GatewayReplacedError as error:
        lost = Lost(job.launch, EGRESS_SETUP_FAILED, str(error), now)
    except ReportMissingError as error:
        lost = Lost(job.launch, EGRESS_REPORT_MISSING, str(error), now)
    except (BadMessageError, DigestMismatchError, FileNotFoundError) as error:
        lost = Lost(job.launch, EXTRACTION_FAILED, str(error), now)
    usage = lost_usage(store, job.view.name) if gateway_since is not None else Usage()
    return LaunchLost(replace(lost, usage=usage))


def _production(store: RunStore, task: TaskPlan, job: Capture) -> HarnessResult:
    candidate, stdout, stderr = _sealed(store, task, job)
    return HarnessResult(
        launch=job.launch.launch,
        command=container_report(job.view, HARNESS, job.ended.code),
        candidate=candidate,
        facts=_facts(job.view),
        stdout=stdout,
        stderr=stderr,
        problem=job.ended.problem,
        last_words=last_words(store, job.launch),
    )


def _scrubbed(candidate: SealedCandidate | None, exposed: SecretMatcher) -> SealedCandidate | None:
    if candidate is None:
        return None
    return replace(candidate, dropped=losses_without_values(candidate.dropped, exposed))


def _sealed(
    store: RunStore, task: TaskPlan, job: Capture
) -> tuple[SealedCandidate | None, StreamInfo, StreamInfo]:
    message = _message(job.view, COURIER)
    if job.ended.problem and not message:
        return None, StreamInfo(), StreamInfo()
    candidate, stdout, stderr = sealed_candidate(message, job.launch.launch)
    if candidate.file is not None:
        artifact = store.part(job.launch, Part.CANDIDATE)
        store.check_file(artifact, candidate.file, candidate.digest)
        if candidate.file == TEXT_FILE:
            candidate = replace(candidate, is_blank=_is_blank(store, artifact))
            if task.verification is not None:
                folder = CandidateFolder(store.artifacts, artifact)
                candidate = task.verification.sealed(candidate, folder)
    return candidate, stdout, stderr


def _is_blank(store: RunStore, artifact: Artifact) -> bool:
    with store.artifacts.opened(artifact, TEXT_FILE) as file:
        return not any(piece.strip() for piece in iter(partial(file.read, PIECE_BYTES), b""))


def _verification(store: RunStore, task: TaskPlan, job: Capture) -> VerifierResult:
    base = VerifierResult(
        launch=job.launch.launch,
        passed=False,
        metadata={},
        command=CommandReport(),
        facts=_facts(job.view),
        problem=job.ended.problem,
        message=job.ended.message,
    )
    if job.ended.problem:
        return base
    if task.verification is None:
        raise InvariantViolationError("a verifier launch of a task without verification")
    return task.verification.verdict(base, LaunchLeft(store, job))


def _facts(view: PodView) -> PodFacts:
    return replace(view.facts, kernel=kernel_release(_message(view, COURIER)))


def _message(view: PodView, container: str) -> str:
    seen = view.containers.get(container)
    return seen.terminated.message if seen is not None and seen.terminated is not None else ""


STREAM_PARTS = {Role.HARNESS: Part.PRODUCER, Role.VERIFIER: Part.VERIFICATION}


class ExposedValues:
    """The values that enter a run's harness Pods, as far as this process has seen them.

    A Pod resolves them when it starts, so they are read before a harness Pod is created and before
    its output is kept: a value that was replaced in between stays masked, and so does the new one.

    Args:
        cluster: The run's namespace.
        harness: Names the Secret and its keys; without them nothing is read.
    """

    def __init__(self, cluster: Cluster, harness: HarnessPlan) -> None:
        self._cluster = cluster
        self._secret = harness.secret
        self._names = harness.env
        self._seen: set[bytes] = set()
        self.matcher = SecretMatcher()

    async def refresh(self) -> None:
        """Read the Secret again.

        Where it is gone and none of its values was seen, as after a restart, everything is masked:
        a Pod that still runs may print them.

        Raises:
            ClusterError: The API server did not answer.
        """
        if not self._names or not self._secret:
            return
        secret = await self._cluster.get(ObjectKind.SECRET, self._secret)
        data = object_at(secret, "data") if secret is not None else {}
        values = {base64.b64decode(str(data[name])) for name in self._names if name in data}
        if secret is not None and values <= self._seen:
            return
        self._seen |= values
        is_unknown = secret is None and not self._seen
        self.matcher = SecretMatcher(self._seen, hides_all=is_unknown)


def hide_values(store: RunStore, launch: LaunchKey, values: SecretMatcher) -> None:
    """Mask the values in the captured streams of a launch. Blocks.

    The candidate stays as it is: what is graded is what the agent handed in.

    Args:
        store: The run's folder.
        launch: Its courier has ended.
        values: What to look for.

    Raises:
        OSError: The volume did not do what was asked.
    """
    if not values:
        return
    artifact = store.part(launch, STREAM_PARTS[launch.role])
    for name in STREAMS:
        with contextlib.suppress(FileNotFoundError):
            with store.artifacts.opened(artifact, name) as file:
                content = file.read()
            hidden = values.without(content)
            if hidden != content:
                store.artifacts.put(artifact, name, [hidden])


def without_values(report: CommandReport, values: SecretMatcher) -> CommandReport:
    """Fill the values up in what supervise and git said in a harness Pod.

    Args:
        report: As its supervise wrote it.
        values: What to look for.
    """
    report = replace(report, error=values.without_text(report.error))
    if report.diff is None:
        return report
    diff = replace(report.diff, stderr=values.without_text(report.diff.stderr))
    return replace(report, diff=diff)


def losses_without_values(losses: tuple[Loss, ...], values: SecretMatcher) -> tuple[Loss, ...]:
    """Fill the values up in the names of what did not reach the check."""
    return tuple(loss._replace(path=values.without_text(loss.path)) for loss in losses)


class SecretMatcher:
    """The values of ``harness.env`` that entered a run's harness Pods.

    Args:
        values: As the Secret has them; blank space around them does not count.
        hides_all: Whether every byte is masked, because the values are not known.
    """

    def __init__(self, values: Iterable[bytes] = (), *, hides_all: bool = False) -> None:
        known = {value.strip() for value in values}
        forms = {form for value in known if len(value) >= MINIMUM_BYTES for form in _forms(value)}
        self._pattern = re.compile(rb"(?s).+") if hides_all else any_of(forms)
        self._is_empty = not forms and not hides_all

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return not self._is_empty

    def __repr__(self) -> str:
        """Return a text without any value."""
        return f"{type(self).__name__}(...)"

    def without(self, data: bytes) -> bytes:
        """Return data of the same length in which the values are filled up.

        Args:
            data: A whole text: what lies across the border of two pieces is not found.
        """
        result = bytearray(data)  # ``sub`` keeps an object per match until it joins them
        for match in self._pattern.finditer(data):
            result[match.start() : match.end()] = filled(match)
        return bytes(result)

    def without_text(self, text: str) -> str:
        """Return a text in which the values are filled up, as ``without`` does."""
        return self.without(text.encode()).decode("utf-8", "replace")


def _forms(value: bytes) -> Iterator[bytes]:
    yield value
    yield value[::-1]
    yield value.hex().encode()
    yield value.hex().upper().encode()
    yield quote(value, safe="").encode()
    yield json.dumps(value.decode("utf-8", "replace")).encode()[1:-1]
    yield base64.b64encode(value)
    yield base64.urlsafe_b64encode(value)
    yield from base64_forms(value)
