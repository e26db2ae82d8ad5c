"""The operator's log: text for people, JSON for a log store, with the run it is about."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from securebench.controller.loop_tasks import log_as_run
from securebench.controller.process import configure_logs
from securebench.controller.settings import LogFormat

logger = logging.getLogger("securebench.test")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


async def _as_run(name: str, uid: str) -> None:
    log_as_run(name, uid)
    await asyncio.to_thread(logger.warning, "the volume of %s is full", name)


def test_json_has_one_object_a_line_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.JSON)

    asyncio.run(_as_run("nightly", "u-1"))

    line = json.loads(capsys.readouterr().err)
    assert line.pop("time")
    assert line == {
        "level": "WARNING",
        "logger": "securebench.test",
        "message": "the volume of nightly is full",
        "run": "nightly",
        "run_uid": "u-1",
    }


def test_json_of_an_error_has_its_traceback_in_the_same_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(LogFormat.JSON)

    logger.error("loop failed", exc_info=OSError("disk gone"))

    line = json.loads(capsys.readouterr().err)
    assert "OSError: disk gone" in line["exc_info"]
    assert "run" not in line


def test_tasks_of_two_runs_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.JSON)

    async def both() -> None:
        await asyncio.gather(
            *(asyncio.create_task(_as_run(name, f"uid-{name}")) for name in ("a", "b"))
        )

    asyncio.run(both())

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert sorted((line["run"], line["run_uid"], line["message"]) for line in lines) == [
        ("a", "uid-a", "the volume of a is full"),
        ("b", "uid-b", "the volume of b is full"),
    ]


def test_text_is_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.TEXT)

    logger.info("run %s: started", "nightly")

    assert capsys.readouterr().err.endswith(" INFO run nightly: started\n")


def test_kopf_says_nothing_about_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.TEXT)

    logging.getLogger("kopf.objects").info("handler succeeded")

    assert capsys.readouterr().err == ""
