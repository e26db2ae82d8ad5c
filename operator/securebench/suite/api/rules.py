"""CEL rules of the suite's CRD that span several fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securebench.run.api.crd import RULES as RUN_RULES
from securebench.run.api.crd import CelRule
from securebench.run.api.field_types import ApiModel
from securebench.suite.api.models import (
    COST_NEEDS_PRICES,
    MAX_SUITE_NAME,
    NEEDS_BASELINE,
    NEEDS_SCHEDULE,
    ONE_BASELINE,
    UID_NEEDS_NAME,
    ZONE_NEEDS_SCHEDULE,
    Baseline,
    BenchmarkSuiteSpec,
    Gates,
)

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
