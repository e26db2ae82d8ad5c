from __future__ import annotations

import pytest

from securebench.client.run import follow_to_end
from securebench.cluster.port import ObjectKind, Raw
from support.build import FakeClock, run_body
from support.fake_cluster import FakeCluster

NAME = "nightly"


def status(succeeded: str, reason: str, **more: object) -> Raw:
    condition = {"type": "Succeeded", "status": succeeded, "reason": reason, "message": "said so"}
    return {"conditions": [condition], **more}


@pytest.mark.parametrize(
    ("end", "want", "line"),
    [
        (
            status("True", "Completed", score={"passed": 1, "verified": 1}),
            0,
            "its task was run, verified and passed",
        ),
        (status("True", "Completed", score={"passed": 0, "verified": 1}), 1, "Completed: said so"),
        (status("False", "IsolationNotVerified"), 1, "IsolationNotVerified: said so"),
    ],
)
async def test_the_run_of_one_task_decides(
    end: Raw, want: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(clock=FakeClock())
    await cluster.create(ObjectKind.BENCHMARK_RUN, run_body(NAME))
    await cluster.patch_status(ObjectKind.BENCHMARK_RUN, NAME, {"status": end})
    assert await follow_to_end(cluster, NAME) == want
    assert line in capsys.readouterr().out
