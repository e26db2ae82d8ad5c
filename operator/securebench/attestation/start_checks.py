"""Check the list of started runs against what a statement says of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import cast

from securebench.attestation.findings import Mismatch, bounded
from securebench.attestation.starts import (
    StartList,
    is_counted,
    requesters_behind,
    same_agent_runs,
    same_runs,
)
from securebench.attestation.statement import differing, start_fields
from securebench.json_values import object_at, objects_at, text_at
from securebench.protocol.volume import STARTS
from securebench.text import listed

Raw = Mapping[str, object]

SHOWN_RUNS = 10
"""Runs that a finding names."""


def start_findings(starts: StartList, predicate: Raw, binding: Raw) -> Iterator[Mismatch]:
    """Yield what is wrong with the list.

    Args:
        starts: The list, which may have grown since.
        predicate: Predicate of the statement.
        binding: ``run.json``.
    """
    yield from bounded(Mismatch(STARTS, "", fault) for fault in starts.faults)
    told = object_at(predicate, "starts")
    count, digest = told.get("count"), text_at(object_at(told, "digest"), "sha256")
    if not isinstance(count, int):
        return
    if starts.size < count:
        problem = f"has {starts.size} lines, the statement saw {count}: its end was cut off"
        yield Mismatch(STARTS, "", problem)
        return
    if count:
        yield from _prefix_findings(starts, count, digest)
    uid = text_at(object_at(predicate, "run"), "uid")
    if starts.of_uid(uid) is None:
        yield Mismatch(STARTS, f"run {uid}", "is not in the list")
    for name in differing(predicate, start_fields(starts, count, binding).items()):
        yield Mismatch(STARTS, "", f"differs from the statement in {name!r}")
    for line in starts.first(count):
        if line.start.get("fault"):
            problem = f"was written behind a damaged list: {line.start['fault']}"
            yield Mismatch(STARTS, f"line {line.number}", problem)


def _prefix_findings(starts: StartList, count: int, digest: str) -> Iterator[Mismatch]:
    last = starts.first(count)[-1:]
    if not last or last[0].number != count or last[0].digest != digest:
        problem = f"is not the line that the statement saw as line {count}: the list was edited"
        yield Mismatch(STARTS, f"line {count}", problem)


def start_notes(predicate: Raw, starts: StartList | None) -> Iterator[str]:
    """Yield which other runs were started with this run id on this pack.

    Runs of other users are named apart: they are no tries behind this score.
    """
    run, told = object_at(predicate, "run"), object_at(predicate, "starts")
    found = objects_at(told, "runs")
    uid = text_at(run, "uid")
    listed_starts = [line.start for line in starts.lines] if starts is not None else []
    behind = requesters_behind([*listed_starts, *found], uid)
    known, others = _by_requester(found, behind)
    if len(known) > 1:
        names = _names(known)
        yield f"{len(known)} runs with run id {run.get('runId')!r} on this pack: {names}"
    if others:
        names = _names(others)
        yield f"{len(others)} more by others with run id {run.get('runId')!r}: {names}"
    own = [each for each in known if each.get("uid") == uid]
    if starts is None or not own:
        return
    last = cast("int", told["count"]) if isinstance(told.get("count"), int) else 0
    newer = [line for line in starts.lines if line.number > last]
    run_id, pack_digest = text_at(own[0], "run_id"), text_at(own[0], "pack_digest")
    later, _ = _by_requester(same_runs(newer, run_id, pack_digest), behind)
    tried, by_others = _by_requester(same_agent_runs(starts.lines, own[0]), behind)
    agent = f"agent {text_at(own[0], 'agent')} with {text_at(own[0], 'model') or 'any model'}"
    if len(tried) > len(known) + len(later):
        yield (
            f"{len(tried)} runs of {agent} on this pack, under any run id and with any other"
            f" settings: {_names(tried)}"
        )
    if later:
        yield f"{len(later)} more were started after this one had ended: {_names(later)}"
    if len(by_others) > len(others):
        yield f"{len(by_others)} more by others of {agent} on this pack: {_names(by_others)}"


def _by_requester(starts: list[Raw], behind: Collection[str]) -> tuple[list[Raw], list[Raw]]:
    """Return the runs that count as tries of some users, and those of others."""
    own: list[Raw] = []
    others: list[Raw] = []
    for each in starts:
        (own if is_counted(text_at(each, "requester"), behind) else others).append(each)
    return own, others


def _names(starts: list[Raw]) -> str:
    shown = [f"{text_at(each, 'run')} ({text_at(each, 'started_at')})" for each in starts]
    return listed(shown, SHOWN_RUNS)
