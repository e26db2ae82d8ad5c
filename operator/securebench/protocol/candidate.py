"""Where a candidate comes from, why there may be none, and how much of it is kept.

Source: contract 13.1 and 15.7.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from securebench.protocol.messages import Relative
from securebench.sizes import GIB, MIB

CandidateKind = str
"""A key of ``KINDS``."""

TEXT_FILE = "candidate.txt"
CODE_FILE = "candidate.py"
WORKSPACE_FILE = "workspace.tar"
ROOT_FILE = "root.tar"
"""Names of candidates: of text, of code in a workspace, of a sealed workspace, of sealed changes of
a root file system."""

CHANGED_FILE = "changed.json"
"""Of a verification: the list of really changed paths, when they are not the declared ones."""

STREAMS = ("stdout", "stderr")

ORACLE_FOLDER = "/opt/securebench/oracle"
"""Mounted in an oracle's harness container; holds the task's reference answer as one file."""


class ExtractionMode(StrEnum):
    """Where a candidate comes from (contract 13.1)."""

    STDOUT = "stdout"
    FILE = "file"
    GIT_DIFF = "git_diff"
    WORKSPACE = "workspace"
    ROOT = "root_diff"
    UNSUPPORTED = "unsupported"


class Problem(StrEnum):
    """Why there is no candidate: failure reasons of outcome ``agent`` (contract 13.1)."""

    MISSING = "candidate_missing"
    TOO_LARGE = "candidate_too_large"
    INVALID = "candidate_invalid"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What the courier takes.

    Attributes:
        mode: Source of the candidate.
        kind: What the candidate is.
        path: Workspace-relative file; present exactly for mode ``file``.
    """

    mode: ExtractionMode
    kind: CandidateKind
    path: Relative | None = None


RECORD_BYTES = 16 * MIB
"""One line of candidates.jsonl."""

UTF8_CONTINUATIONS = 3
"""A UTF-8 character has at most this many bytes after its first one."""

CONTINUATION_BYTES = range(0x80, 0xC0)


Size = Annotated[int, "int64"]


@dataclass(frozen=True, slots=True)
class CandidateBounds:
    """Bounds in bytes, and of a workspace also in entries.

    Attributes:
        text_bytes: Candidate text or code.
        patch_bytes: Candidate patch.
        workspace_bytes: File contents and names of a candidate workspace, or of the changes of a
            root file system, together; of a sparse file its parts.
        workspace_files: Entries of either: files, folders, links and whatever is dropped, of
            changes also what is gone.
        stream_bytes: Stdout and stderr, each.
    """

    text_bytes: Size = MIB
    patch_bytes: Size = 10 * MIB
    workspace_bytes: Size = GIB
    workspace_files: Size = 100_000
    stream_bytes: Size = MIB


@dataclass(frozen=True, slots=True)
class CandidateForm:
    """How agents hand in a kind of candidate.

    Attributes:
        from_agent: Source of what the CLI of a provider hands in.
        from_command: Source of what a command hands in that names no file.
        path: Workspace-relative file, where ``from_agent`` is one.
        hand_in: Sentence of the prompt on it; empty for none.
        bound: Field of ``CandidateBounds`` for a candidate that is one file of text.
        archive: File of a candidate that is a tree; empty for one file of text.
        record_field: Field of a record that has it, or names it.
        has_workspace: Whether the agent has a workspace beside the image's files.
        is_judged_late: Whether what an agent left at its time limit is verified.
    """

    from_agent: ExtractionMode = ExtractionMode.FILE
    from_command: ExtractionMode = ExtractionMode.STDOUT
    path: str | None = None
    hand_in: str = ""
    bound: str = "text_bytes"
    archive: str = ""
    record_field: str = "candidate_text"
    has_workspace: bool = True
    is_judged_late: bool = False

    def limit(self, bounds: CandidateBounds) -> int:
        """Return the most bytes of a candidate that is one file of text."""
        return int(getattr(bounds, self.bound))


KINDS: Final[dict[CandidateKind, CandidateForm]] = {
    "text": CandidateForm(
        path=TEXT_FILE,
        hand_in="Write your final answer, and nothing else, to the file {path} in the workspace.",
    ),
    "code": CandidateForm(
        path=CODE_FILE,
        hand_in="Write your solution as Python source code to the file {path} in the workspace.",
    ),
    "patch": CandidateForm(
        from_agent=ExtractionMode.GIT_DIFF,
        hand_in="Leave your changes in the checkout: the difference to its present state is"
        " judged.",
        bound="patch_bytes",
        record_field="candidate_patch",
    ),
    "workspace": CandidateForm(
        from_agent=ExtractionMode.WORKSPACE,
        from_command=ExtractionMode.WORKSPACE,
        hand_in="What is judged is the state of the workspace when you have finished.",
        archive=WORKSPACE_FILE,
        record_field="candidate_workspace",
    ),
    "root": CandidateForm(
        from_agent=ExtractionMode.ROOT,
        from_command=ExtractionMode.ROOT,
        hand_in="What is judged is the state of the file system when you have finished.",
        archive=ROOT_FILE,
        record_field="candidate_workspace",
        has_workspace=False,
        is_judged_late=True,
    ),
    "none": CandidateForm(ExtractionMode.UNSUPPORTED, ExtractionMode.UNSUPPORTED),
}
"""Every kind of candidate; the courier knows sources only, so a kind from a known source needs no
other module. What the Pod of an agent has for a source is in ``protocol.supervise.SOURCES``."""

CANDIDATE_FILES: Final = frozenset(
    {TEXT_FILE}.union(form.archive for form in KINDS.values()) - {""}
)
"""Names that sealed candidates have."""


class BoundedText(NamedTuple):
    """A text as it is kept, and whether something was left out."""

    text: str
    truncated: bool


def bounded_text(head: bytes, tail: bytes, total: int, limit: int) -> BoundedText:
    """Return a stream as text of about ``limit`` bytes: its first and its last half.

    Args:
        head: The first bytes of the stream.
        tail: The last bytes of what came after the head; empty when nothing came.
        total: How long the stream really was.
        limit: How many bytes are kept.

    Returns:
        The text, with U+FFFD for what is not UTF-8. Cuts never split a character; between the
        halves stands a line that counts what is missing.
    """
    total = max(total, len(head) + len(tail))
    kept = head + tail
    is_whole = len(kept) == total
    if is_whole and total <= limit:
        return BoundedText(kept.decode("utf-8", "replace"), truncated=False)
    half = limit // 2
    first, first_bytes = _beginning(head[:half])
    last = _whole_characters((kept if is_whole else tail)[-half:] if half else b"")
    omitted = total - first_bytes - len(last)
    line = f"[securebench: {omitted} of {total} bytes omitted]\n"
    separator = "" if not first or first.endswith("\n") else "\n"
    return BoundedText(first + separator + line + last.decode("utf-8", "replace"), truncated=True)


def _beginning(data: bytes) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    pending, _ = decoder.getstate()
    return text, len(data) - len(pending)


def _whole_characters(data: bytes) -> bytes:
    start = 0
    while start < min(UTF8_CONTINUATIONS, len(data)) and data[start] in CONTINUATION_BYTES:
        start += 1
    return data[start:]
