"""The list of every run that was started on a volume, as a chain of digests.

A line is ``<link> <digest> <JSON of RunStart>``: the link is the digest of the line before, of the
first line 64 zeros; the digest is the SHA-256 of link, blank and JSON; both are in hexadecimal.
Nothing in a line is ever changed. The chain shows a line that was edited, taken out or moved. That
its end was cut off shows in whatever saw the longer list: statements, and the index of runs.

Source: contract 15.9.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from securebench.json_values import text_at
from securebench.protocol.messages import decode_object

Start = Mapping[str, object]
"""A ``RunStart`` as JSON; lines of later versions may have more fields."""

NO_LINK = "0" * 64


@dataclass(frozen=True, slots=True)
class StartedRun:
    """What the list of starts and the index of a volume both say of a run.

    Attributes:
        run_id: The records' run_id.
        pack: Manifest id.
        pack_digest: Contract 15.6.
        harness_digest: Contract 15.6.
        verifier_version: Contract 15.6.
        started_at: RFC 3339.
        agent: Type of the harness.
        model: Model of its configuration; empty without one.
        regrade_of: Uid of the run that it grades again, or empty.
        requester: The user who requested it, as the cluster knows the user; empty where nothing
            keeps that true.
    """

    run: str
    uid: str
    run_id: str
    pack: str
    pack_digest: str
    harness_digest: str
    verifier_version: str
    started_at: str
    agent: str = ""
    model: str = ""
    regrade_of: str = ""
    requester: str = ""


@dataclass(frozen=True, slots=True)
class RunStart(StartedRun):
    """A run, as it was started.

    Attributes:
        resumed_uid: The run that it resumes; empty for none.
        epoch: Epoch of the leader that started it; 0 in an imported line.
        operator_version: Its version; empty in an imported line.
        key_id: Key ID of the operator's signing key at that time; empty for none.
        is_imported: Whether the run is older than the list and was taken over from the index.
        fault: What was wrong with the lines before when this one was written; empty for nothing.
    """

    resumed_uid: str = ""
    epoch: int = 0
    operator_version: str = ""
    key_id: str = ""
    is_imported: bool = False
    fault: str = ""


class StartLine(NamedTuple):
    """A whole line of the list.

    Attributes:
        number: From 1.
        digest: Its own, in hexadecimal.
        start: The run.
    """

    number: int
    digest: str
    start: Start


class StartList(NamedTuple):
    """The list as it was read.

    Attributes:
        lines: The whole ones, oldest first.
        size: Number of all lines.
        faults: What is wrong with lines, each in words that begin with its number.
    """

    lines: Sequence[StartLine]
    size: int
    faults: Sequence[str]

    @property
    def head(self) -> str:
        """Digest of the last whole line."""
        return self.lines[-1].digest if self.lines else NO_LINK

    def first(self, count: int) -> Sequence[StartLine]:
        """Return the whole ones of the first lines."""
        return [line for line in self.lines if line.number <= count]

    @property
    def uids(self) -> frozenset[str]:
        """The runs that have a line."""
        return frozenset(text_at(line.start, "uid") for line in self.lines)

    def of_uid(self, uid: str) -> StartLine | None:
        """Return the line of a run, or None."""
        return next((line for line in self.lines if line.start.get("uid") == uid), None)


def is_counted(requester: str, behind: Collection[str]) -> bool:
    """Whether a run counts as a try of users: one of them requested it, or nobody knows who did.

    Args:
        requester: Who requested it; empty: unknown.
        behind: The users, with an empty name where one is unknown.
    """
    return not requester or requester in behind or "" in behind


def requesters_behind(starts: Iterable[Start], uid: str) -> frozenset[str]:
    """Return who requested a run, and the runs that it resumes or grades again.

    An empty name is an unknown user, also where the run itself is not known.
    """
    by_uid = {text_at(start, "uid"): start for start in starts}
    found = {text_at(by_uid[each], "requester") for each in _earlier(by_uid, uid)}
    return frozenset(found or {""})


def same_runs(lines: Iterable[StartLine], run_id: str, pack_digest: str) -> list[Start]:
    """Return the runs that were started with a run id and a pack, oldest first."""
    wanted = (run_id, pack_digest)
    return [
        line.start
        for line in lines
        if (line.start.get("run_id"), line.start.get("pack_digest")) == wanted
    ]


def same_agent_runs(lines: Iterable[StartLine], own: Start) -> list[Start]:
    """Return the runs of the same agent and model on the same pack, whatever else differs.

    A regrade starts no agent, and is none of them.
    """
    names = ("pack_digest", "agent", "model")
    return [
        line.start
        for line in lines
        if all(line.start.get(name) == own.get(name) for name in names)
        and not line.start.get("regrade_of")
    ]


def resumed_runs(lines: Sequence[StartLine], uid: str) -> Iterator[Start]:
    """Yield the run that a run resumes, then the one that that one resumes, and so on."""
    by_uid = {text_at(line.start, "uid"): line.start for line in lines}
    for each in _earlier(by_uid, uid, ("resumed_uid",)):
        if each != uid:
            yield by_uid[each]


def _earlier(
    by_uid: Mapping[str, Start], uid: str, names: Sequence[str] = ("resumed_uid", "regrade_of")
) -> Iterator[str]:
    """Yield a run and those before it, each once."""
    seen: set[str] = set()
    while uid in by_uid and uid not in seen:
        seen.add(uid)
        yield uid
        uid = next(filter(None, (text_at(by_uid[uid], name) for name in names)), "")


def read_starts(data: bytes) -> StartList:
    """Read a list; what is damaged in it becomes faults, never an error."""
    *texts, rest = data.split(b"\n")
    texts += [rest] if rest else []
    lines: list[StartLine] = []
    faults: list[str] = []
    link: str | None = NO_LINK
    for number, text in enumerate(texts, start=1):
        found = _line(text)
        if found is None or (number == len(texts) and rest):
            faults.append(f"line {number} is damaged")
            link = None
            continue
        own_link, digest, start = found
        if link not in (None, own_link):
            before = f"line {number - 1}" if number > 1 else "the beginning"
            faults.append(f"line {number} does not follow {before}: lines are missing or moved")
        lines.append(StartLine(number, digest, start))
        link = digest
    return StartList(lines, len(texts), faults)


def appended(known: StartList, starts: Iterable[RunStart]) -> bytes:
    """Return the lines that come behind the known ones."""
    link, lines = known.head, []
    for start in starts:
        body = json.dumps(asdict(start), sort_keys=True)
        digest = _digest(link, body.encode())
        lines.append(f"{link} {digest} {body}\n")
        link = digest
    return "".join(lines).encode()


def _line(text: bytes) -> tuple[str, str, Start] | None:
    link, _, rest = text.partition(b" ")
    digest, _, body = rest.partition(b" ")
    try:
        told = link.decode("ascii"), digest.decode("ascii")
        if told[1] != _digest(told[0], body):
            return None
        return *told, decode_object(body)
    except ValueError:
        return None


def _digest(link: str, body: bytes) -> str:
    return hashlib.sha256(link.encode() + b" " + body).hexdigest()
