"""``securebench results RUN --why``: every launch of an attempt, and how and why it ended."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from securebench.client.inspection.find import find_state
from securebench.client.output import print_note
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.volume.connection import ClusterTarget, open_connection
from securebench.client.volume.link import OperatorLink
from securebench.client.volume.watch_answers import FoundLaunches
from securebench.client.watch.in_flight import STARTING_SECONDS
from securebench.clock import rfc3339
from securebench.errors import InvalidInputError
from securebench.json_values import number_at, object_at, objects_at, text_at
from securebench.run.api.field_types import Outcome
from securebench.run.observe.launches import (
    Stage,
    is_killed_for_memory,
    launch_notes,
    launch_stages,
    launches_of,
    stage_at_end,
    usage_text,
)
from securebench.text import printable

Fields = Mapping[str, object]

_RUNNING = "running"
"""The ``end`` of a launch that has none in the journal."""

_CUTS: Mapping[str, str] = {"lost": "was lost", "ended": "ended"}
"""What cut the last stage of a launch short, by ``end``."""


def print_launches(run: str, task: str, form: OutputForm, target: ClusterTarget) -> int:
    """Print the launches of a task, or of all attempts that did not pass or met a limit.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        task: Id of the task or ``#`` and its index from 0; empty for all of these.
        form: Indented text, or one object for each attempt.
        target: Namespace of the run.
    """
    return asyncio.run(_why(run, task, form, target))


async def _why(run: str, task: str, form: OutputForm, target: ClusterTarget) -> int:
    async with open_connection(target) as connection:
        state = await find_state(connection, run)
        found = await _found(connection.link, state.uid, task)
    pods = _shared_pods(found.attempts)
    for attempt in found.attempts:
        if form.is_data:
            print_objects([attempt], form)
        else:
            lines = attempt_lines(attempt, pods, found.now)
            sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    for note in launch_notes(found.attempts):
        print_note(note)
    if not found.attempts:
        print_note("every attempt that was launched has passed")
    if found.left_out:
        print_note(f"{found.left_out} more attempts did not fit; name a task to see it")
    return 0


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
    return "starting" if end == _RUNNING and is_young and "read_at" not in launch else end


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
