"""Reads what a run's gateway says of its launches. Every function blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from securebench.controller.volume.store import RunStore
from securebench.core.reasons import DISK_LIMIT_EXCEEDED, PROVIDER_REASONS
from securebench.core.sizes import KIB
from securebench.protocol.gateway import LAUNCHES, MAX_CAUSE_CHARACTERS, LaunchReport, decode
from securebench.run.observe.pods import PodView
from securebench.run.plan.keys import AttemptKey, pod_name
from securebench.run.state.attempts import AttemptHistory, Lost, Usage, usage_of

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
        view: The launch's Pod.
        gateway_since: When the run's gateway Pod was created, in seconds since the epoch.

    Raises:
        GatewayReplacedError: The gateway is younger than the launch.
    """
    if view.created_at < gateway_since:
        raise GatewayReplacedError(f"the run's gateway was replaced while Pod {view.name} ran")


def launch_report(store: RunStore, view: PodView, problem: str) -> LaunchReport | None:
    """Return the last word on a launch whose sidecar has ended well.

    Args:
        store: The run's folder.
        view: The launch's Pod.
        problem: What ended it, or empty. An eviction for the disk may end the sidecar before its
            last word: then what is known is returned.

    Raises:
        ReportMissingError: There is no report, it is not the last one, or it is of another Pod.
    """
    report = _read(store, view.name)
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
        return usage_of(_read(store, pod))
    except ReportMissingError:
        return Usage()


def budget_tokens(store: RunStore) -> int | None:
    """Return what all launches of a run have used of its budget; None if a report is damaged.

    Args:
        store: The run's folder; 0 where the run had no gateway.
    """
    names = [path.stem for path in (store.gateway_folder / LAUNCHES).glob("*.json")]
    try:
        reports = [_read(store, name) for name in names]
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


def _read(store: RunStore, pod: str) -> LaunchReport | None:
    path = store.gateway_folder / LAUNCHES / f"{pod}.json"
    try:
        with path.open("rb") as file:
            text = file.read(REPORT_BYTES + 1)
        if len(text) > REPORT_BYTES:
            raise ReportMissingError(f"the gateway's report of Pod {pod} is too long")
        report = decode(LaunchReport, text)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportMissingError(f"the gateway's report of Pod {pod} is damaged: {error}") from None
    if report.pod != pod or not _is_sound(report):
        raise ReportMissingError(f"the gateway's report of Pod {pod} is damaged")
    return report


def _is_sound(report: LaunchReport) -> bool:
    relay = report.relay
    numbers = [report.requests, report.blocked, report.bytes_up, report.bytes_down]
    if relay is not None:
        numbers += [relay.requests, relay.blocked, relay.failures]
        numbers += [relay.input_tokens, relay.cached_tokens, relay.output_tokens]
        numbers += [relay.reserved_tokens]
    is_known = relay is None or relay.failure in {"", *PROVIDER_REASONS}
    is_short = relay is None or len(relay.failure_cause) <= MAX_CAUSE_CHARACTERS
    return is_known and is_short and min(numbers) >= 0
