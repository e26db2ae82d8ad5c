"""The command ``securebench logs``: streams of the harness and the check of a task.

Of an active attempt the streams are printed piece by piece as they come, and at last what was
captured of them.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.benchmark.files.bundle import folder_files
from securebench.client.follow import RunState, run_state
from securebench.client.output import print_note
from securebench.client.runs import find_state
from securebench.client.volume import (
    AttemptOutput,
    ClusterTarget,
    Connection,
    OperatorLink,
    OutputPart,
    open_connection,
)
from securebench.cluster.port import ObjectKind
from securebench.errors import ClusterError, InvalidInputError, TransientClusterError
from securebench.json_values import object_at
from securebench.protocol.exec_calls import OutputMark
from securebench.text import printable_lines

_PRODUCER = "producer"


@dataclass(slots=True)
class _Stream:
    """What was printed of a stream of the last launch."""

    offset: int = 0
    text: str = ""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def add(self, part: OutputPart) -> str:
        if part.offset != self.offset:
            return ""
        self.offset += len(part.data)
        text = self.decoder.decode(part.data)
        self.text += text
        return text


class LogPrinter:
    """Prints streams on stdout, with a heading where the stream changes, as ``tail`` does.

    On a terminal control characters are replaced.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._launch = (0, 0)
        self._heading = ""
        self._is_line_open = False

    @property
    def has_printed(self) -> bool:
        """Whether anything was printed."""
        return bool(self._heading)

    def marks(self) -> list[OutputMark]:
        """Return how far the streams of the last launch were printed."""
        return [
            OutputMark(*self._launch, name, stream.offset) for name, stream in self._streams.items()
        ]

    def print_live(self, output: AttemptOutput) -> None:
        """Print what an attempt has printed since."""
        launch = (output.attempt, output.launch)
        if launch != self._launch:
            self._launch, self._streams = launch, {}
        for part in output.parts:
            stream = self._streams.setdefault(part.stream, _Stream())
            self._print(self._live_heading(part.stream), stream.add(part))

    def print_captured(self, files: Mapping[str, str]) -> None:
        """Print captured streams, without what of them was printed already.

        Args:
            files: Text by name, for example ``producer/stdout``.
        """
        for name, text in files.items():
            folder, _, stream = name.partition("/")
            seen = self._streams.get(stream) if folder == _PRODUCER else None
            if seen is not None and seen.text and text.startswith(seen.text):
                self._print(self._live_heading(stream), text.removeprefix(seen.text))
            else:
                self._head(name)
                self._print(name, text)
        self._end_line()

    def _live_heading(self, stream: str) -> str:
        _, launch = self._launch
        return f"{_PRODUCER}/{stream}" + (f", launch {launch}" if launch > 1 else "")

    def _print(self, heading: str, text: str) -> None:
        if not text:
            return
        if heading != self._heading:
            self._head(heading)
        shown = printable_lines(text) if sys.stdout.isatty() else text
        sys.stdout.write(shown)
        sys.stdout.flush()
        self._is_line_open = not text.endswith("\n")

    def _head(self, heading: str) -> None:
        self._end_line()
        sys.stdout.write(f"==> {heading} <==\n")
        self._heading = heading

    def _end_line(self) -> None:
        if self._is_line_open:
            sys.stdout.write("\n")
        self._is_line_open = False


_PAUSE_SECONDS = 2.0
"""Each answer is a process of its own in the operator's Pod."""

_IDLE_POLLS = 5
"""After so many answers without anything new, check that the run still exists."""


def logs(
    run: str, task: str, target: ClusterTarget, *, is_followed: bool, attempt: int | None = None
) -> int:
    """Print the output of the last launches of an attempt.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        task: Id of the task, or ``#`` and its index from 0.
        is_followed: Whether to wait for more until the task has finished.
        attempt: Number of an attempt that has finished; None for the last one.
    """
    return asyncio.run(_logs(run, task, target, is_followed=is_followed, attempt=attempt))


async def _logs(
    run: str, task: str, target: ClusterTarget, *, is_followed: bool, attempt: int | None
) -> int:
    async with open_connection(target) as connection:
        state = await find_state(connection, run)
        task = await _task_id(connection.link, state.uid, task)
        printer = LogPrinter()
        if is_followed:
            await _Followed(connection, state, task, printer).until_finished()
        try:
            files = await _captured(connection.link, state.uid, task, attempt)
        except InvalidInputError:
            if is_followed or attempt is not None:
                raise
            await _print_live(connection.link, state, task, printer)
            return 0
    printer.print_captured(files)
    return 0


async def _task_id(link: OperatorLink, uid: str, task: str) -> str:
    """Return the id of the task that ``#INDEX`` names, or the id as it is given."""
    if not task.startswith("#") or not task[1:].isdecimal():
        return task
    ids = await link.list_tasks(uid)
    index = int(task[1:])
    return ids[index] if task not in ids and index < len(ids) else task


async def _captured(link: OperatorLink, uid: str, task: str, attempt: int | None) -> dict[str, str]:
    """Return the captured streams of an attempt by name.

    Raises:
        InvalidInputError: It has not finished.
    """
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "log")
        await link.get_log(uid, task, folder, attempt)
        files = sorted(folder_files(folder).items())
        return {name: path.read_text("utf-8", errors="replace") for name, path in files}


async def _print_live(link: OperatorLink, state: RunState, task: str, printer: LogPrinter) -> None:
    output = await link.get_output(state.uid, task, ())
    printer.print_live(output)
    if not output.parts:
        print_note(_nothing_yet(state, task, output))


def _nothing_yet(state: RunState, task: str, output: AttemptOutput) -> str:
    if not output.attempt:
        return f"task {task} was not begun yet"
    harness = object_at(object_at(state.run, "spec"), "harness")
    if harness.get("env"):
        return (
            f"task {task} is under way; its output is shown with its record, because the run's"
            " harness.env has values that are taken out of it"
        )
    return f"task {task} is under way and has printed nothing yet"


class _Followed:
    """Follows one task until its attempts have records."""

    def __init__(
        self, connection: Connection, state: RunState, task: str, printer: LogPrinter
    ) -> None:
        self._connection = connection
        self._state = state
        self._task = task
        self._place = ""
        self._printer = printer
        self._is_lost = False

    async def until_finished(self) -> None:
        idle, note = 0, ""
        while True:
            output = await self._output()
            if output.is_finished:
                return
            self._printer.print_live(output)
            note = self._note(output, note)
            idle = 0 if output.parts else idle + 1
            if idle % _IDLE_POLLS == _IDLE_POLLS - 1 and not await self._is_going_on():
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _note(self, output: AttemptOutput, before: str) -> str:
        """Say once why there is nothing to see, and return what was said last."""
        if self._printer.has_printed:
            return before
        message = _nothing_yet(self._state, self._task, output)
        if message != before:
            print_note(message)
        return message

    async def _output(self) -> AttemptOutput:
        while True:
            try:
                output = await self._connection.link.get_output(
                    self._state.uid, await self._shortest_name(), self._printer.marks()
                )
            except TransientClusterError as error:
                if not self._is_lost:
                    print_note(f"connection lost; reconnecting ({error})")
                self._is_lost = True
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                if self._is_lost:
                    print_note("connected again")
                self._is_lost = False
                return output

    async def _shortest_name(self) -> str:
        """Return ``#INDEX`` once the run has begun: the operator need not search for the id."""
        if not self._place:
            with suppress(InvalidInputError):
                ids = await self._connection.link.list_tasks(self._state.uid)
                self._place = f"#{ids.index(self._task)}" if self._task in ids else ""
        return self._place or self._task

    async def _is_going_on(self) -> bool:
        """Whether the run is there and has not ended.

        Raises:
            ClusterError: It was deleted.
        """
        cluster, name = self._connection.cluster, self._state.name
        run = await cluster.get(ObjectKind.BENCHMARK_RUN, name)
        if run is None or object_at(run, "metadata").get("uid") != self._state.uid:
            raise ClusterError(f"the BenchmarkRun {name} was deleted")
        return run_state(run).end is None
