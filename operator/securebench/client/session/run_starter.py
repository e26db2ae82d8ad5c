"""Start a tester's run: join an equal one, or upload the pack and create the BenchmarkRun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.client.follow import Follower, RunState, run_state, shielded
from securebench.client.result_folder import RecordMirror
from securebench.client.session.creation import NewRun, RunCreation
from securebench.client.session.dependencies import SessionDependencies
from securebench.client.session.earlier import KEPT_OUTCOMES, Binding, joinable_run, resumable_run
from securebench.client.session.local_records import Flaw, left_out_lines
from securebench.client.submit import (
    PreparedSubmission,
    build_spec,
    pack_folder,
    run_manifest,
    run_name,
    secret_names,
    secret_values,
)
from securebench.client.tester_config import TesterConfig
from securebench.client.volume import LOCAL_LIMITS, RunEntry
from securebench.cluster.port import AlreadyExists, ObjectKind, Raw
from securebench.errors import ClusterError, TransientClusterError
from securebench.protocol.volume import CANDIDATES
from securebench.run.records.reading import RecordKey, record_key

T = TypeVar("T")

_NAME_TRIES = 5
_TRANSIENT_TRIES = 4


class EarlierRecords(NamedTuple):
    """What a run takes over from an earlier one.

    Args:
        kept: Records that are not made again.
        left_out: Lines of the local file that are ignored, by what is wrong with them.
    """

    kept: frozenset[RecordKey]
    left_out: Mapping[str, int]


class Started(NamedTuple):
    """A run that exists.

    Args:
        state: Its state when it was created or found.
        is_joined: Whether it was active already.
        earlier: What it takes over, or None if it is joined or begins anew.
    """

    state: RunState
    is_joined: bool
    earlier: EarlierRecords | None = None


class RunStarter:
    """Starts the run of one configuration.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        deps: External dependencies.
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
        resumed, earlier = None, None
        if self._config.run.resume:
            entries = await self.with_retries(lambda: self._deps.link.find_run(run_id))
            resumed = resumable_run(await self._own(entries), binding, self._records)
        if resumed is not None:
            earlier = await self._earlier_records(resumed.uid, binding)
        await self.with_retries(self._push)
        resume_from = {"run": resumed.run, "uid": resumed.uid} if resumed is not None else None
        run = await shielded(self._create(resume_from))
        return Started(run_state(run), is_joined=False, earlier=earlier)

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
        deps = self._deps
        creation = RunCreation(deps.cluster, self.with_retries, deps.warn, self._note_name)
        for _ in range(_NAME_TRIES):
            try:
                return await creation.create(self._new_run(resume_from))
            except AlreadyExists:
                continue
        raise ClusterError("found no unused name for the BenchmarkRun; try again")

    def _new_run(self, resume_from: Raw | None) -> NewRun:
        name = run_name(self._config.run.id, self._deps.suffix())
        spec = self._spec(name, resume_from)
        manifest = run_manifest(name, spec, self._prepared.harness_digest)
        provider = secret_names(name, self._config.harness).provider
        return NewRun(name, manifest, self._secrets(name), provider)

    def _note_name(self, name: str) -> None:
        self.name = name

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

    async def _earlier_records(self, uid: str, binding: Binding) -> EarlierRecords:
        """Determine which records a resume keeps, and warn about local lines that it ignores."""
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
        return EarlierRecords(frozenset(kept), left_out)
