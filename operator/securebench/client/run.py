"""Commands that start a run or follow one.

* ``run`` starts the run of a tester YAML, follows it and fetches the results.
* ``submit`` starts a run and leaves it to the cluster.
* ``watch`` follows a run that somebody started. It reads the BenchmarkRun alone, so that it works
  with every role. Where the operator's Pod may be used, a live view also shows the attempts in
  flight.
* ``release-test`` is the command of the ``helm test`` Pod.
* ``resume`` resumes a suspended run. A run that has ended is continued by a new BenchmarkRun with
  the same spec, which keeps every record with a verdict and runs the rest.
* ``regrade`` creates a run that verifies again what the agents of an earlier run handed in.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from securebench.agents.registry import agent_named, forwarded_env
from securebench.benchmark.files.folders import FolderOptions
from securebench.client.follow import Follower, NoteFilter, RunState, run_id_of, run_state, run_view
from securebench.client.live import AttemptInFlight, InFlightWatch, LiveReporter, can_draw
from securebench.client.output import (
    INTERRUPTED,
    OutputForm,
    print_error,
    print_line,
    print_note,
    print_notices,
    print_objects,
)
from securebench.client.progress import (
    AgentOutputReporter,
    Event,
    LineReporter,
    Reporter,
    WarningReporter,
    shown_agent,
    stderr_console,
)
from securebench.client.results import print_figures, print_reasons, print_result, score_code
from securebench.client.run_start import Started, Watching
from securebench.client.run_summary import TesterRunSummary
from securebench.client.runs import require_one_run, require_run
from securebench.client.session import RunEnd, RunSession, open_session
from securebench.client.submit import (
    PreparedSubmission,
    is_owned_by,
    load_env_file,
    prepare,
    random_suffix,
    run_manifest,
    run_name,
    shared_owners_patch,
    without_value,
)
from securebench.client.tester_config import (
    TESTER_FILE,
    TesterConfig,
    folder_config,
    load_prices,
    load_tester_config,
    with_spec_overrides,
    with_task_overrides,
    with_tester_overrides,
)
from securebench.client.volume import ClusterTarget, WatchedNamespace, open_cluster, open_watched
from securebench.cluster.client import connect
from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw
from securebench.errors import ClusterError, InvalidInputError
from securebench.json_values import object_at, text_at
from securebench.names import HARNESS_DIGEST_ANNOTATION
from securebench.run.api.status import Reason
from securebench.run.records.summary import NO_OUTCOME


class WatchOptions(NamedTuple):
    """How a run is followed.

    Args:
        form: Lines or a live view; as data, one object for each change.
        fail_below: Smallest score that is accepted; None accepts every score.
    """

    form: OutputForm
    fail_below: float | None


def watch(run: str, options: WatchOptions, target: ClusterTarget) -> int:
    """Follow a run to its end and return the exit code."""
    watcher = _Watcher(options)
    try:
        end = asyncio.run(watcher.follow(run, target))
    except KeyboardInterrupt:
        name = watcher.name
        sys.stderr.write(f"securebench: interrupted; BenchmarkRun {name or run} continues\n")
        return INTERRUPTED
    return _conclude(end, options)


class _Watcher:
    def __init__(self, options: WatchOptions) -> None:
        self.name = ""
        self._form = options.form
        self._is_drawn = False
        self._done = 0

    async def follow(self, text: str, target: ClusterTarget) -> RunState:
        async with open_watched(target) as place:
            state = run_state(await require_run(place.cluster, text))
            self.name = state.name
            with self._reporter() as reporter:
                return await self._follow(place, state, reporter)

    async def _follow(
        self, place: WatchedNamespace, state: RunState, reporter: Reporter
    ) -> RunState:
        def note(message: str) -> None:
            reporter.report(Event.NOTE, message=message)

        def in_flight(attempts: tuple[AttemptInFlight, ...] | None) -> None:
            reporter.report(Event.IN_FLIGHT, attempts=attempts)

        clock = asyncio.get_running_loop().time
        notes = NoteFilter(clock)
        follower = Follower(place.cluster, asyncio.sleep, note)
        polls = (
            InFlightWatch(place.link, state.uid, in_flight, clock).watched(asyncio.sleep)
            if place.link is not None and self._is_drawn
            else nullcontext()
        )
        async with polls, aclosing(follower.states(state.name, state.uid)) as states:
            async for current in states:
                reporter.report(Event.STATUS, state=current)
                self._tell(current, notes, reporter)
                if current.end is not None:
                    return current
        raise AssertionError("unreachable: the iterator of states never ends")

    def _tell(self, state: RunState, notes: NoteFilter, reporter: Reporter) -> None:
        """Say what has changed, in lines or as data."""
        if self._form.is_data:
            print_objects([run_view(state.run).to_json()], self._form)
        elif notes.is_new(state.note):
            reporter.report(Event.NOTE, message=state.note)
        if state.done != self._done and not self._is_drawn:
            passed = run_view(state.run).passed or 0
            message = f"{state.done} of {state.total or '?'} done, {passed} passed"
            reporter.report(Event.NOTE, message=message)
        self._done = state.done

    @contextmanager
    def _reporter(self) -> Iterator[Reporter]:
        console = stderr_console()
        self._is_drawn = can_draw(console) and not self._form.is_data
        if self._form.is_data:
            yield WarningReporter(console)
        elif self._is_drawn:
            with LiveReporter(console, time.monotonic) as live:
                yield live
        else:
            yield LineReporter(console, clock=time.monotonic)


def _conclude(state: RunState, options: WatchOptions) -> int:
    end, view = state.end, run_view(state.run)
    if end is None or end.exit_code != 0:
        print_error(state.failure())
        return 1 if end is None else end.exit_code
    summary = _summary(state)
    missing = summary.missing_result()
    if missing:
        print_error(missing)
    code = 1 if missing else score_code(summary.passed, summary.verified, options.fail_below)
    if not options.form.is_data:
        print_line(
            f"run={view.name} run_id={view.run_id} state={view.state} total={view.total}"
            f" verified={view.verified} passed={view.passed or 0}"
        )
    return code


def _summary(state: RunState) -> TesterRunSummary:
    """Return the counts of a status in the form of a summary, for the rule about results."""
    view = run_view(state.run)
    unverified = object_at(object_at(state.run, "status"), "tasks").get("unverified")
    return TesterRunSummary(
        run_id=view.run_id,
        output_dir="",
        output_path="",
        total=view.total,
        verified=view.verified,
        passed=view.passed or 0,
        verification_status="",
        outcomes={NO_OUTCOME: unverified if isinstance(unverified, int) else 0},
    )


def release_test(namespace: str, name: str, timeout_seconds: float) -> int:
    """Wait for a BenchmarkRun with one task and report whether the task passed.

    Args:
        name: Name of the BenchmarkRun.
        timeout_seconds: For the whole run, including image pulls.

    Returns:
        Exit code 0 or 1.

    Raises:
        ClusterError: The API server rejects the requests.
    """
    return asyncio.run(_test(namespace, name, timeout_seconds))


async def _test(namespace: str, name: str, timeout_seconds: float) -> int:
    async with connect(namespace) as cluster:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await follow_to_end(cluster, name)
        except TimeoutError:
            print_error(
                f"BenchmarkRun {namespace}/{name} has not ended after {timeout_seconds:.0f} s; "
                "does the operator run, and can the nodes pull both images?"
            )
            return 1


async def follow_to_end(cluster: Cluster, name: str) -> int:
    """Follow the run to its end, print its state changes and return the exit code.

    Raises:
        ClusterError: There is no such run, or the API server rejects the requests.
    """
    run = await cluster.get(ObjectKind.BENCHMARK_RUN, name)
    if run is None:
        raise ClusterError(f"the BenchmarkRun {name} does not exist; was it deleted?")
    uid = str(object_at(run, "metadata").get("uid"))
    end = await _ended(cluster, name, uid)
    score = object_at(
        object_at(await cluster.get(ObjectKind.BENCHMARK_RUN, name) or {}, "status"), "score"
    )
    if score.get("passed") == 1:
        print_line(f"BenchmarkRun {name}: its task was run, verified and passed")
        return 0
    print_error(f"BenchmarkRun {name} ended with {end.reason}: {end.message or 'no task passed'}")
    return 1


async def _ended(cluster: Cluster, name: str, uid: str) -> RunState:
    printed = ""
    follower = Follower(cluster, asyncio.sleep, lambda line: print_notices([line]))
    async with aclosing(follower.states(name, uid)) as states:
        async for state in states:
            line = f"{state.reason or 'Pending'}: {state.message}"
            if line != printed:
                print_line(line)
            printed = line
            if state.end is not None:
                return state
    raise ClusterError(f"the watch of BenchmarkRun {name} ended")


_ENV_FILE: Final = Path(".env")


class FolderAgent(NamedTuple):
    """The agent for a folder without a tester YAML; ``model`` and ``command`` may be empty."""

    type: str
    model: str
    command: str

    @property
    def config(self) -> Mapping[str, object]:
        """The harness configuration."""
        given = {"model": self.model, "command": self.command}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The flags of ``securebench run`` (contract 2.1), and the cluster.

    Attributes:
        config: Tester YAML, its folder, or the folder of a pack for which ``agent`` is given.
        env_file: None where the flag was not given: then ``.env`` holds, if there is one.
        agent: Agent for a folder without a tester YAML.
        network: As ``harness.config.network``, or None.
        skips_invalid: Whether task folders with errors are left out.
        registry: Where the images of task folders with a Dockerfile are.
        tasks: Ids, or patterns of ids, of the tasks that run; empty for those of the file.
        node_selector: Labels of nodes; empty for those of the file.
    """

    config: Path
    env_file: Path | None
    limit: int | None
    resume: bool
    parallelism: int | None
    target: ClusterTarget
    output_dir: Path | None = None
    quiet: bool = False
    show_command_output: bool = False
    show_agent_output: bool = False
    fail_below: float | None = None
    attempts: int | None = None
    prices: Path | None = None
    budget_tokens: int | None = None
    agent: FolderAgent | None = None
    network: str | None = None
    skips_invalid: bool = False
    registry: str = ""
    tasks: tuple[str, ...] = ()
    deadline_seconds: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)


class RunCommand:
    """One invocation of ``securebench run``."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._session: RunSession | None = None

    def __call__(self) -> int:
        """Execute the command and return the exit code."""
        options = self._options
        config, prepared = prepared_run(options)
        try:
            end = asyncio.run(self._execute(config, prepared))
        except KeyboardInterrupt:
            self._print_rejoin_hint()
            return INTERRUPTED
        _print_skipped(prepared)
        return conclude(end, is_quiet=options.quiet, fail_below=options.fail_below)

    async def _execute(self, config: TesterConfig, prepared: PreparedSubmission) -> RunEnd:
        options = self._options
        with self._reporter(config) as reporter:
            async with open_session(
                config,
                prepared,
                reporter,
                options.target,
                options.parallelism,
                self._watching(config),
            ) as session:
                self._session = session
                return await session.execute()

    def _watching(self, config: TesterConfig) -> Watching:
        options = self._options
        if options.quiet:
            return Watching()
        shows_output = options.show_agent_output and is_live(config)
        return Watching(shows_output, in_flight=can_draw(stderr_console()))

    @contextmanager
    def _reporter(self, config: TesterConfig) -> Iterator[Reporter]:
        console = stderr_console()
        show_output = self._options.show_command_output
        if self._options.quiet:
            yield WarningReporter(console)
        elif can_draw(console):
            with LiveReporter(console, time.monotonic, show_command_output=show_output) as live:
                yield self._with_agent_output(live, console, config)
        else:
            lines = LineReporter(console, show_command_output=show_output, clock=time.monotonic)
            yield self._with_agent_output(lines, console, config)

    def _with_agent_output(
        self, reporter: Reporter, console: Console, config: TesterConfig
    ) -> Reporter:
        if not self._options.show_agent_output:
            return reporter
        command = config.harness.config.get("command", "")
        text = " ".join(map(str, command)) if isinstance(command, list) else str(command)
        return AgentOutputReporter(reporter, console, shown_agent(config.harness.type, text))

    def _print_rejoin_hint(self) -> None:
        if self._session is None or self._session.name is None:
            sys.stderr.write("securebench: interrupted; nothing was started\n")
            return
        command = shlex.join(["securebench", *sys.argv[1:]])
        sys.stderr.write(
            f"securebench: interrupted; BenchmarkRun {self._session.name} continues."
            f" Follow it again with: {command}\n"
        )


def prepared_run(options: RunOptions) -> tuple[TesterConfig, PreparedSubmission]:
    """Read and check everything local, and print what is suspicious.

    Raises:
        ConfigErrors: Configuration or pack are invalid.
    """
    env_file = options.env_file or _ENV_FILE
    load_env_file(env_file)
    if options.env_file is not None and not env_file.exists():
        print_notices([f"--env-file: there is no file {env_file}; no variable comes from it"])
    config = with_tester_overrides(
        _loaded(options),
        output_dir=options.output_dir,
        attempts=options.attempts,
        limit=options.limit,
        resume=options.resume,
        budget_tokens=options.budget_tokens,
    )
    config = with_spec_overrides(
        config,
        tasks=options.tasks,
        deadline_seconds=options.deadline_seconds,
        node_selector=options.node_selector,
    )
    config = with_task_overrides(
        config,
        network=options.network,
        folders=FolderOptions(options.skips_invalid, options.registry),
    )
    if options.prices is not None:
        config = replace(config, prices={**config.prices, **load_prices(options.prices)})
    prepared = prepare(config)
    print_notices(prepared.warnings)
    _print_skipped(prepared)
    print_notices(_missing_variables(config, env_file))
    return config, prepared


def _loaded(options: RunOptions) -> TesterConfig:
    agent = options.agent
    if agent is None:
        return load_tester_config(options.config)
    if not options.config.is_dir() or (options.config / TESTER_FILE).exists():
        reason = f"{options.config}: --agent is for a folder without {TESTER_FILE}, which names one"
        raise InvalidInputError(reason)
    return folder_config(options.config, agent.type, agent.config)


def _print_skipped(prepared: PreparedSubmission) -> None:
    if prepared.skipped:
        print_notices([f"skipped: {each}" for each in prepared.skipped])


def _missing_variables(config: TesterConfig, env_file: Path) -> Iterator[str]:
    if agent_named(config.harness.type).cli is not None:
        return
    for name in without_value(config.harness, os.environ):
        yield (
            f"harness.env: {name} is not set, so the harness runs without it;"
            f" set it in the environment or in {env_file}"
        )


def is_live(config: TesterConfig) -> bool:
    """Whether the agent's output can be shown while it works.

    Values of ``harness.env`` can be scrubbed only from complete outputs, so with any such value
    nothing is shown before the record arrives.
    """
    harness = config.harness
    return agent_named(harness.type).cli is not None and not forwarded_env(
        harness.type, harness.env, harness.config
    )


def conclude(end: RunEnd, *, is_quiet: bool = False, fail_below: float | None = None) -> int:
    """Print the end of a run and return the exit code.

    Args:
        end: How the run ended.
        is_quiet: Whether to leave out why attempts did not pass.
        fail_below: Smallest score that is accepted; None accepts every score.
    """
    summary = end.summary
    if summary is not None and not is_quiet:
        print_reasons(Path(summary.output_path))
        print_figures(summary)
    if end.exit_code != 0 or summary is None:
        print_error(end.failure())
        return end.exit_code or 1
    if end.state.reason == Reason.INCOMPLETE:
        missing = summary.total - summary.verified
        print_notices([f"{missing} of {summary.total} attempts have no verdict"])
    code = score_code(summary.passed, summary.verified, fail_below)
    return print_result(summary) or code


def submit(options: RunOptions, form: OutputForm) -> int:
    """Upload the pack, create the BenchmarkRun and leave it; an equal active run is named instead.

    Args:
        options: As for ``securebench run``; what is about following it has no effect.
        form: How the run is named.
    """
    config, prepared = prepared_run(options)
    started = asyncio.run(_submit(config, prepared, options))
    _tell(config, started, form)
    return 0


async def _submit(
    config: TesterConfig, prepared: PreparedSubmission, options: RunOptions
) -> Started:
    reporter = WarningReporter(stderr_console())
    async with open_session(
        config, prepared, reporter, options.target, options.parallelism
    ) as session:
        return await session.submit()


def _tell(config: TesterConfig, started: Started, form: OutputForm) -> None:
    name = started.state.name
    how = "is active already" if started.is_joined else "is created"
    print_note(f"BenchmarkRun {name} {how}; follow it with: securebench watch {name}")
    if form.is_data:
        fields = {"name": name, "run_id": config.run.id, "is_joined": started.is_joined}
        print_objects([fields], form)
    else:
        print_line(f"run={name} run_id={config.run.id}")


_NOT_CONTINUED = frozenset({"cancel", "suspend"})


def resume(run: str, target: ClusterTarget) -> int:
    """Resume a suspended run, or continue one that has ended."""
    print_line(asyncio.run(_resume(run, target)))
    return 0


async def _resume(name: str, target: ClusterTarget) -> str:
    async with open_cluster(target) as cluster:
        run = await require_one_run(cluster, name)
        state = run_state(run)
        if state.end is not None:
            return await _continue(cluster, run)
        if not object_at(run, "spec").get("suspend"):
            raise InvalidInputError(
                f"BenchmarkRun {state.name} is neither suspended nor ended;"
                f" follow it with securebench watch {state.name}"
            )
        change = {"spec": {"suspend": False}}
        await cluster.patch(ObjectKind.BENCHMARK_RUN, state.name, change)
        return f"run={state.name} suspend=false"


async def _continue(cluster: Cluster, earlier: Raw) -> str:
    """Create the run that continues an earlier one, and let it own its Secrets too."""
    old, run_id = run_state(earlier).name, run_id_of(earlier)
    regraded = text_at(object_at(object_at(earlier, "spec"), "regrade"), "run")
    if regraded:
        raise InvalidInputError(
            f"run {old} only graded run {regraded} again; resume that one, or grade it again"
        )
    kept = object_at(earlier, "spec").items()
    spec = {key: value for key, value in kept if key not in _NOT_CONTINUED}
    uid = text_at(object_at(earlier, "metadata"), "uid")
    spec |= {"runId": run_id, "resumeFrom": {"run": old, "uid": uid}}
    name = run_name(run_id, random_suffix())
    await create_like(cluster, name, spec, earlier, ("harness", "provider"))
    return f"run={name} resumes={old}"


async def create_like(
    cluster: Cluster, name: str, spec: Raw, earlier: Raw, sections: Sequence[str]
) -> None:
    """Create a run with the Secrets of an earlier one, which it then owns too.

    Args:
        name: Name of the new run.
        sections: Sections of the spec whose ``secretRef`` it needs.

    Raises:
        InvalidInputError: A Secret is gone.
        ClusterError: The API server refused something.
    """
    old = run_state(earlier).name
    used = [await _require_secret(cluster, each, old) for each in _secret_names(spec, sections)]
    digest = text_at(object_at(object_at(earlier, "status"), "resolved"), "harnessDigest")
    notes = object_at(object_at(earlier, "metadata"), "annotations")
    manifest = run_manifest(name, spec, digest or text_at(notes, HARNESS_DIGEST_ANNOTATION))
    run = await cluster.create(ObjectKind.BENCHMARK_RUN, manifest)
    for secret in used:
        if is_owned_by(secret, earlier):
            place = text_at(object_at(secret, "metadata"), "name")
            await cluster.patch(ObjectKind.SECRET, place, shared_owners_patch(secret, run))


def _secret_names(spec: Mapping[str, object], sections: Sequence[str]) -> Iterator[str]:
    for section in sections:
        name = text_at(object_at(object_at(spec, section), "secretRef"), "name")
        if name:
            yield name


async def _require_secret(cluster: Cluster, name: str, run: str) -> Raw:
    secret = await cluster.get(ObjectKind.SECRET, name)
    if secret is None:
        raise InvalidInputError(
            f"the Secret {name} that run {run} used is gone; set the variables again and start it"
            " with securebench run --resume and its tester YAML"
        )
    return secret


_NOT_REGRADED = frozenset({"cancel", "suspend", "runId", "resumeFrom", "regrade"})


def regrade(run: str, name: str, pack: str, target: ClusterTarget, *, is_awaited: bool) -> int:
    """Create the run that grades an earlier one again.

    Args:
        run: Name or run id of a BenchmarkRun that has ended.
        name: Name of the new BenchmarkRun; empty: made from that of the earlier one.
        pack: Folder of the pack on the results volume; empty: the pack of the earlier run.
        is_awaited: Whether to follow it to its end.
    """
    old, new = asyncio.run(_create(run, name, pack, target))
    print_note(f"when it has ended, see what flipped: securebench results --diff {old} {new}")
    if is_awaited:
        return watch(new, WatchOptions(OutputForm.TEXT, None), target)
    print_line(f"run={new} regrades={old}")
    return 0


async def _create(text: str, name: str, pack: str, target: ClusterTarget) -> tuple[str, str]:
    """Return the names of the earlier run and of the new one."""
    async with open_cluster(target) as cluster:
        earlier = await require_one_run(cluster, text)
        state = run_state(earlier)
        if state.end is None:
            raise InvalidInputError(
                f"BenchmarkRun {state.name} has not ended; follow it with"
                f" securebench watch {state.name}"
            )
        name = name or run_name(state.name, random_suffix())
        spec = regrade_spec(earlier, pack)
        try:
            await create_like(cluster, name, spec, earlier, ("harness",))
        except AlreadyExists:
            raise InvalidInputError(
                f"there is a BenchmarkRun {name} already; choose another --name"
            ) from None
        return state.name, name


def regrade_spec(earlier: Raw, folder: str = "") -> Raw:
    """Return the spec of the run that grades an earlier one again.

    Args:
        folder: Folder of the pack on the results volume; empty: the earlier pack as it is now,
            whatever digest it had.
    """
    kept = object_at(earlier, "spec").items()
    spec = {key: value for key, value in kept if key not in _NOT_REGRADED}
    pack = {key: value for key, value in object_at(spec, "pack").items() if key != "digest"}
    if folder:
        pack = {"volume": {"path": folder}}
    uid = text_at(object_at(earlier, "metadata"), "uid")
    return {**spec, "pack": pack, "regrade": {"run": run_state(earlier).name, "uid": uid}}
