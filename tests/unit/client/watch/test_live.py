"""Watching agents while they work: every line once, whatever arrives when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from securebench.agents.registry import cli_named
from securebench.client import live
from securebench.client.live import LiveOutput
from securebench.client.progress import AgentOutputReporter, Event, NullReporter, record_events
from securebench.client.volume import LivePart, OperatorLink
from securebench.errors import InvalidInputError, StorageError, TransientClusterError
from securebench.protocol.exec_calls import LaunchNumbers
from securebench.run.records.reading import RecordKey
from support.cli_shell import Shell
from support.fake_operator import Namespace, OperatorRun, record

FIRST = LaunchNumbers(1, 1, 1)
SECOND = LaunchNumbers(1, 1, 2)


def said(text: str) -> str:
    return json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": text}})


class Link(OperatorLink):
    """Answers what a test gives it."""

    def __init__(self) -> None:
        self.answers: list[list[LivePart] | Exception] = []
        self.asked: list[Mapping[LaunchNumbers, int]] = []

    async def get_live(self, uid: str, known: Mapping[LaunchNumbers, int]) -> list[LivePart]:
        assert uid == "abc"
        self.asked.append(known)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Watch:
    """A tester that watches tasks ``a`` and ``b``."""

    def __init__(self, folder: Path) -> None:
        self.link = Link()
        self.folder = folder
        self._stream = StringIO()
        console = Console(file=self._stream, width=200)
        self.reporter = AgentOutputReporter(NullReporter(), console, cli_named("codex"))
        self.reporter.report(Event.RUN_START, run_id="r", output_dir=str(folder))
        self.live = LiveOutput(self.link, "abc", ("a", "b"), self.reporter)

    async def arrives(self, text: str, launch: LaunchNumbers = FIRST, offset: int = 0) -> None:
        self.link.answers.append([LivePart(launch, offset, text.encode())])
        await self.live.poll()

    def record(self, stdout: str, stderr: str = "") -> None:
        told = {"task_id": "b", "producer_stdout": stdout, "producer_stderr": stderr}
        self.live.finish(RecordKey("b", 1))
        for event, fields in record_events(told, index=1, total=1):
            self.reporter.report(event, **fields)

    @property
    def trace(self) -> list[str]:
        return (self.folder / "agent-trace.log").read_text().splitlines()

    @property
    def shown(self) -> list[str]:
        return self._stream.getvalue().splitlines()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("securebench.client.session.open_connection", made.connect)
    return made


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


async def test_lines_come_before_the_record_and_not_again_with_it(watch: Watch) -> None:
    output = "".join(f"{said(word)}\n" for word in ("one", "two", "three"))
    cut = len(said("one")) + 10
    await watch.arrives(output[:cut])
    assert watch.shown == ["codex: one"]
    await watch.arrives(output[cut : cut + 100], offset=cut)
    assert watch.shown == ["codex: one", "codex: two"]
    watch.record(output, "a warning")
    want = ["codex: one", "codex: two", "codex: three", "codex stderr: a warning"]
    assert watch.shown == want
    assert watch.trace == [f"b | {line}" for line in want]
    assert [list(known.values()) for known in watch.link.asked] == [[], [cut]]


async def test_equal_lines_are_told_as_often_as_they_were_printed(watch: Watch) -> None:
    line = f"{said('again')}\n"
    await watch.arrives(line * 2)
    watch.record(line * 3)
    assert watch.shown == ["codex: again"] * 3


async def test_a_preflight_and_lines_that_are_no_events_wait_for_the_record(watch: Watch) -> None:
    await watch.arrives(f"codex 1.0\nno json\n{said('hi')}\n")
    assert watch.shown == ["codex: hi"]
    watch.record(f"no json\n{said('hi')}\n")
    assert watch.shown == ["codex: hi", "codex: no json"]


async def test_a_second_launch_is_watched_from_its_beginning(watch: Watch) -> None:
    await watch.arrives(f"{said('lost')}\n{said('cut')[:5]}")
    await watch.arrives(f"{said('new')}\n", SECOND)
    watch.record(f"{said('new')}\n{said('end')}\n")
    assert watch.shown == ["codex: lost", "codex: new", "codex: end"]


async def test_what_arrives_after_the_record_or_twice_is_not_told(watch: Watch) -> None:
    line = f"{said('one')}\n"
    await watch.arrives(line)
    await watch.arrives(line)
    watch.record(line)
    await watch.arrives(line)
    assert watch.shown == ["codex: one"]
    assert watch.link.asked[-1] == {}


async def test_the_end_of_a_command_knows_its_beginning(tmp_path: Path) -> None:
    reporter = AgentOutputReporter(
        NullReporter(), Console(file=StringIO()), cli_named("claude_code")
    )
    reporter.report(Event.RUN_START, run_id="r", output_dir=str(tmp_path))
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    for speaker, block in (
        ("assistant", call),
        ("user", {"type": "tool_result", "tool_use_id": "t", "content": "x"}),
    ):
        text = json.dumps({"type": speaker, "message": {"content": [block]}})
        reporter.report(Event.AGENT_OUTPUT, task_id="a", launch=FIRST, text=text)
    trace = (tmp_path / "agent-trace.log").read_text()
    assert trace == "a | claude run: ls\na | claude done: exit=0 ls\n"


async def test_a_task_that_the_pack_does_not_have_is_not_told(watch: Watch) -> None:
    await watch.arrives(f"{said('x')}\n", LaunchNumbers(2, 1, 1))
    assert watch.shown == []


async def test_control_characters_do_not_reach_the_terminal(watch: Watch) -> None:
    await watch.arrives(f"{said(chr(27) + '[2J')}\n")
    assert watch.shown == ["codex: \ufffd[2J"]


async def test_trouble_is_waited_out_and_an_older_operator_is_left_alone(watch: Watch) -> None:
    trouble = [TransientClusterError("x"), StorageError("x")]
    watch.link.answers = [*trouble, [], InvalidInputError("does not know this operation")]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with watch.live.watched(sleep):
        for _ in range(20):
            await asyncio.sleep(0)
    assert watch.link.answers == []
    assert waits == [30.0, 2.0, 30.0, 2.0, 2.0]


async def test_the_watch_ends_with_the_run(watch: Watch) -> None:
    started = asyncio.Event()

    async def sleep(_: float) -> None:
        started.set()
        await asyncio.Event().wait()

    watch.link.answers = [[]]
    async with watch.live.watched(sleep):
        await started.wait()
    assert len(asyncio.all_tasks()) == 1


async def test_the_link_brings_what_lies_on_the_volume(tmp_path: Path) -> None:
    namespace = Namespace(tmp_path)
    folder = tmp_path / "runs" / "abc" / "tasks"
    for task, text in (("0", "one"), ("1", "abcdef")):
        producer = folder / task / "attempts" / "1" / "launches" / "1" / "producer"
        producer.mkdir(parents=True)
        (producer / "live-stdout").write_text(text)
    link = OperatorLink(namespace.execute)
    known = {LaunchNumbers(1, 1, 1): 3}
    assert await link.get_live("abc", known) == [
        LivePart(LaunchNumbers(0, 1, 1), 0, b"one"),
        LivePart(LaunchNumbers(1, 1, 1), 3, b"def"),
    ]


async def test_a_cut_answer_is_noticed(tmp_path: Path) -> None:
    namespace = Namespace(tmp_path)
    producer = tmp_path / "runs/abc/tasks/0/attempts/1/launches/1/producer"
    producer.mkdir(parents=True)
    (producer / "live-stdout").write_text("one")

    async def execute(command: object, stdin: object) -> object:
        result = await namespace.execute(command, stdin)  # type: ignore[arg-type]
        return result._replace(stdout=b"on")

    with pytest.raises(TransientClusterError, match="incomplete"):
        await OperatorLink(execute).get_live("abc", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "flags", "want"),
    [
        ("[OPENAI_API_KEY]", ["--show-agent-output"], True),
        ("[OPENAI_API_KEY]", [], False),
        ("[OPENAI_API_KEY]", ["--show-agent-output", "--quiet"], False),
        ("[OPENAI_API_KEY, TOKEN]", ["--show-agent-output"], False),
    ],
)
def test_the_command_line_watches_agents_without_values_of_the_tester(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, env: str, flags: list[str], *, want: bool
) -> None:
    seen: list[bool] = []

    async def script(run: OperatorRun) -> None:
        run.bind()
        producer = run.folder / "tasks/1/attempts/1/launches/1/producer"
        producer.mkdir(parents=True)
        (producer / "live-stdout").write_text(f"{said('working')}\n")
        await run.status("Running")
        trace = shell.folder / "out" / "agent-trace.log"
        seen.append(trace.exists() and trace.read_text() == "b | codex: working\n")
        output = f"{said('working')}\n{said('done')}\n"
        run.write({**record("b"), "producer_stdout": output})
        await run.status("Running")
        (producer / "live-stdout").write_text(f"{output}{said('too late')}\n")
        await run.status("Running")
        await run.end()

    shell.script = script
    monkeypatch.setattr(live, "_OUTPUT_PAUSE_SECONDS", 0)
    for name in ("OPENAI_API_KEY", "TOKEN"):
        monkeypatch.setenv(name, "value")
    text = shell.yaml.read_text().replace('{command: "python3 answer.py"}', "{model: gpt-5}")
    shell.yaml.write_text(text.replace("type: command", f"type: codex\n  env: {env}"))
    assert shell.run(*flags).code == 0
    assert seen == [want]
    assert ("get-live" in shell.namespace.operations()) is want
    trace = shell.folder / "out" / "agent-trace.log"
    told = trace.read_text() if trace.exists() else None
    shows = "--show-agent-output" in flags and "--quiet" not in flags
    assert told == ("b | codex: working\nb | codex: done\n" if shows else None)
