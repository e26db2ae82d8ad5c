"""The verifier of text families: reads candidates and hidden lanes of their tasks, runs nothing.

``python3 -I -m securebench.grading.verify_text --spec JSON`` exits with 0 whenever it reached a
verdict, which its termination message holds. The verdicts of a batch are in a file, whose digest
the message holds; a member without a verdict is an error in that file.

The members of a batch are judged one after the other, each in a process with bounds of its own.
What one member does to its process ends there: memory, time and state are gone before the next one
begins. The process inherits no other member's data and leaves nothing but one message.

The message also has what the container took, from the files of its own cgroup. That is evidence
only: where the kernel does not report it (gVisor, an old kernel), the fields are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark.families.registry import text_verifier
from securebench.digests import content_digest
from securebench.errors import DigestMismatchError, SecureBenchError, SpecError
from securebench.files import TERMINATION_LOG, replace_file, tree_digest, write_message
from securebench.protocol.grading import (
    MEMBER_SECONDS,
    VERDICTS_FILE,
    VERDICTS_FOLDER,
    encode_verdicts,
)
from securebench.protocol.messages import (
    CPU_PERIODS,
    CPU_THROTTLED,
    MAX_MESSAGE_BYTES,
    MEMORY_PEAK_BYTES,
    decode_spec,
    encode_message,
    require_fields,
    require_version,
    section,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CGROUP = Path("/sys/fs/cgroup")
MEMORY_PEAKS = ("memory.peak", "memory/memory.max_usage_in_bytes")
"""The most memory at once since the container's start, file cache included: cgroup v2, v1."""
CPU_STATS = ("cpu.stat", "cpu/cpu.stat")
"""The periods of the CPU limit: cgroup v2, v1."""


def measure_usage(cgroup: Path = CGROUP) -> Callable[[], Mapping[str, int]]:
    """Begin to measure and return what gives the known fields of the usage.

    Args:
        cgroup: Where the container sees its own cgroup.
    """
    before = _numbers(cgroup, CPU_STATS)

    def used() -> Mapping[str, int]:
        after = _numbers(cgroup, CPU_STATS)
        found = {
            MEMORY_PEAK_BYTES: _numbers(cgroup, MEMORY_PEAKS).get("", 0),
            CPU_PERIODS: after.get("nr_periods", 0) - before.get("nr_periods", 0),
            CPU_THROTTLED: after.get("nr_throttled", 0) - before.get("nr_throttled", 0),
        }
        return {name: count for name, count in found.items() if count > 0}

    return used


def with_usage(message: bytes, usage: Mapping[str, int]) -> bytes:
    """Return a termination message with the usage, or as it is where that has no room."""
    fields = json.dumps(usage, separators=(",", ":")).encode()
    longer = message[:-1] + b"," + fields[1:]
    return longer if usage and len(longer) <= MAX_MESSAGE_BYTES else message


def _numbers(cgroup: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the first file that can be read; a number alone has the key ``""``."""
    for name in names:
        try:
            lines = (cgroup / name).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        pairs = (line.rpartition(" ") for line in lines)
        return {key: int(value) for key, _, value in pairs if value.isdecimal()}
    return {}


MEMORY_BYTES = 128 << 20
"""What a member may map beyond what the verifier has mapped; both fit the container's limit."""


def judge_isolated(judge: Callable[[], bytes], seconds: float) -> bytes:
    """Return a member's termination message, or one that names the error.

    Args:
        judge: Judges one member and returns its message; runs in a process of its own.
        seconds: Time for it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run(judge, writer)
    os.close(writer)
    try:
        message = _received(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return message


def _error_message(error: BaseException) -> bytes:
    """Return the message of a member without a verdict.

    It names the class alone: the text of an error may quote a hidden value.
    """
    return encode_message({"error": type(error).__name__})


def _run(judge: Callable[[], bytes], writer: int) -> None:
    """Judge in this process and end it."""
    try:
        os.write(writer, _judged(judge))
    finally:
        os._exit(0)


def _judged(judge: Callable[[], bytes]) -> bytes:
    try:
        mapped = _mapped_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (mapped, mapped))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return judge()
    except BaseException as error:  # noqa: BLE001 - the process ends here, whatever it was
        return _error_message(error)


def _mapped_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _received(reader: int, until: float) -> bytes:
    """Return what a process says before it ends; it writes at most once and never blocks."""
    wait = select.poll()
    wait.register(reader, select.POLLIN)
    if not wait.poll(max(0.0, until - time.monotonic()) * 1000):
        return _error_message(TimeoutError())
    return os.read(reader, MAX_MESSAGE_BYTES) or _error_message(ChildProcessError())


NO_VERDICT = 90
"""Exit code when nothing could be judged; the pack or the launch is to blame, not the candidate."""

PUBLIC = "public"
"""Folder below the hidden lane with the public values that the verifier needs."""

_NOT_PUBLISHED = frozenset({"candidate_answer", "expected_answer"})
_CUT_MARK = "metadata_truncated"


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """One member of the verifier's input: a family, and two files by path and digest."""

    name: str
    family: str
    candidate: Path
    candidate_digest: str
    hidden: Path
    hidden_digest: str


def main(
    arguments: Sequence[str] | None = None,
    *,
    log: Path = TERMINATION_LOG,
    verdicts: Path = Path(VERDICTS_FOLDER),
    cgroup: Path = CGROUP,
) -> int:
    """Judge, write the termination message and return the exit code.

    Args:
        arguments: Command line without the program.
        log: The termination message's file.
        verdicts: Folder for the verdict file of a batch.
        cgroup: Where the container sees its own cgroup.
    """
    used = measure_usage(cgroup)
    parser = argparse.ArgumentParser(prog="securebench.grading.verify_text")
    parser.add_argument("--spec", required=True)
    try:
        jobs = decode(parser.parse_args(arguments).spec)
        message = judge(jobs[0]) if len(jobs) == 1 else _judge_batch(jobs, verdicts)
    except (SecureBenchError, OSError, ValueError) as error:
        write_message(with_usage(_error_message(error), used()), log)
        return NO_VERDICT
    write_message(with_usage(message, used()), log)
    return 0


def decode(spec: str) -> Sequence[VerifyJob]:
    """Return the jobs of a command line, at least one.

    Raises:
        SpecError: It is not exactly of this version's form.
    """
    raw = decode_spec(spec)
    require_version(raw)
    require_fields(raw, ["version", "members"])
    members = raw["members"]
    if not isinstance(members, list) or not members:
        raise SpecError("members must be a list that is not empty")
    jobs = [_job(member) for member in members]
    if len({job.name for job in jobs}) != len(jobs):
        raise SpecError("two members have one name")
    return jobs


def _judge_batch(jobs: Sequence[VerifyJob], folder: Path) -> bytes:
    """Judge the members of a batch and return the message with the digest of their verdicts.

    Args:
        jobs: Two members at least.
        folder: Gets the verdict file.

    Raises:
        OSError: The verdicts could not be kept.
    """
    found = {job.name: judge_isolated(partial(judge, job), MEMBER_SECONDS) for job in jobs}
    content = encode_verdicts({name: message.decode() for name, message in found.items()})
    replace_file(folder / VERDICTS_FILE, content)
    return encode_message({"verdicts": content_digest(content)})


def _job(raw: object) -> VerifyJob:
    if not isinstance(raw, dict):
        raise SpecError("a member must be an object")
    require_fields(raw, ["name", "family", "candidate", "hidden"])
    candidate = section(raw, "candidate", ["path", "digest"])
    hidden = section(raw, "hidden", ["path", "digest"])
    return VerifyJob(
        name=text(raw, "name"),
        family=text(raw, "family"),
        candidate=Path(text(candidate, "path")),
        candidate_digest=text(candidate, "digest"),
        hidden=Path(text(hidden, "path")),
        hidden_digest=text(hidden, "digest"),
    )


def judge(job: VerifyJob) -> bytes:
    """Return the message with the verdict.

    Raises:
        SpecError: No such family.
        DigestMismatchError: An input is not what the operator sealed.
        StorageError: The hidden lane holds something odd.
        ConfigError: The row cannot be judged.
    """
    verifier = text_verifier(job.family)
    if verifier is None:
        raise SpecError(f"{job.family!r} is no text family")
    candidate = job.candidate.read_bytes()
    _compare("candidate", content_digest(candidate), job.candidate_digest)
    _compare("hidden lane", tree_digest(job.hidden), job.hidden_digest)
    result = verifier.verify(
        candidate.decode("utf-8"), _values(job.hidden / PUBLIC), _values(job.hidden)
    )
    return verdict_message(result.passed, result.score, result.metadata)


def verdict_message(passed: bool, score: float, metadata: Mapping[str, object]) -> bytes:  # noqa: FBT001
    """Return a verdict as a message that fits.

    Args:
        passed: The verdict.
        score: Its number.
        metadata: Facts; the longest ones are left out when all of them are too long.
    """
    facts = {name: value for name, value in metadata.items() if name not in _NOT_PUBLISHED}
    while True:
        message = encode_message({"passed": passed, "score": score, "metadata": facts})
        if len(message) <= MAX_MESSAGE_BYTES:
            return message
        del facts[max(facts, key=lambda name: len(name) + len(json.dumps(facts[name])))]
        facts[_CUT_MARK] = True


def _compare(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise DigestMismatchError(
            f"the {what} is not the expected one", found=found, expected=wanted
        )


def _values(folder: Path) -> dict[str, object]:
    """Return the values of a lane by name; a missing folder holds none."""
    if not folder.is_dir():
        return {}
    return {
        path.name.removesuffix(".json"): json.loads(path.read_bytes())
        for path in sorted(folder.iterdir())
        if path.name.endswith(".json") and path.is_file()
    }


if __name__ == "__main__":
    sys.exit(main())
