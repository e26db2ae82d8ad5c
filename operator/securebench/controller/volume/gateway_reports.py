"""Reads the files that a run's gateway writes to the volume. Every function blocks.

While the run is active: what its model provider makes wait, and the use of its budget. At the end
of a launch: the gateway's report on it. At the end of the run ``egress.jsonl``, the decisions of
the gateway on every launch in one file; each line is one of the gateway's with ``task_id``,
``task``, ``attempt`` and ``launch`` before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO, NamedTuple

from securebench.controller.volume.store import RunStore
from securebench.errors import DigestMismatchError
from securebench.files import replacing
from securebench.protocol.gateway import (
    LAUNCHES,
    MAX_CAUSE_CHARACTERS,
    MAX_LISTED_WAITS,
    USAGE_FILE,
    WAITS_FILE,
    LaunchReport,
    ProviderWait,
    ProviderWaits,
    RunUsage,
    decode,
)
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import EGRESS
from securebench.reasons import DISK_LIMIT_EXCEEDED, PROVIDER_REASONS
from securebench.run.api.status import MAX_TASK_ID
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan, harness_launch, pod_name
from securebench.run.state.attempts import AttemptHistory, Lost, Usage, usage_of
from securebench.sizes import KIB, MIB

STATE_BYTES = 16 * KIB
"""Longest file that is read; the gateway writes less than 4 KiB."""
_STATUSES = range(600)
_END_OF_TIME = 253_402_300_800.0
"""After the year 9999, which no time that is written has, in seconds since the epoch."""


class GatewayState(NamedTuple):
    """What the files of a run's gateway say; the defaults where they say nothing valid.

    Args:
        waits: Launches that the model provider makes wait.
        tokens_used: Tokens of the run's budget that are used.
    """

    waits: ProviderWaits = ProviderWaits()
    tokens_used: int = 0


def read_gateway_state(store: RunStore) -> GatewayState:
    """Return what the files of the run's gateway say.

    Raises:
        OSError: The volume failed.
    """
    return GatewayState(_waits(_content(store, WAITS_FILE)), _tokens(_content(store, USAGE_FILE)))


def _waits(text: bytes) -> ProviderWaits:
    try:
        waits = decode(ProviderWaits, text)
    except ValueError:
        return ProviderWaits()
    is_sound = len(waits.longest) <= min(MAX_LISTED_WAITS, waits.launches)
    return waits if is_sound and all(map(_is_sound_wait, waits.longest)) else ProviderWaits()


def _is_sound_wait(wait: ProviderWait) -> bool:
    times = (wait.since, wait.since if wait.until is None else wait.until)
    return wait.status in _STATUSES and all(0 <= each < _END_OF_TIME for each in times)


def _tokens(text: bytes) -> int:
    try:
        usage = decode(RunUsage, text)
    except ValueError:
        return 0
    return max(usage.tokens, 0)


def _content(store: RunStore, name: str) -> bytes:
    """Return the content of a gateway's file; empty without one, or for one that is too long."""
    try:
        with store.artifacts.opened(store.gateway, name) as file:
            text = file.read(STATE_BYTES + 1)
    except (FileNotFoundError, DigestMismatchError):
        return b""
    return text if len(text) <= STATE_BYTES else b""


REPORT_BYTES = 64 * KIB
"""A report has about 1 KiB; what is longer is none."""


class ReportMissingError(ValueError):
    """The gateway did not say in the end what a launch did."""


class GatewayReplacedError(ValueError):
    """The gateway was replaced during the launch, so its result is not judged."""


def require_same_gateway(view: PodView, gateway_since: float) -> None:
    """Check that a launch had one gateway throughout.

    Connections that its end cuts look to the agent like servers that fail, and it may give up.

    Args:
        gateway_since: When the run's gateway Pod was created, in seconds since the epoch.

    Raises:
        GatewayReplacedError: The gateway is younger than the launch.
    """
    if view.created_at < gateway_since:
        raise GatewayReplacedError(f"the run's gateway was replaced while Pod {view.name} ran")


def launch_report(store: RunStore, view: PodView, problem: str) -> LaunchReport | None:
    """Return the last word on a launch whose sidecar has ended well.

    Args:
        problem: What ended it, or empty. An eviction for the disk may end the sidecar before its
            last word: then what is known is returned.

    Raises:
        ReportMissingError: There is no report, it is not the last one, or it is of another Pod.
    """
    report = _read_report(store, view.name)
    if problem == DISK_LIMIT_EXCEEDED:
        return report
    if report is None:
        raise ReportMissingError(f"the gateway left no report of Pod {view.name}")
    if report.pod_uid != view.uid:
        raise ReportMissingError(f"the gateway's report of {view.name} is of another Pod")
    if not report.closed:
        raise ReportMissingError(f"the gateway's report of Pod {view.name} is not its last one")
    return report


def lost_usage(store: RunStore, pod: str) -> Usage:
    """Return what a launch without a result asked its model provider, as far as that is known."""
    try:
        return usage_of(_read_report(store, pod))
    except ReportMissingError:
        return Usage()


def budget_tokens(store: RunStore) -> int | None:
    """Return what all launches of a run have used of its budget; None if a report is damaged.

    Args:
        store: The run's folder; 0 where the run had no gateway.
    """
    names = store.artifacts.names(store.gateway, LAUNCHES)
    try:
        reports = [_read_report(store, name[:-5]) for name in names if name.endswith(".json")]
    except ReportMissingError:
        return None
    relays = (report.relay for report in reports if report is not None)
    return sum(relay.budget_tokens for relay in relays if relay is not None)


def with_usage(
    store: RunStore,
    run_uid: str,
    attempts: Mapping[AttemptKey, AttemptHistory],
    lost: Sequence[Lost],
) -> list[Lost]:
    """Add to launches without a result what they asked; a production's is in the journal."""
    return [
        replace(item, usage=lost_usage(store, pod_name(run_uid, item.launch)))
        if attempts[item.launch.attempt_key].live == item.launch
        else item
        for item in lost
    ]


def _read_report(store: RunStore, pod: str) -> LaunchReport | None:
    try:
        with store.artifacts.opened(store.gateway, f"{LAUNCHES}/{pod}.json") as file:
            text = file.read(REPORT_BYTES + 1)
        if len(text) > REPORT_BYTES:
            raise ReportMissingError(f"the gateway's report of Pod {pod} is too long")
        report = decode(LaunchReport, text)
    except FileNotFoundError:
        return None
    except (ValueError, DigestMismatchError) as error:
        raise ReportMissingError(f"the gateway's report of Pod {pod} is damaged: {error}") from None
    if report.pod != pod or not _is_sound_report(report):
        raise ReportMissingError(f"the gateway's report of Pod {pod} is damaged")
    return report


def _is_sound_report(report: LaunchReport) -> bool:
    relay = report.relay
    numbers = [report.requests, report.blocked, report.bytes_up, report.bytes_down]
    if relay is not None:
        numbers += [relay.requests, relay.blocked, relay.failures]
        numbers += [relay.input_tokens, relay.cached_tokens, relay.output_tokens]
        numbers += [relay.reserved_tokens]
    is_known = relay is None or relay.failure in {"", *PROVIDER_REASONS}
    is_short = relay is None or len(relay.failure_cause) <= MAX_CAUSE_CHARACTERS
    return is_known and is_short and min(numbers) >= 0


MAX_EGRESS_BYTES = 256 * MIB
"""Of the file; a line says how many more lines there were."""

MAX_LINE = 8192
"""Of one line of the gateway, which bounds every text in it; a longer one is none of its own."""


def merge_logs(store: RunStore, plan: RunPlan) -> None:
    """Write egress.jsonl from the logs of all launches, in the order of the pack. Blocks.

    Nothing happens where the gateway left no logs.

    Raises:
        OSError: The volume did not do what was asked.
    """
    logs = sorted(_logs(store, plan))
    if not logs:
        return
    with replacing(store.folder / EGRESS, store.staging) as file:
        _write_logs(file, store, plan, logs)


def _write_logs(
    file: BinaryIO, store: RunStore, plan: RunPlan, logs: list[tuple[LaunchKey, str]]
) -> None:
    size = dropped = 0
    for launch, name in logs:
        place = {
            "task_id": plan.tasks[launch.task].task.id[:MAX_TASK_ID],
            "task": launch.task,
            "attempt": launch.attempt,
            "launch": launch.launch,
        }
        for entry in _entries(store, name):
            line = json.dumps(place | entry | place).encode() + b"\n"
            if size + len(line) > MAX_EGRESS_BYTES:
                dropped += 1
            else:
                size += file.write(line)
    if dropped:
        file.write(json.dumps({"dropped_lines": dropped}).encode() + b"\n")


def _entries(store: RunStore, name: str) -> Iterator[dict[str, object]]:
    """Yield the whole lines of a log; one that was cut, as at the end of a gateway, is left out."""
    with suppress(DigestMismatchError), store.artifacts.opened(store.gateway, name) as file:
        while line := file.readline(MAX_LINE):
            try:
                yield dict(decode_object(line))
            except ValueError:
                continue


def _logs(store: RunStore, plan: RunPlan) -> Iterator[tuple[LaunchKey, str]]:
    for name in store.artifacts.names(store.gateway, LAUNCHES):
        pod, dot, ending = name.partition(".")
        launch = harness_launch(plan.identity.uid, pod)
        if dot + ending == ".jsonl" and launch is not None and launch.task in plan.tasks:
            yield launch, f"{LAUNCHES}/{name}"
