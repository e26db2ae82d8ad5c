"""Print the streams of an attempt: pieces as they come, and at last what was captured."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from securebench.client.volume.watch_answers import AttemptOutput, OutputPart
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
