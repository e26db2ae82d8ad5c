from __future__ import annotations

import json

from securebench.run.api.status import ConditionStatus, set_conditions
from securebench.suite.api import (
    MAX_CELLS,
    BenchmarkSuiteSpec,
    BenchmarkSuiteStatus,
    CellState,
    SuiteReason,
)
from securebench.suite.gates import GateReport
from securebench.suite.progress import CellProgress
from securebench.suite.report import SuiteFindings, suite_conditions, suite_status
from securebench.suite.rounds import Times
from support.suite_world import suite_spec

REWARD = dict.fromkeys(("value", "low", "high"), "-1.23457e+308")
RATE = {"value": "0.1234", "low": "0.1234", "high": "0.1234"}


def test_the_largest_status_stays_below_64_kib() -> None:
    cells = [
        CellProgress(
            f"{index:02}" + "c" * 120, CellState.FAILED, "r" * 63, "u" * 36, "x" * 64, "m" * 9999,
            10**6, RATE, agent_tries=10**6, mean_reward=REWARD,
        )
        for index in range(MAX_CELLS)
    ]  # fmt: skip
    report = GateReport(ConditionStatus.FALSE, SuiteReason.GATES_FAILED, "g" * 9999)
    findings = SuiteFindings(
        BenchmarkSuiteSpec.parse(suite_spec()),
        0.0,
        Times(None, 1.0, is_clock_back=False),
        cells,
        report,
    )
    conditions = set_conditions((), suite_conditions(findings), observed_generation=10**9, now=0.0)
    status = suite_status(findings).model_copy(
        update={"observed_generation": 10**9, "conditions": conditions}
    )
    assert len(json.dumps(status.to_json()).encode()) < 64 * 1024
    assert BenchmarkSuiteStatus.parse(status.to_json()) == status
