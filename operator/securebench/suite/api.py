"""The API object BenchmarkSuite: its spec, its status, the rules that span several fields, its CRD.

The docstrings of the models are the CRD's descriptions. The status is a bounded summary on which no
decision is based.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from securebench.names import LABEL_LIMIT
from securebench.run.api.crd import RULES as RUN_RULES
from securebench.run.api.crd import CelRule, Column, ResourceDefinition, custom_resource
from securebench.run.api.field_types import (
    ApiModel,
    Digest,
    Matching,
    ObjectName,
    ObjectUid,
    SafePath,
)
from securebench.run.api.models import MAX_ATTEMPTS, Budget, Harness, Pack, Provider, RunTemplate
from securebench.run.api.status import Condition, Count, MeanReward, PassRate, Reason, Time
from securebench.stats.sequential import MAX_LOOKS

KIND = "BenchmarkSuite"
PLURAL = "benchmarksuites"

MAX_AXIS = 16
"""Packs, harnesses and models of one suite."""

MAX_CELLS = 64
"""Runs of one round; keeps the status of a suite below 64 KiB."""

MAX_CELL_NAME = 40
MAX_SUITE_NAME = 50
"""Characters: with a hyphen and twelve digits, the names of its runs are DNS labels."""

MAX_HISTORY = 100
MAX_LATENESS_SECONDS = 7 * 86_400
"""A time of the schedule that was missed by more than a week is not made up for."""
MAX_PRICE = 10**12

NEEDS_SCHEDULE = "runPolicy Always needs a schedule: it runs every cell at each of its times"
ZONE_NEEDS_SCHEDULE = "timeZone and startingDeadlineSeconds need a schedule"
ONE_BASELINE = "exactly one of run, suite and file is needed"
UID_NEEDS_NAME = "uid needs run or suite: a file has a digest"
NEEDS_BASELINE = "gates.notWorse needs a baseline, of the suite or of every pack"
COST_NEEDS_PRICES = "gates.maxCostMicroDollars needs gates.prices"
"""Messages shared by the models and the CRD's validation rules."""


class Unavailable(NamedTuple):
    """A pack or results that a suite names and cannot have now.

    Attributes:
        reason: Why, as a sentence without its end.
    """

    reason: str


CellName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_CELL_NAME),
    Matching(
        r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "must be lower case letters, digits, '-' and '.', first and last a letter or digit",
    ),
]
"""Name of a pack, harness or model within its suite."""

Share = Annotated[
    str,
    Field(max_length=8),
    Matching(r"0(\.[0-9]{1,6})?|1(\.0{1,6})?", 'must be a decimal from 0 to 1 such as "0.8"'),
]
"""A share, as a text: the API has no floating-point numbers."""

Amount = Annotated[
    str,
    Field(max_length=17),
    Matching(r"-?[0-9]{1,9}(\.[0-9]{1,6})?", 'must be a decimal such as "-0.5"'),
]
"""A number, as a text: the API has no floating-point numbers."""

Level = Annotated[
    str,
    Field(max_length=8),
    Matching(
        r"0\.0{0,5}[1-9][0-9]{0,5}",
        'must be a decimal above 0 and below 1 such as "0.05"',
    ),
]
"""A significance level."""


def _axis(key: str) -> dict[str, object]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class SuiteRunPolicy(StrEnum):
    """When a cell that has run runs again."""

    ON_CHANGE = "OnChange"
    ALWAYS = "Always"


class ConcurrencyPolicy(StrEnum):
    """What becomes of a time of the schedule while runs of the one before go on."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class BaselineFile(ApiModel):
    """Records on the results volume."""

    path: SafePath
    """A candidates.jsonl below baselines/ on the namespace's volume."""
    sha256: Digest
    """Digest of the file; another content counts as no baseline."""


class Baseline(ApiModel):
    """What cells are compared with: exactly one of run, suite and file."""

    run: ObjectName | None = None
    """The BenchmarkRun of this name; its records have to be on the volume. Without uid, a name
    that several runs of the volume have decides nothing."""
    suite: ObjectName | None = None
    """The last result of this BenchmarkSuite that passed its gates, cell by cell; a suite may
    name itself."""
    file: BaselineFile | None = None
    """Records on the volume."""
    uid: ObjectUid | None = None
    """UID of that run or suite. Without it, the suite keeps to the object that had the name when it
    first used it, and another object of that name decides nothing."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.run, self.suite, self.file)) != 1:
            raise ValueError(ONE_BASELINE)
        if self.uid is not None and self.file is not None:
            raise ValueError(UID_NEEDS_NAME)
        return self

    @property
    def key(self) -> str:
        """What a suite remembers under its name; another text means another baseline."""
        name = f"run/{self.run}" if self.run is not None else f"suite/{self.suite}"
        return f"{name}/{self.uid}" if self.uid is not None else name


class SuitePack(ApiModel):
    """One pack of the matrix."""

    name: CellName
    """Name of the pack within the suite."""
    pack: Pack
    """Where the pack comes from, as in a BenchmarkRun."""
    baseline: Baseline | None = None
    """What the cells of this pack are compared with, instead of the suite's baseline."""


class SuiteHarness(ApiModel):
    """One harness of the matrix."""

    name: CellName
    """Name of the harness within the suite."""
    harness: Harness
    """What produces the candidates, as in a BenchmarkRun."""
    provider: Provider | None = None
    """The key of the model provider, as in a BenchmarkRun."""


class SuiteModel(ApiModel):
    """One model of the matrix."""

    name: CellName
    """Name of the model within the suite."""
    model: Annotated[str, Field(min_length=1, max_length=256)]
    """Becomes harness.config.model of the cell's run."""


class Include(ApiModel):
    """A cell besides those of the matrix."""

    pack: CellName
    """Name of a pack of the matrix."""
    harness: CellName
    """Name of a harness of the matrix."""
    model: CellName | None = None
    """Name of a model of the matrix; without it, the harness keeps the model of its config."""


class Exclude(ApiModel):
    """Cells of the matrix that do not run: those with all the names that are given."""

    pack: CellName | None = None
    """Name of a pack; every pack by default."""
    harness: CellName | None = None
    """Name of a harness; every harness by default."""
    model: CellName | None = None
    """Name of a model; every model by default."""


class Matrix(ApiModel):
    """Every pack with every harness and every model is one cell, and one BenchmarkRun."""

    packs: Annotated[
        tuple[SuitePack, ...],
        Field(min_length=1, max_length=MAX_AXIS, json_schema_extra=_axis("name")),
    ]
    """The packs."""
    harnesses: Annotated[
        tuple[SuiteHarness, ...],
        Field(min_length=1, max_length=MAX_AXIS, json_schema_extra=_axis("name")),
    ]
    """The harnesses."""
    models: Annotated[
        tuple[SuiteModel, ...], Field(max_length=MAX_AXIS, json_schema_extra=_axis("name"))
    ] = ()
    """The models; without any, each harness keeps the model of its config."""
    include: Annotated[
        tuple[Include, ...],
        Field(max_length=MAX_CELLS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Further cells."""
    exclude: Annotated[
        tuple[Exclude, ...],
        Field(max_length=MAX_CELLS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Cells that do not run; those of include are not affected."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for axis in ("packs", "harnesses", "models"):
            names = [item.name for item in getattr(self, axis)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{axis}: two have the name {twice[0]!r}")
        return self


class NotWorse(ApiModel):
    """No cell may be worse than its baseline."""

    level: Level = "0.05"
    """Significance level of the paired test of `securebench compare`, corrected for the number of
    cells (Holm): the chance of a false alarm in one round."""
    looks: Annotated[int, Field(ge=1, le=MAX_LOOKS)] | None = None
    """Test each cell after every one of so many equal parts of its baseline's tasks, as
    `securebench compare --looks` does, and cancel its run once a part shows that it is worse. The
    level holds for all parts of all cells together (Bonferroni instead of Holm)."""


class ModelPrice(ApiModel):
    """What a model costs, in micro-dollars per million tokens."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the model, as records have it."""
    input: Annotated[int, Field(ge=0, le=MAX_PRICE)]
    """Of input."""
    cached_input: Annotated[int, Field(ge=0, le=MAX_PRICE)] | None = None
    """Of input from the provider's cache; by default that of input."""
    output: Annotated[int, Field(ge=0, le=MAX_PRICE)]
    """Of output."""


class Gates(ApiModel):
    """What the results of a round must keep to; all that is given counts, for every cell."""

    min_pass_rate: Share | None = None
    """Least share of verified attempts that passed, of every cell."""
    min_mean_reward: Amount | None = None
    """Least mean score of the verdicts of every cell, where verifiers leave rewards."""
    not_worse: NotWorse | None = None
    """No cell may be worse than its baseline."""
    max_lost_share: Share | None = None
    """Greatest share of a cell's attempts that the cluster or the model provider lost, or whose
    script left no reward."""
    max_cost_micro_dollars: Annotated[int, Field(ge=0, le=MAX_PRICE)] | None = None
    """Greatest cost of all cells together; tokens of a model without a price leave it open."""
    prices: Annotated[
        tuple[ModelPrice, ...], Field(max_length=64, json_schema_extra=_axis("model"))
    ] = ()
    """What models cost."""

    @model_validator(mode="after")
    def _cost_has_prices(self) -> Self:
        if self.max_cost_micro_dollars is not None and not self.prices:
            raise ValueError(COST_NEEDS_PRICES)
        return self


class BenchmarkSuiteSpec(ApiModel):
    """Which benchmarks run against which agents and models, when, and what must not get worse."""

    field_path: ClassVar[str] = "spec"

    matrix: Matrix
    """What runs."""
    attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = 1
    """Independent attempts per task, all of which count (pass@k)."""
    template: RunTemplate = RunTemplate()
    """The rest of the spec of every BenchmarkRun."""
    max_concurrent_runs: Annotated[int, Field(ge=1, le=MAX_CELLS)] = 2
    """Greatest number of BenchmarkRuns of this suite that go on at once."""
    budget: Budget | None = None
    """What all runs of the current round together may use of their model providers. Each run gets
    a share as its budget, and what it leaves goes to those that wait. When it is used up, no run
    starts."""
    run_policy: SuiteRunPolicy = SuiteRunPolicy.ON_CHANGE
    """OnChange: a cell runs once, and again when something that its score depends on has changed.
    Always: every cell runs at each time of the schedule."""
    schedule: Annotated[str, Field(min_length=9, max_length=128)] | None = None
    """When cells run: five fields as in a crontab. Without it, at once."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Time zone of the schedule, for example Europe/Berlin; UTC by default."""
    starting_deadline_seconds: Annotated[int, Field(ge=1, le=MAX_LATENESS_SECONDS)] | None = None
    """Seconds after which a time of the schedule that was missed is left out; never by default."""
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID
    """What a time of the schedule does while runs of the one before go on. Forbid waits for them,
    Allow starts the new runs beside them, Replace cancels them."""
    successful_runs_history_limit: Annotated[int, Field(ge=0, le=MAX_HISTORY)] = 3
    """Completed BenchmarkRuns of each cell that are kept from earlier rounds. The results of those
    that are deleted stay on the volume."""
    failed_runs_history_limit: Annotated[int, Field(ge=0, le=MAX_HISTORY)] = 1
    """BenchmarkRuns of each cell, from earlier rounds, that did not complete and are kept."""
    suspend: bool = False
    """Start no run; those that are under way go on."""
    baseline: Baseline | None = None
    """What cells are compared with."""
    gates: Gates | None = None
    """What the results must keep to."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.run_policy is SuiteRunPolicy.ALWAYS and self.schedule is None:
            raise ValueError(NEEDS_SCHEDULE)
        if self.schedule is None and (self.time_zone or self.starting_deadline_seconds):
            raise ValueError(ZONE_NEEDS_SCHEDULE)
        is_compared = self.gates is not None and self.gates.not_worse is not None
        has_all = self.baseline or all(pack.baseline for pack in self.matrix.packs)
        if is_compared and not has_all:
            raise ValueError(NEEDS_BASELINE)
        return self


class SuiteReason(StrEnum):
    """Why a condition of a BenchmarkSuite has its status."""

    RUNNING = Reason.RUNNING.value
    COMPLETED = Reason.COMPLETED.value
    INVALID_SPEC = Reason.INVALID_SPEC.value
    SUSPENDED = Reason.SUSPENDED.value
    NOT_SUSPENDED = Reason.NOT_SUSPENDED.value
    QUOTA_EXCEEDED = Reason.QUOTA_EXCEEDED.value
    FORBIDDEN = Reason.FORBIDDEN.value
    REGISTRY_UNAVAILABLE = Reason.REGISTRY_UNAVAILABLE.value
    STORAGE_UNAVAILABLE = Reason.STORAGE_UNAVAILABLE.value
    INTERNAL = Reason.INTERNAL.value
    SCHEDULED = "Scheduled"
    CLOCK_SET_BACK = "ClockSetBack"
    CELLS_INVALID = "CellsInvalid"
    CELLS_FAILED = "CellsFailed"
    GATES_PASSED = "GatesPassed"
    GATES_FAILED = "GatesFailed"
    GATES_UNDECIDED = "GatesUndecided"


MAX_CELL_MESSAGE = 256
"""Characters of a cell's message; keeps the status below 64 KiB."""

MAX_CELL_ID = 128


class CellState(StrEnum):
    """How far the run of a cell is."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    INVALID = "Invalid"


class StatusCell(ApiModel):
    """One cell of the matrix."""

    cell: Annotated[str, Field(max_length=MAX_CELL_ID)]
    """Names of pack, harness and model, with slashes between."""
    run: Annotated[str, Field(max_length=LABEL_LIMIT)] | None = None
    """Its BenchmarkRun; absent for a cell that cannot run."""
    state: CellState
    """Waiting, Running, Succeeded, Failed, Stopped or Invalid."""
    reason: Annotated[str, Field(max_length=64)] | None = None
    """Reason of the run's condition Succeeded, once it has ended."""
    message: Annotated[str, Field(max_length=MAX_CELL_MESSAGE)] | None = None
    """Why the cell cannot run, failed or was stopped."""
    tries: Count | None = None
    """Runs of this cell with the same digests that were ever started by the same user."""
    agent_tries: Count | None = None
    """Runs of the same agent and model on the same pack that were started up to this one by the
    user who requested it, whatever their names, run ids and other settings; all of them where the
    user is unknown."""
    tries_by_others: Count | None = None
    """The same by other users; no gate considers them."""
    pass_rate: PassRate | None = None
    """Pass rate of the cell's run; absent once its BenchmarkRun is deleted."""
    mean_reward: MeanReward | None = None
    """Mean reward of the cell's run, if its verifiers leave rewards."""


class CellCounts(ApiModel):
    """Cells by state."""

    total: Count = 0
    """All cells."""
    waiting: Count = 0
    """Cells whose run is not created yet."""
    running: Count = 0
    """Cells whose run goes on."""
    succeeded: Count = 0
    """Cells whose run is complete."""
    failed: Count = 0
    """Cells whose run ended otherwise."""
    stopped: Count = 0
    """Cells whose run was cancelled, where gates.notWorse.looks judges what it has done."""
    invalid: Count = 0
    """Cells that cannot run."""


class StatusBudget(ApiModel):
    """What has become of the token budget in the current round."""

    tokens: Count
    """The budget."""
    used_tokens: Count
    """What runs that have ended used."""
    allotted_tokens: Count
    """What runs in progress may use."""


class BenchmarkSuiteStatus(ApiModel):
    """Status as reported by the operator."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this status is based on."""
    cells: CellCounts | None = None
    """Cells by state."""
    results: Annotated[
        tuple[StatusCell, ...],
        Field(
            max_length=MAX_CELLS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["cell"],
            },
        ),
    ] = ()
    """Every cell of the current round."""
    budget: StatusBudget | None = None
    """What has become of the token budget; absent without one."""
    last_schedule_time: Time | None = None
    """The last time of the schedule at which cells ran, or were found to need no run."""
    next_schedule_time: Time | None = None
    """The next time of the schedule."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=8,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Ready, Reconciling, Stalled, Suspended, GatesPassed."""


RULES: Mapping[type[ApiModel], Sequence[CelRule]] = {
    **RUN_RULES,
    BenchmarkSuiteSpec: (
        CelRule(
            "!has(self.runPolicy) || self.runPolicy != 'Always' || has(self.schedule)",
            NEEDS_SCHEDULE,
            ".runPolicy",
        ),
        CelRule(
            "has(self.schedule) || !has(self.timeZone) && !has(self.startingDeadlineSeconds)",
            ZONE_NEEDS_SCHEDULE,
        ),
        CelRule(
            "!has(self.gates) || !has(self.gates.notWorse) || has(self.baseline) || "
            "self.matrix.packs.all(pack, has(pack.baseline))",
            NEEDS_BASELINE,
            ".gates",
        ),
    ),
    Baseline: (
        CelRule(
            "(has(self.run) ? 1 : 0) + (has(self.suite) ? 1 : 0) + (has(self.file) ? 1 : 0) == 1",
            ONE_BASELINE,
        ),
        CelRule("!has(self.uid) || !has(self.file)", UID_NEEDS_NAME),
    ),
    Gates: (
        CelRule(
            "!has(self.maxCostMicroDollars) || has(self.prices) && size(self.prices) > 0",
            COST_NEEDS_PRICES,
        ),
    ),
}
"""Rules by model; those of the parts of a BenchmarkRun are among them."""

ROOT_RULES: Sequence[CelRule] = (
    CelRule(
        f"size(self.metadata.name) <= {MAX_SUITE_NAME}",
        f"the name of a suite has at most {MAX_SUITE_NAME} characters: "
        "the names of its runs begin with it",
    ),
    CelRule(
        "!self.metadata.name.contains('.')",
        "the name of a suite has no '.': the names of its runs begin with it",
    ),
)
"""Rules on the whole object."""


_READY = '.status.conditions[?(@.type=="Ready")]'

_SUITE = ResourceDefinition(
    kind=KIND,
    plural=PLURAL,
    short_name="bsuite",
    description="BenchmarkRuns of a matrix of packs, harnesses and models, and their gates.",
    spec=BenchmarkSuiteSpec,
    status=BenchmarkSuiteStatus,
    rules=RULES,
    root_rules=ROOT_RULES,
    columns=(
        Column("Ready", "string", f"{_READY}.status", "True when every cell has its result"),
        Column("Reason", "string", f"{_READY}.reason", "Why"),
        Column(
            "Gates",
            "string",
            '.status.conditions[?(@.type=="GatesPassed")].status',
            "Whether the results keep to the gates",
        ),
        Column("Cells", "integer", ".status.cells.total", "Cells of the matrix"),
        Column("Running", "integer", ".status.cells.running", "Cells whose run goes on"),
        Column("Succeeded", "integer", ".status.cells.succeeded", "Cells with a complete run"),
        Column("Failed", "integer", ".status.cells.failed", "Cells whose run ended otherwise"),
        Column("Age", "date", ".metadata.creationTimestamp", "Time since creation"),
        Column("Schedule", "string", ".spec.schedule", "When cells run", 1),
        Column("Next", "date", ".status.nextScheduleTime", "Next time of the schedule", 1),
        Column("Suspend", "boolean", ".spec.suspend", "Whether no run is started", 1),
    ),
)


def benchmark_suite_crd() -> dict[str, object]:
    """Return the CRD of BenchmarkSuite."""
    return custom_resource(_SUITE)
