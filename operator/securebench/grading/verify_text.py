"""The verifier of text families: reads candidates and hidden lanes of their tasks, runs nothing.

``python3 -I -m securebench.grading.verify_text --spec JSON`` exits with 0 whenever it reached a
verdict, which its termination message holds. The verdicts of a batch are in a file, whose digest
the message holds; a member without a verdict is an error in that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark.families.registry import text_verifier
from securebench.digests import content_digest
from securebench.errors import DigestMismatchError, SecureBenchError, SpecError
from securebench.files.durable import replace_file
from securebench.files.termination_log import TERMINATION_LOG, write_message
from securebench.files.tree_digest import tree_digest
from securebench.grading.container_usage import CGROUP, measure_usage, with_usage
from securebench.grading.isolated import error_message, judge_isolated
from securebench.protocol.batch import (
    MEMBER_SECONDS,
    VERDICTS_FILE,
    VERDICTS_FOLDER,
    encode_verdicts,
)
from securebench.protocol.messages import MAX_MESSAGE_BYTES
from securebench.protocol.specs import (
    decode_object,
    encode_message,
    require_fields,
    require_version,
    section,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_VERDICT = 90
"""Exit code when nothing could be judged; the pack or the launch is to blame, not the candidate."""

PUBLIC = "public"
"""Folder below the hidden lane with the public values that the verifier needs."""

NOT_PUBLISHED = frozenset({"candidate_answer", "expected_answer"})
CUT_MARK = "metadata_truncated"


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
        message = judge(jobs[0]) if len(jobs) == 1 else judge_batch(jobs, verdicts)
    except (SecureBenchError, OSError, ValueError) as error:
        write_message(with_usage(error_message(error), used()), log)
        return NO_VERDICT
    write_message(with_usage(message, used()), log)
    return 0


def decode(spec: str) -> Sequence[VerifyJob]:
    """Return the jobs of a command line, at least one.

    Raises:
        SpecError: It is not exactly of this version's form.
    """
    raw = decode_object(spec)
    require_version(raw)
    require_fields(raw, ["version", "members"])
    members = raw["members"]
    if not isinstance(members, list) or not members:
        raise SpecError("members must be a list that is not empty")
    jobs = [_job(member) for member in members]
    if len({job.name for job in jobs}) != len(jobs):
        raise SpecError("two members have one name")
    return jobs


def judge_batch(jobs: Sequence[VerifyJob], folder: Path) -> bytes:
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
    facts = {name: value for name, value in metadata.items() if name not in NOT_PUBLISHED}
    while True:
        message = encode_message({"passed": passed, "score": score, "metadata": facts})
        if len(message) <= MAX_MESSAGE_BYTES:
            return message
        del facts[max(facts, key=lambda name: len(name) + len(json.dumps(facts[name])))]
        facts[CUT_MARK] = True


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
