"""The runs of a suite: the cells of its matrix, and one run for each.

Cells come in the order of packs, harnesses and models. A run is named by everything that its score
depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple

from securebench.agents.harness import ProviderHarness
from securebench.agents.registry import agent_named
from securebench.benchmark.pack.oracle import Answers
from securebench.digests import PREFIX, json_digest
from securebench.errors import ConfigErrors, InvalidInputError, SpecError
from securebench.names import (
    AUDIT,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    PURPOSE_LABEL,
    QUEUE_LABEL,
    REQUESTER_ANNOTATION,
    SUITE_CELL_ANNOTATION,
    SUITE_LABEL,
)
from securebench.run.api.field_types import API_VERSION
from securebench.run.api.field_types import KIND as RUN_KIND
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.model import RunIdentity
from securebench.run.plan.score_fields import (
    RunBinding,
    ScoreFields,
    ScoreSettings,
    agent_version,
    score_fields,
    spec_harness,
)
from securebench.suite.api import (
    KIND,
    MAX_CELLS,
    BenchmarkSuiteSpec,
    Exclude,
    Matrix,
    SuiteHarness,
    SuiteModel,
    SuitePack,
    Unavailable,
)

_MATRIX = "spec.matrix"


class CellId(NamedTuple):
    """Names a cell within its suite.

    Args:
        pack: Name of the pack in the matrix.
        harness: Name of the harness.
        model: Name of the model; empty where the harness keeps its own.
    """

    pack: str
    harness: str
    model: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run of a suite is about.

    Attributes:
        id: Its name.
        harness: The harness.
        model: Replaces the model of its configuration; None keeps it.
    """

    id: CellId
    pack: SuitePack
    harness: SuiteHarness
    model: SuiteModel | None


def cells(spec: BenchmarkSuiteSpec) -> tuple[Cell, ...]:
    """Return the cells of a suite: the matrix without what is excluded, then what is included.

    Raises:
        ConfigErrors: A name is unknown, a cell is there twice, none is left or there are too many;
            one line for each.
    """
    matrix = spec.matrix
    problems = [*_unknown_names(matrix)]
    found = _ids(matrix)
    problems += [
        f"{_MATRIX}: cell {cell} is there twice: leave it out of include"
        for cell, count in Counter(found).items()
        if count > 1
    ]
    if not found:
        problems.append(f"{_MATRIX}: exclude leaves no cell")
    if len(found) > MAX_CELLS:
        problems.append(
            f"{_MATRIX} has {len(found)} cells, a suite at most {MAX_CELLS}: exclude some, or make"
            " two suites"
        )
    if problems:
        raise ConfigErrors([SpecError(problem) for problem in problems])
    packs = {item.name: item for item in matrix.packs}
    harnesses = {item.name: item for item in matrix.harnesses}
    models = {item.name: item for item in matrix.models}
    return tuple(
        Cell(cell, packs[cell.pack], harnesses[cell.harness], models.get(cell.model))
        for cell in found
    )


def _ids(matrix: Matrix) -> list[CellId]:
    models = [model.name for model in matrix.models] or [""]
    axes = ([each.name for each in matrix.packs], [each.name for each in matrix.harnesses], models)
    whole = [CellId(*names) for names in product(*axes)]
    left = [cell for cell in whole if not any(_matches(each, cell) for each in matrix.exclude)]
    return left + [CellId(each.pack, each.harness, each.model or "") for each in matrix.include]


def _matches(exclude: Exclude, cell: CellId) -> bool:
    wanted = CellId(exclude.pack or "", exclude.harness or "", exclude.model or "")
    return all(not name or name == of for name, of in zip(wanted, cell, strict=True))


def _unknown_names(matrix: Matrix) -> Iterator[str]:
    known = {
        "pack": _names(matrix.packs),
        "harness": _names(matrix.harnesses),
        "model": _names(matrix.models),
    }
    for field in ("include", "exclude"):
        for index, item in enumerate(getattr(matrix, field)):
            for axis, names in known.items():
                name = getattr(item, axis)
                if name is not None and name not in names:
                    yield f"{_MATRIX}.{field}[{index}].{axis}: the matrix has no {axis} {name!r}"


def _names(items: Sequence[SuitePack | SuiteHarness | SuiteModel]) -> set[str]:
    return {item.name for item in items}


DIGITS = 12
"""Hexadecimal digits of the digest in the name of a run."""


class PackContent(NamedTuple):
    """Current content of a pack.

    Args:
        digest: Contract 15.6.
        answers: Digest of its file of reference answers; empty without one.
    """

    digest: str
    answers: str = ""


class SuiteIdentity(NamedTuple):
    """The BenchmarkSuite that runs belong to.

    Args:
        queue: Its label for Kueue, which its runs get; or empty.
        requester: Whom its annotation names as the user who requests its runs, or empty; its runs
            get it.
    """

    name: str
    uid: str
    queue: str = ""
    requester: str = ""


class Trigger(NamedTuple):
    """Why cells run again.

    Args:
        rerun: Value of the annotation for a manual run; empty without it.
        scheduled: The time of the schedule, RFC 3339, where every time counts; else empty.
    """

    rerun: str = ""
    scheduled: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The run of a cell.

    Attributes:
        cell: Cell of the matrix.
        spec: Spec of its BenchmarkRun, with the digest of its pack.
        audit: Whether it examines the pack.
        answers: Digest of the reference answers that it hands in; empty for all but an oracle.
        fields: What its score depends on.
    """

    cell: str
    name: str
    spec: Mapping[str, object]
    audit: bool
    answers: str
    fields: ScoreFields


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of one round of a suite.

    Attributes:
        runs: In the order of the cells.
        invalid: Why cells cannot run, by cell.
    """

    runs: tuple[PlannedRun, ...] = ()
    invalid: Mapping[str, str] | None = None

    @property
    def run_names(self) -> frozenset[str]:
        """Names of its runs; two plans with the same names are the same round."""
        return frozenset(run.name for run in self.runs)


def plan_runs(
    suite: SuiteIdentity,
    spec: BenchmarkSuiteSpec,
    wanted: Iterable[Cell],
    packs: Mapping[str, PackContent | Unavailable],
    installation: ScoreSettings,
    trigger: Trigger,
) -> Plan:
    """Plan the run of every cell; equal arguments give equal names.

    Args:
        suite: What they belong to.
        packs: The content of each pack by its name in the matrix, or why there is none.
        installation: Settings that a score depends on.
        trigger: Why cells run again.
    """
    runs: list[PlannedRun] = []
    invalid: dict[str, str] = {}
    for cell in wanted:
        content = packs[cell.pack.name]
        if isinstance(content, Unavailable):
            invalid[str(cell.id)] = content.reason
            continue
        try:
            runs.append(_planned(suite, spec, cell, content, (installation, trigger)))
        except InvalidInputError as error:
            invalid[str(cell.id)] = str(error)
    return Plan(tuple(runs), invalid)


def _planned(
    suite: SuiteIdentity,
    spec: BenchmarkSuiteSpec,
    cell: Cell,
    content: PackContent,
    place: tuple[ScoreSettings, Trigger],
) -> PlannedRun:
    installation, trigger = place
    raw = _run_spec(suite, spec, cell, content)
    parsed = BenchmarkRunSpec.parse(raw)
    if not has_provider(parsed):
        raw.pop("budget", None)
    agent = agent_named(parsed.harness.type)
    answers = content.answers if agent.is_audit else ""
    fields = cell_fields(parsed, installation, answers)
    again = {key: of for key, of in trigger._asdict().items() if of}
    digest = json_digest({**named_fields(fields), **again})
    name = f"{suite.name}-{digest.removeprefix(PREFIX)[:DIGITS]}"
    return PlannedRun(str(cell.id), name, raw, agent.is_audit, answers, fields)


def _run_spec(
    suite: SuiteIdentity, spec: BenchmarkSuiteSpec, cell: Cell, content: PackContent
) -> dict[str, object]:
    harness = cell.harness.harness.to_json()
    if cell.model is not None:
        harness["config"] = {**cell.harness.harness.config, "model": cell.model.model}
    provider = cell.harness.provider
    return {
        **spec.template.to_json(),
        "runId": f"{suite.name}/{cell.id}",
        "pack": {"digest": content.digest, **cell.pack.pack.to_json()},
        "harness": harness,
        **({"provider": provider.to_json()} if provider is not None else {}),
        "attempts": spec.attempts,
    }


def has_provider(spec: BenchmarkRunSpec) -> bool:
    """Whether a run asks a model provider through its gateway, which counts tokens.

    Raises:
        InvalidInputError: The harness is not valid.
    """
    harness = spec_harness(spec)
    return isinstance(harness, ProviderHarness) or harness.endpoint is not None


def cell_fields(
    spec: BenchmarkRunSpec, installation: ScoreSettings, answers: str = ""
) -> ScoreFields:
    """Return what the score of a suite's run depends on; its run id is a part.

    Args:
        spec: Spec of the run, with the digest of its pack.
        installation: Settings that count.
        answers: Digest of the reference answers that it hands in, or empty.

    Raises:
        InvalidInputError: The harness is not valid.
    """
    binding = RunBinding(
        identity=RunIdentity("", "", "", spec.run_id or ""),
        pack_digest=spec.pack.digest or "",
        limits=installation.limits,
        audit=agent_named(spec.harness.type).is_audit,
        agent_version=agent_version(spec_harness(spec), installation.overlays),
        answers=Answers(digest=answers),
    )
    return score_fields(spec, binding)


def named_fields(fields: ScoreFields) -> dict[str, object]:
    """Return all score fields as they go into the digest in a run's name.

    Their form never changes: cells of suites that have run would run again.
    """
    return {
        "run_id": fields.run_id,
        "pack": fields.pack,
        "harness": fields.harness,
        "agent": fields.agent or "",
        "verifier": fields.verifier,
        "attempts": fields.attempts,
        "tasks": fields.tasks.to_json(),
        "verification": fields.verification.to_json(),
        "resources": fields.resources,
        "isolation": fields.isolation,
        "limits": asdict(fields.limits),
        **({"earlier_run": fields.earlier_run} if fields.earlier_run else {}),
    }


def is_same_work(
    found: Mapping[str, object], planned: PlannedRun, installation: ScoreSettings
) -> bool:
    """Whether a run that has the name of a planned one does the same, whoever created it.

    Args:
        found: Spec of the run that is there.
        planned: What has to run.
        installation: Settings that count.
    """
    try:
        there = cell_fields(BenchmarkRunSpec.parse(found), installation, planned.answers)
    except InvalidInputError:
        return False
    return there == planned.fields


def run_manifest(suite: SuiteIdentity, planned: PlannedRun) -> dict[str, object]:
    """Return the BenchmarkRun of a cell; it goes with its suite."""
    labels = {MANAGED_BY_LABEL: MANAGED_BY, SUITE_LABEL: suite.name}
    if planned.audit:
        labels[PURPOSE_LABEL] = AUDIT
    if suite.queue:
        labels[QUEUE_LABEL] = suite.queue
    annotations = {SUITE_CELL_ANNOTATION: planned.cell}
    if suite.requester:
        annotations[REQUESTER_ANNOTATION] = suite.requester
    return {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {
            "name": planned.name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": suite.name,
                    "uid": suite.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": dict(planned.spec),
    }
