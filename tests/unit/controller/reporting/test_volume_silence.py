"""What tells of a silent volume goes on telling, whatever becomes of a try."""

from __future__ import annotations

import asyncio
import logging

import pytest

from securebench.controller.object_loop import SILENCE_LOOK_SECONDS, report_while_late
from securebench.controller.volume_calls import VolumeCalls
from securebench.errors import TransientClusterError
from support.build import FakeClock, VirtualLoop


@pytest.mark.parametrize(
    ("error", "level"),
    [
        pytest.param(TransientClusterError("no answer"), logging.WARNING, id="no answer"),
        pytest.param(RuntimeError("a defect"), logging.ERROR, id="a defect"),
    ],
)
def test_a_try_that_fails_is_logged_and_made_again(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    tried: list[float] = []

    async def tell() -> bool:
        tried.append(clock.monotonic())
        if len(tried) == 1:
            raise error
        return False

    async def work() -> None:
        telling = asyncio.create_task(report_while_late(VolumeCalls(), tell, "suite nightly"))
        await asyncio.sleep(10)
        assert not telling.done()
        telling.cancel()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(work())
    assert tried[1:] == [tried[0] + SILENCE_LOOK_SECONDS]
    (logged,) = caplog.records
    assert (logged.levelno, "suite nightly" in logged.getMessage()) == (level, True)
