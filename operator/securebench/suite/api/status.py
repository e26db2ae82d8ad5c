"""The status of a BenchmarkSuite: a bounded summary on which no decision is based."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from securebench.names import LABEL_LIMIT
from securebench.run.api.field_types import ApiModel
from securebench.run.api.status import Condition, Count, PassRate, Time
from securebench.suite.api.models import MAX_CELLS

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
    """Runs of this cell with the same digests that were ever started."""
    agent_tries: Count | None = None
    """Runs of the same agent and model on the same pack that were started up to this one, whatever
    their names, run ids and other settings."""
    pass_rate: PassRate | None = None
    """Pass rate of the cell's run; absent once its BenchmarkRun is deleted."""


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
