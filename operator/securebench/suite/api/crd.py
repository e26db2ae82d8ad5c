"""The CustomResourceDefinition of BenchmarkSuite."""

from __future__ import annotations

from securebench.run.api.crd import Column, ResourceDefinition, custom_resource
from securebench.suite.api.models import KIND, PLURAL, BenchmarkSuiteSpec
from securebench.suite.api.rules import ROOT_RULES, RULES
from securebench.suite.api.status import BenchmarkSuiteStatus

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
