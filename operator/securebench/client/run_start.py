"""Start a tester's run: join an equal one, or upload the pack and create the BenchmarkRun.

``RunStarter`` does it. The functions above it decide about earlier runs with the same run id: which
one to join, which one to resume, which lines of the local ``candidates.jsonl`` a resume ignores.
The results volume is authoritative: a local line is valid only if it equals the record that the
resumed run has there.

Source: contract 15.6; design 3 (joining a run).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.client.follow import Follower, RunState, run_state, shielded
from securebench.client.progress import Event, Reporter
from securebench.client.result_folder import RecordMirror
from securebench.client.submit import (
    PreparedSubmission,
    build_spec,
    owner_patch,
    pack_folder,
    run_manifest,
    run_name,
    secret_manifest,
    secret_names,
    secret_values,
)
from securebench.client.tester_config import TesterConfig
from securebench.client.volume import LOCAL_LIMITS, OperatorLink, RunEntry
from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw
from securebench.errors import ClusterError, ConfigError, ConfigErrors, TransientClusterError
from securebench.json_values import object_at
from securebench.names import HARNESS_DIGEST_ANNOTATION
from securebench.protocol.messages import decode_value
from securebench.protocol.volume import CANDIDATES
from securebench.run.records.reading import Record, RecordKey, record_key
from securebench.run.records.record import record_outcome
from securebench.run.state.history import KEPT_ON_RESUME


class Watching(NamedTuple):
    """What to report while attempts are in flight.

    Args:
        output: Agents' output while they work.
        in_flight: Where the attempts are.
    """

    output: bool = False
    in_flight: bool = False


NOT_WATCHING = Watching()


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """External dependencies of a session, replaced in tests.

    Attributes:
        cluster: API server, limited to the run's namespace.
        link: Exec protocol with the operator's Pod.
        environ: Environment variables, for ``harness.env``.
        sleep: ``asyncio.sleep`` outside of tests.
        user_name: Returns the tester's name, as the API server knows it.
        suffix: Returns six random lower-case letters and digits.
        watching: What to report while attempts are in flight.
    """

    cluster: Cluster
    link: OperatorLink
    environ: Mapping[str, str]
    reporter: Reporter
    sleep: Callable[[float], Awaitable[None]]
    user_name: Callable[[], Awaitable[str]]
    suffix: Callable[[], str]
    watching: Watching = NOT_WATCHING

    def note(self, message: str) -> None:
        """Report what the tester may want to know."""
        self.reporter.report(Event.NOTE, message=message)

    def warn(self, message: str) -> None:
        """Report what the tester should look at."""
        self.reporter.report(Event.WARNING, message=message)


KEPT_OUTCOMES = frozenset(record_outcome(outcome) for outcome in KEPT_ON_RESUME)
"""Outcomes whose records a resume keeps (contract 15.1); null means a family without verifier."""


class Binding(NamedTuple):
    """What must be equal for results to be comparable (contract 15.6)."""

    run_id: str
    pack_digest: str
    harness_digest: str
    verifier_version: str


def joinable_run(runs: Iterable[Raw], binding: Binding, wanted: Raw) -> Raw | None:
    """Return the newest active run that is equivalent to the one that would be started.

    Args:
        runs: The BenchmarkRuns of the namespace.
        binding: Binding of the run that would be started.
        wanted: Spec of the run that would be started.
    """
    found = [run for run in runs if _is_equivalent(run, binding, wanted)]
    return max(found, key=_created, default=None)


def resumable_run(entries: Sequence[RunEntry], binding: Binding, records: Path) -> RunEntry | None:
    """Return the run to resume, or None for a normal start.

    Args:
        entries: The user's runs with this run id on the volume, oldest first.
        binding: Binding of the run that would be started.
        records: The local ``candidates.jsonl``.

    Raises:
        ConfigErrors: The last run differs; one line per value.
        ConfigError: There are local records but no such run on the volume, or the last run has
            not ended.
    """
    if not entries:
        if records.exists() and records.stat().st_size:
            raise ConfigError(
                f"cannot resume: {records} has records, but the results volume has no run"
                f" {binding.run_id!r} of yours; start without --resume or use another output folder"
            )
        return None
    last = entries[-1]
    pairs = {
        "pack digest": (last.pack_digest, binding.pack_digest),
        "harness digest": (last.harness_digest, binding.harness_digest),
        "verifier version": (last.verifier_version, binding.verifier_version),
    }
    differing = [
        ConfigError(
            f"cannot resume run {last.run}: its {what} is {old or 'unknown'}, now it is {new};"
            " start without --resume"
        )
        for what, (old, new) in pairs.items()
        if old != new
    ]
    if differing:
        raise ConfigErrors(differing)
    if last.removed_at:
        raise ConfigError(
            f"cannot resume run {last.run}: its results were removed from the volume at"
            f" {last.removed_at}; start without --resume"
        )
    if not last.outcome:
        raise ConfigError(
            f"cannot resume run {last.run}: it has not ended, and its settings differ;"
            " wait for it or cancel it"
        )
    return last


def _is_equivalent(run: Raw, binding: Binding, wanted: Raw) -> bool:
    spec, meta = object_at(run, "spec"), object_at(run, "metadata")
    state = run_state(run)
    if state.end is not None or meta.get("deletionTimestamp") or spec.get("cancel"):
        return False
    return (
        spec.get("runId") == binding.run_id
        and object_at(spec, "pack").get("digest") == binding.pack_digest
        and _harness_digest(run) == binding.harness_digest
        and _selection(spec) == _selection(wanted)
        and object_at(spec, "verification") == object_at(wanted, "verification")
        and spec.get("attempts", 1) == wanted.get("attempts", 1)
        and object_at(spec, "budget") == object_at(wanted, "budget")
    )


def _selection(spec: Raw) -> tuple[object, ...]:
    selector = object_at(spec, "taskSelector")
    return (
        selector.get("limit"),
        selector.get("include") or ["*"],
        selector.get("exclude") or [],
    )


def _harness_digest(run: Raw) -> object:
    resolved = object_at(object_at(run, "status"), "resolved").get("harnessDigest")
    noted = object_at(object_at(run, "metadata"), "annotations").get(HARNESS_DIGEST_ANNOTATION)
    return resolved or noted


def _created(run: Raw) -> tuple[str, str]:
    meta = cast("Mapping[str, str]", object_at(run, "metadata"))
    return meta.get("creationTimestamp", ""), meta.get("name", "")


_REQUIRED = ("task_id", "attempt", "verification_status", "outcome")


class Flaw(StrEnum):
    """Why a line is ignored; also a field name of the summary."""

    DAMAGED = "damaged"
    FOREIGN = "foreign"


class LeftOut(NamedTuple):
    """One ignored line.

    Args:
        line: Line number, from 1.
        flaw: Kind of defect.
        reason: A few words for the user.
    """

    line: int
    flaw: Flaw
    reason: str


def left_out_lines(
    path: Path, binding: Binding, ledger: Mapping[RecordKey, Record]
) -> tuple[LeftOut, ...]:
    """Return the ignored lines of a file, in file order; none if the file does not exist.

    Args:
        path: The local ``candidates.jsonl``.
        binding: Binding of the resumed run.
        ledger: Records of that run on the results volume.
    """
    try:
        with path.open("rb") as source:
            return tuple(_flaws(source, binding, ledger))
    except FileNotFoundError:
        return ()


def _flaws(
    lines: Iterable[bytes], binding: Binding, ledger: Mapping[RecordKey, Record]
) -> Iterator[LeftOut]:
    seen: set[RecordKey] = set()
    for number, line in enumerate(lines, start=1):
        record, reason = _parsed(line)
        if record is None:
            yield LeftOut(number, Flaw.DAMAGED, reason)
            continue
        reason = _foreign_reason(record, binding, ledger, seen)
        if reason:
            yield LeftOut(number, Flaw.FOREIGN, reason)


def _parsed(line: bytes) -> tuple[Record | None, str]:
    if b"\0" in line:
        return None, "NUL bytes"
    try:
        record = decode_value(line.decode("utf-8"))
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except ValueError:
        return None, "not JSON" if line.endswith(b"\n") else "cut line"
    return (record, "") if isinstance(record, dict) else (None, "not an object")


def _foreign_reason(
    record: Record,
    binding: Binding,
    ledger: Mapping[RecordKey, Record],
    seen: set[RecordKey],
) -> str:
    missing = [name for name in (*Binding._fields, *_REQUIRED) if name not in record]
    if missing:
        return f"without {', '.join(missing)}"
    for name, value in binding._asdict().items():
        if record[name] != value:
            return f"of another run: other {name.replace('_', ' ')}"
    key = record_key(record)
    if key in seen:
        return f"second line of task {key.task_id}"
    if key not in ledger:
        return f"unknown task {key.task_id}"
    if record != ledger[key]:
        return f"differs from the record of task {key.task_id} on the results volume"
    seen.add(key)
    return ""


T = TypeVar("T")

_NAME_TRIES = 5
_TRANSIENT_TRIES = 4


class Started(NamedTuple):
    """A run that exists.

    Args:
        state: Its state when it was created or found.
        is_joined: Whether it was active already.
        kept: Records that a resume does not make again; None if it is joined or begins anew.
        left_out: Lines of the local file that a resume ignores, by what is wrong with them.
    """

    state: RunState
    is_joined: bool
    kept: frozenset[RecordKey] | None = None
    left_out: Mapping[str, int] = MappingProxyType({})


class RunStarter:
    """Starts the run of one configuration.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        follower: Repeats calls while the connection is broken.
        parallelism: Concurrent attempts; None uses the API's default.

    Attributes:
        name: Name of the BenchmarkRun once it exists.
    """

    def __init__(
        self,
        config: TesterConfig,
        prepared: PreparedSubmission,
        deps: SessionDependencies,
        follower: Follower,
        parallelism: int | None,
    ) -> None:
        self.name: str | None = None
        self._config = config
        self._prepared = prepared
        self._deps = deps
        self._follower = follower
        self._parallelism = parallelism
        self._records = config.run.output_dir / CANDIDATES

    def checked_spec(self) -> Raw:
        """Return the spec as it would be, under a name that no run has.

        Raises:
            InvalidInputError: The API would reject it.
        """
        return self._spec(run_name(self._config.run.id, "check"), resume_from=None)

    async def start(self, spec: Raw) -> Started:
        """Join the active run that is equal, or create one.

        Args:
            spec: From ``checked_spec``.

        Raises:
            InvalidInputError: The results cannot be resumed, or the API rejects the spec.
            SecureBenchError: The cluster or the volume failed.
        """
        cluster, run_id = self._deps.cluster, self._config.run.id
        binding = Binding(
            run_id, self._prepared.pack.digest, self._prepared.harness_digest, VERIFIER_VERSION
        )
        runs = (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
        found = joinable_run(runs, binding, spec)
        if found is not None:
            self.name = run_state(found).name
            return Started(run_state(found), is_joined=True)
        self._secrets("")
        resumed = kept = None
        left_out = Counter[str]()
        if self._config.run.resume:
            entries = await self.with_retries(lambda: self._deps.link.find_run(run_id))
            resumed = resumable_run(await self._own(entries), binding, self._records)
        if resumed is not None:
            kept, left_out = await self._earlier_records(resumed.uid, binding)
        await self.with_retries(self._push)
        resume_from = {"run": resumed.run, "uid": resumed.uid} if resumed is not None else None
        run = await shielded(self._create(resume_from))
        return Started(run_state(run), is_joined=False, kept=kept, left_out=left_out)

    async def _own(self, entries: Sequence[RunEntry]) -> Sequence[RunEntry]:
        """Return the runs that this user requested, or nobody knows who; warn of others alone."""
        if not any(entry.requester for entry in entries):
            return entries
        user = await self.with_retries(self._deps.user_name)
        own = [entry for entry in entries if entry.requester in {"", user}]
        if not own:
            last = entries[-1]
            self._deps.warn(
                f"all runs with this run id are by other users, the last one is {last.run} by"
                f" {last.requester}: nothing is resumed; securebench resume {last.run} continues it"
            )
        return own

    async def with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call when the connection to the operator's Pod breaks."""
        return await self._follower.with_retries(call, _TRANSIENT_TRIES, TransientClusterError)

    async def _push(self) -> None:
        pack, link = self._prepared.pack, self._deps.link
        name = pack_folder(pack)
        receipt = files_receipt(pack.files, LOCAL_LIMITS)
        if await link.pack_digest(name) != receipt.digest:
            await link.put_pack(name, pack.files)

    async def _create(self, resume_from: Raw | None) -> Raw:
        for _ in range(_NAME_TRIES):
            name = run_name(self._config.run.id, self._deps.suffix())
            try:
                return await self._create_named(name, self._spec(name, resume_from))
            except AlreadyExists:
                continue
        raise ClusterError("found no unused name for the BenchmarkRun; try again")

    async def _create_named(self, name: str, spec: Raw) -> Raw:
        """Create the Secrets and the run, and make the run their owner.

        Raises:
            AlreadyExists: A name is taken; nothing is left behind.
            ClusterError: The API server rejected an object; nothing is left behind.
        """
        manifest = run_manifest(name, spec, self._prepared.harness_digest)
        provider = secret_names(name, self._config.harness).provider
        made = list[str]()
        try:
            for secret, values in self._secrets(name).items():
                body = secret_manifest(secret, values, by_gateway=secret == provider)
                await self._create_secret(secret, body, made)
            run = await self._create_run(name, manifest)
            self.name = name
        except BaseException:
            await self._delete_secrets(made)
            raise
        for secret in made:
            await self._own_secret(secret, run)
        return run

    async def _create_secret(self, name: str, body: Raw, made: list[str]) -> None:
        made.append(name)
        try:
            await self._deps.cluster.create(ObjectKind.SECRET, body)
        except AlreadyExists:
            made.remove(name)
            raise

    async def _delete_secrets(self, secrets: Iterable[str]) -> None:
        """Delete Secrets that were, or may have been, created for a run that failed to start."""
        cluster, warn = self._deps.cluster, self._deps.warn
        for name in secrets:
            try:
                await cluster.delete(ObjectKind.SECRET, name, uid=None, grace_seconds=None)
            except ClusterError as error:
                warn(f"the Secret {name} may still exist; delete it by hand ({error})")

    async def _own_secret(self, name: str, run: Raw) -> None:
        """Make the run own the Secret; the run exists already, so a failure is only a warning."""

        async def own() -> None:
            await self._deps.cluster.patch(ObjectKind.SECRET, name, owner_patch(run))

        try:
            await self.with_retries(own)
        except (ClusterError, asyncio.CancelledError) as error:
            why = str(error) or "interrupted"
            self._deps.warn(f"the Secret {name} must be deleted by hand after the run ({why})")
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _create_run(self, name: str, manifest: Raw) -> Raw:
        """Create the run; if the response got lost, look the run up instead of creating another."""
        try:
            return await self._deps.cluster.create(ObjectKind.BENCHMARK_RUN, manifest)
        except TransientClusterError:
            run = await self._deps.cluster.get(ObjectKind.BENCHMARK_RUN, name)
            if run is None:
                raise
            return run

    def _spec(self, name: str, resume_from: Raw | None) -> Raw:
        return build_spec(
            self._config,
            self._prepared.pack,
            name=name,
            parallelism=self._parallelism,
            resume_from=resume_from,
        )

    def _secrets(self, name: str) -> dict[str, dict[str, str]]:
        """Return the content of the run's Secrets by name."""
        return secret_values(name, self._config.harness, self._deps.environ)

    async def _earlier_records(
        self, uid: str, binding: Binding
    ) -> tuple[frozenset[RecordKey], Counter[str]]:
        """Return the records that a resume keeps; warn about local lines that it ignores."""
        with TemporaryDirectory() as folder:
            mirror = RecordMirror(self._deps.link, uid, Path(folder, CANDIDATES))
            fetched = await self.with_retries(mirror.refresh)
        records = {record_key(item): item for item in fetched}
        left_out = Counter({flaw.value: 0 for flaw in Flaw})
        for line in left_out_lines(self._records, binding, records):
            left_out[line.flaw.value] += 1
            self._deps.warn(
                f"{self._records}:{line.line}: {line.flaw} line is ignored: {line.reason}"
            )
        kept = {key for key, item in records.items() if item.get("outcome") in KEPT_OUTCOMES}
        for key, item in records.items():
            if key not in kept:
                self._deps.note(f"runs again: {key.task_id} ({item.get('outcome')})")
        return frozenset(kept), left_out
