"""The command ``securebench why`` and ``results --why``: why a run waits, and how launches ended.

``why`` prints what a run waits for, or why it or its attempts failed, and what to do about it.
``results RUN --why`` prints every launch of an attempt, and how and why it ended.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from securebench.client.follow import RunState, RunView, run_state, run_view
from securebench.client.live import STARTING_SECONDS, AttemptInFlight
from securebench.client.live import in_flight as in_flight_of
from securebench.client.output import OutputForm, print_note, print_objects
from securebench.client.progress import minutes
from securebench.client.runs import find_state, require_run
from securebench.client.volume import (
    ClusterTarget,
    Connection,
    FoundLaunches,
    OperatorLink,
    open_cluster,
    open_connection,
)
from securebench.clock import rfc3339
from securebench.errors import ClusterError, InvalidInputError, SecureBenchError
from securebench.json_values import number_at, object_at, objects_at, text_at
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.observe.launches import (
    Stage,
    is_killed_for_memory,
    launch_notes,
    launch_stages,
    launches_of,
    stage_at_end,
    usage_text,
)
from securebench.run.observe.waiting import is_about_unpulled
from securebench.run.state.history import LaunchEnd
from securebench.text import printable

ADVICE: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.INCOMPLETE: "run what has no verdict again: securebench resume RUN",
        Reason.INVALID_SPEC: "correct the spec as the message says and create a new run",
        Reason.PACK_INVALID: "securebench pack lint shows the same with file and line; push the"
        " corrected pack and start again",
        Reason.ISOLATION_NOT_VERIFIED: "the cluster does not enforce network policies for this"
        " namespace; ask its administrator",
        Reason.DEADLINE_EXCEEDED: "raise activeDeadlineSeconds or parallelism, then securebench"
        " resume RUN",
        Reason.CANCELLED: "run the rest: securebench resume RUN",
        Reason.BUDGET_EXHAUSTED: "run the rest with a budget of its own: securebench resume RUN",
        Reason.POD_REFUSED: "the API server refuses the Pods; the message says why, a policy or"
        " Pod Security may be at work",
        Reason.GATEWAY_FAILED: "check the provider's key and address, then securebench resume RUN",
        Reason.STORAGE_UNAVAILABLE: "the operator tries again; its administrator looks at the"
        " results volume",
        Reason.INTERNAL: "the operator tries again; kubectl logs of its Pod has the error",
        Reason.CANCELLING: "wait for the launches in progress, or end them too: securebench cancel"
        " --now RUN",
        Reason.SUSPENDED: "resume it: securebench resume RUN",
        Reason.QUOTA_EXCEEDED: "wait for other Pods to end, lower parallelism, or ask for more"
        " quota",
        Reason.FORBIDDEN: "rights or an admission policy refuse what the run needs; ask the"
        " administrator",
        Reason.UNSCHEDULABLE: "no node has room: lower resources or parallelism, or wait for a"
        " node",
        Reason.SCHEDULING_GATED: "wait for the queue; kubectl describe workloads shows why Kueue"
        " admits no Pod: no quota, or no such queue",
        Reason.QUEUED: "wait for other runs of this operator to end",
        Reason.INPUT_MISSING: "create the missing pack, Secret or earlier run; the run goes on by"
        " itself",
    }
)
"""A reason without an entry asks nothing of anybody."""


IMAGE_ADVICE = (
    "correct environment.image in the pack, or push the image; to end this run: securebench cancel"
    " --now RUN"
)
"""About an image that cannot be pulled, whatever the reason."""


def advice(reason: str, run: str, message: str = "") -> str:
    """Return what to do about a run in this state, or an empty text.

    Args:
        reason: Reason of its condition ``Succeeded``.
        message: The message of that condition.
    """
    found = next((words for key, words in ADVICE.items() if key.value == reason), "")
    if not found and is_about_unpulled(message):
        found = IMAGE_ADVICE
    return found.replace("RUN", run)


Fields = Mapping[str, object]

_CUTS: Mapping[str, str] = {LaunchEnd.LOST: "was lost", LaunchEnd.ENDED: "ended"}
"""What cut the last stage of a launch short, by ``end``."""


def print_launches(
    run: str, task: str, form: OutputForm, target: ClusterTarget, attempt: int | None = None
) -> int:
    """Print the launches of a task, or of all attempts that did not pass or met a limit.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        task: Id of the task or ``#`` and its index from 0; empty for all of these.
        form: Indented text, or one object for each attempt.
        attempt: Only this one; None for all.
    """
    return asyncio.run(_why(run, task, form, target, attempt))


async def _why(
    run: str, task: str, form: OutputForm, target: ClusterTarget, attempt: int | None
) -> int:
    async with open_connection(target) as connection:
        state = await find_state(connection, run)
        found = await _found(connection.link, state.uid, task)
    if attempt is not None:
        found = _only(found, attempt)
    pods = _shared_pods(found.attempts)
    for each in found.attempts:
        if form.is_data:
            print_objects([each], form)
        else:
            lines = attempt_lines(each, pods, found.now)
            sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    for note in launch_notes(found.attempts):
        print_note(note)
    if not found.attempts:
        print_note("every attempt that was launched has passed")
    if found.left_out:
        print_note(f"{found.left_out} more attempts did not fit; name a task to see it")
    return 0


def _only(found: FoundLaunches, attempt: int) -> FoundLaunches:
    """Return one attempt of those that were found.

    Raises:
        InvalidInputError: It is not among them.
    """
    chosen = tuple(each for each in found.attempts if each.get("attempt") == attempt)
    if not chosen:
        numbers = ", ".join(sorted({str(each.get("attempt")) for each in found.attempts}))
        raise InvalidInputError(f"there is no attempt {attempt}; there is {numbers or 'none'}")
    return found._replace(attempts=chosen)


async def _found(link: OperatorLink, uid: str, task: str) -> FoundLaunches:
    if not task:
        # An operator of an earlier version refuses it: it sends no attempts that passed.
        with suppress(InvalidInputError):
            return await link.get_launches(uid, task, with_noisy=True)
    return await link.get_launches(uid, task)


def attempt_lines(attempt: Fields, pods: Mapping[str, Fields], now: float) -> Iterator[str]:
    """Yield one line about an attempt and some about each of its launches.

    Args:
        attempt: As ``get-launches`` sends it.
        pods: Evidence of the Pods that launches share, by ``batch_name``.
        now: The operator's clock, seconds since the epoch.
    """
    yield attempt_line(attempt)
    yield from dropped_lines(attempt)
    for launch in launches_of(attempt):
        yield f"  {launch_line(launch, now)}"
        evidence = object_at(launch, "evidence") or pods.get(batch_name(launch), {})
        yield from (f"    {line}" for line in _evidence_lines(launch, evidence))


def attempt_line(attempt: Fields) -> str:
    """Return how an attempt ended."""
    name = text_at(attempt, "task_id") or f"#{attempt.get('task')}"
    return f"{name} attempt {attempt.get('attempt')}: {_end_of_attempt(attempt)}"


def dropped_lines(attempt: Fields) -> Iterator[str]:
    """Yield what of an attempt's patch was not applied, and why."""
    dropped = attempt.get("dropped")
    shown = dropped if isinstance(dropped, list) else []
    yield from (f"  not applied: {each}" for each in shown)
    more = int(number_at(attempt, "dropped_total") or 0) - len(shown)
    if more > 0:
        yield f"  not applied: {more} more paths"


def batch_name(launch: Fields) -> str:
    """Return the name of the batch that a launch belongs to, or an empty text."""
    batch = launch.get("batch")
    return json.dumps(batch) if batch else ""


def _shared_pods(attempts: Sequence[Fields]) -> dict[str, Fields]:
    launches = [launch for attempt in attempts for launch in launches_of(attempt)]
    return {
        batch_name(launch): object_at(launch, "evidence")
        for launch in launches
        if batch_name(launch) and launch.get("evidence")
    }


def _end_of_attempt(attempt: Fields) -> str:
    passed = attempt.get("passed")
    outcome = text_at(attempt, "outcome")
    if passed is True or not (outcome or isinstance(passed, bool)):
        return "passed" if passed else "no record yet"
    # An operator of an earlier version says neither.
    words = [text_at(attempt, key) for key in ("why", "said")]
    words = words if any(words) else [text_at(attempt, key) for key in ("reason", "message")]
    end = "not passed" if passed is False and outcome in {"", Outcome.SCORED} else outcome
    return ": ".join(dict.fromkeys(filter(None, [end, *words])))


def launch_line(launch: Fields, now: float) -> str:
    """Return how a launch ended, or what it does or waits for.

    Args:
        launch: As ``get-launches`` sends it.
        now: The operator's clock, seconds since the epoch.
    """
    begun = number_at(launch, "begun_at")
    since = f" at {rfc3339(begun)}" if begun is not None else ""
    words = [text_at(launch, key) for key in ("reason", "message")]
    end = ": ".join(filter(None, [_state(launch, now), *words, _exit(launch)]))
    return f"{launch.get('role')} launch {launch.get('launch')}{since}: {end}"


def _state(launch: Fields, now: float) -> str:
    """Return the ``end`` of a launch; of one without an end what it waits for, if it does."""
    end, wait = text_at(launch, "end"), text_at(launch, "wait")
    if wait:
        return f"{end}, {wait}" if launch.get("has_begun") is True else wait
    is_young = now - (number_at(launch, "begun_at") or 0.0) < STARTING_SECONDS
    return "starting" if end == LaunchEnd.RUNNING and is_young else end


def _exit(launch: Fields) -> str:
    command = object_at(launch, "command")
    code, kills = command.get("exit_code"), command.get("memory_kills")
    words = [f"exit code {code}"] if code is not None else []
    words += ["ran into its time limit"] if command.get("timed_out") else []
    words += [f"{kills} processes killed at the memory limit"] if kills else []
    return ", ".join(words)


def _evidence_lines(launch: Fields, evidence: Fields) -> Iterator[str]:
    facts = object_at(launch, "facts")
    node = text_at(evidence, "node") or text_at(facts, "node")
    if node:
        yield f"node {node}"
    stages = [_stage_words(stage) for stage in launch_stages(launch, evidence)]
    cut = stage_at_end(launch, evidence)
    if cut is not None:
        stages.append(f"{_stage_words(cut)} until it {_CUTS[text_at(launch, 'end')]}")
    if any(stages):
        yield ", ".join(filter(None, stages))
    reasons = [text_at(evidence, key) for key in ("reason", "message")]
    if any(reasons):
        yield f"Pod: {': '.join(filter(None, reasons))}"
    containers = objects_at(evidence, "containers")
    yield from map(_container_line, containers)
    if not containers and text_at(facts, "image_id"):
        yield f"image {text_at(facts, 'image_id')}"


def _stage_words(stage: Stage) -> str:
    if stage.begin is None or stage.end is None:
        return ""
    # Kubernetes rounds its times down to seconds.
    return f"{stage.name} {max(stage.end - stage.begin, 0.0):.1f} s"


def _container_line(container: Fields) -> str:
    reason, message = text_at(container, "reason"), text_at(container, "message")
    code, restarts = container.get("exit_code"), container.get("restarts")
    words = [f"exit code {code}"] if code is not None else []
    words += ["killed for memory"] if is_killed_for_memory(container) else [reason, message]
    words += usage_text(container)
    words += [f"{restarts} restarts"] if restarts else []
    words += [_image(container)]
    words += [
        f"{name} {amounts}"
        for name in ("requests", "limits")
        if (amounts := _amounts(object_at(container, name)))
    ]
    return f"container {container.get('name')}: {', '.join(filter(None, words))}"


def _image(container: Fields) -> str:
    image, resolved = text_at(container, "image"), text_at(container, "image_id")
    # Of an image that was loaded on the node the kubelet tells only the id.
    is_bare = image and resolved.startswith("sha256:")
    return f"{image} ({resolved})" if is_bare else resolved or image


def _amounts(quantities: Fields) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(quantities.items()))


_MAX_LINES = 20
"""Attempts of a kind that are listed."""

_NO_LAUNCHES = FoundLaunches((), 0)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What is known of a run.

    Attributes:
        view: None for a run whose BenchmarkRun is gone.
        in_flight: Attempts in flight.
        launches: Attempts without a passing verdict, with their launches.
        unknown: Why the operator's Pod could not be asked, or empty.
    """

    state: RunState
    view: RunView | None
    in_flight: tuple[AttemptInFlight, ...] = ()
    launches: FoundLaunches = _NO_LAUNCHES
    unknown: str = ""


def explain(
    run: str, task: str, form: OutputForm, target: ClusterTarget, attempt: int | None = None
) -> int:
    """Print what a run waits for, and why it or its attempts failed.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        task: Id of a task or ``#`` and its index from 0, to print all of its launches; or empty.
        form: Lines; with all launches; or as data.
        attempt: Only this attempt of the task; None for all.
    """
    if task:
        return print_launches(run, task, form, target, attempt)
    found = asyncio.run(_explained(run, target))
    if form.is_data:
        print_objects([_data(found)], form)
        return 0
    sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(found, form))
    if found.unknown:
        print_note(f"the operator's Pod could not be asked about attempts: {found.unknown}")
    return 0


async def _explained(run: str, target: ClusterTarget) -> _Explained:
    try:
        async with open_connection(target) as connection:
            return await _asked(connection, run)
    except ClusterError as error:
        async with open_cluster(target) as cluster:
            state = run_state(await require_run(cluster, run))
        return _Explained(state, run_view(state.run), unknown=str(error))


async def _asked(connection: Connection, run: str) -> _Explained:
    state = await find_state(connection, run)
    view = run_view(state.run) if state.run else None
    link, unknown = connection.link, ""
    in_flight: tuple[AttemptInFlight, ...] = ()
    if state.end is None and view is not None and view.active:
        try:
            active = await link.get_active(state.uid)
            in_flight = in_flight_of(active, await link.list_tasks(state.uid))
        except SecureBenchError as error:
            unknown = str(error)
    launches = await link.get_launches(state.uid, "")
    return _Explained(state, view, in_flight, launches, unknown)


def _lines(found: _Explained, form: OutputForm) -> Iterator[str]:
    state = found.state
    message = f": {state.message}" if state.message else ""
    yield f"run {state.name}: {state.reason or 'not seen by the operator yet'}{message}"
    hint = advice(state.reason, state.name, state.message)
    if hint:
        yield f"  to do: {hint}"
    yield from _in_flight_lines(found.in_flight)
    failed = [each for each in found.launches.attempts if _has_ended(each)]
    for attempt in failed[:_MAX_LINES]:
        yield attempt_line(attempt)
        yield from dropped_lines(attempt)
        launches = launches_of(attempt)
        for launch in launches if form is OutputForm.WIDE else launches[-1:]:
            yield f"  {launch_line(launch, found.launches.now)}"
        yield f"  what was printed: securebench logs {state.name} {_task_name(attempt)}"
    more = len(failed) - _MAX_LINES + found.launches.left_out
    if more > 0:
        yield f"and {more} more; name a task, or take -o json for all of them"


def _task_name(attempt: Mapping[str, object]) -> str:
    """Return what names the task in a shell."""
    return shlex.quote(text_at(attempt, "task_id") or f"#{attempt.get('task')}")


def _in_flight_lines(attempts: Sequence[AttemptInFlight]) -> Iterator[str]:
    for each in attempts[:_MAX_LINES]:
        yield f"{each.task} attempt {each.attempt}: {each.step} for {minutes(each.seconds)}"
    if len(attempts) > _MAX_LINES:
        yield f"and {len(attempts) - _MAX_LINES} more in flight"


def _has_ended(attempt: Mapping[str, object]) -> bool:
    return attempt.get("outcome") is not None or isinstance(attempt.get("passed"), bool)


def _data(found: _Explained) -> dict[str, object]:
    state = found.state
    return {
        "name": state.name,
        "state": state.reason,
        "message": state.message,
        "advice": advice(state.reason, state.name, state.message),
        "in_flight": [each._asdict() for each in found.in_flight],
        "attempts": [dict(each) for each in found.launches.attempts if _has_ended(each)],
        "left_out": found.launches.left_out,
        "unknown": found.unknown,
    }
