"""One disturbed run in memory, from its injections to its verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

import chaos.faults  # noqa: F401 - registers the injectors
from chaos.kit.catalogue import Kind
from chaos.kit.registry import INJECTORS, Injector
from chaos.kit.scene import END, Injection, Moment, Scene, records, scene
from chaos.kit.verdict import Course, Record, Verdict, judge
from securebench.cluster.port import ObjectKind
from securebench.controller.volume.journal import read_journal
from securebench.run.state.entries import Entry, RunEnded

COUNTS = {"harness": 6, "verifier": 2, "canary": 1}
"""How often a role's Pods reach each stage for certain, with something still to come."""


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder that is gone afterwards, in memory where the machine has room for that."""
    shared = Path("/dev/shm")
    place = tempfile.mkdtemp(prefix="chaos-", dir=shared if shared.is_dir() else None)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place)


@cache
def undisturbed(*, egress: bool) -> Course:
    """Return what the run that nothing disturbs leaves."""
    with folder() as root, scene(root, 0, egress=egress) as quiet:
        assert quiet.play()
        assert quiet.errors.lines == []
        return Course(_journal(quiet), records(root, quiet.uid))


def disturbed(faults: Sequence[Kind], seed: int, moment: Moment | None = None) -> Verdict:
    """Play a run with these faults, each at a moment of its own.

    Args:
        faults: The kinds; one may come more than once.
        seed: Of the moments and of what the injectors choose.
        moment: When they come, in place of a moment that the injector allows.
    """
    egress = any(kind.egress for kind in faults)
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    quiet = undisturbed(egress=egress)
    with folder() as root, scene(root, seed, egress=egress) as played:
        played.injections += [_injection(INJECTORS[kind.name], random, moment) for kind in faults]
        has_ended = played.play()
        problems = [*_troubles(played, has_ended=has_ended)]
        allowed = {reason for kind in faults for reason in kind.lost}
        found = judge(Course(_journal(played), _records(played)), quiet, allowed)
        return Verdict((*problems, *found.problems), found.lost, found.is_equal)


def _injection(injector: Injector, random: Random, moment: Moment | None) -> Injection:
    moment = moment or random.choice(injector.moments)
    return Injection(moment, random.randint(1, COUNTS[moment.role]), injector.act)


def _journal(played: Scene) -> Sequence[Entry]:
    """Return the journal as the next operator would read it."""
    return read_journal(played.root / "runs" / played.uid, played.uid).entries


def _records(played: Scene) -> Sequence[Record]:
    try:
        return records(played.root, played.uid)
    except FileNotFoundError:
        return ()


def unfelt(played: Scene) -> Iterator[str]:
    """Yield which faults did not come, or met nobody."""
    for injection in played.injections:
        if not injection.is_done:
            yield f"not injected: {injection.moment} for the {injection.count}th time"
    for is_felt in played.must_feel:
        if not is_felt():
            yield "the fault was not felt"


def _troubles(played: Scene, *, has_ended: bool) -> Iterator[str]:
    """Yield what is wrong with a run besides its records."""
    if not has_ended:
        yield "the run does not end"
    yield from unfelt(played)
    yield from played.errors.lines
    left = [view.name for view in played.views() if view.deleting_since is None]
    if left:
        yield f"Pods are left: {left}"
    ends = [entry.reason for entry in played.entries if isinstance(entry, RunEnded)]
    if ends != [END]:
        yield f"the run ended as {ends}"
    status = played.cluster.objects(ObjectKind.BENCHMARK_RUN)["nightly"].get("status", {})
    counts = status.get("tasks", {}) if isinstance(status, dict) else {}
    if not counts or counts.get("done") != counts.get("total"):
        yield f"the status says {counts}"
