"""Scenarios: folders that say what is applied and what must come out."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from support.release import DATA, Raw, Record, Release, benchmark_run, call, condition, keyed_pack

FOLDER = Path(__file__).parent / "scenarios"
MISSING = "<missing>"
RECORD_SCHEMA = files("securebench.schemas").joinpath("record.schema.json")
PUBLISHED = Draft202012Validator(
    json.loads(RECORD_SCHEMA.read_text(encoding="utf-8")),
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One folder.

    ``run.yaml`` holds ``spec`` (of the BenchmarkRun, the pack is added), and may hold ``labels``
    (of the BenchmarkRun), ``objects`` to create first, ``needs`` (a script to run first),
    ``weight`` (long ones start first) and ``pack``: ``configMap`` (the default), ``secret``,
    ``volume`` or ``none``.
    ``want.yaml`` holds ``succeeded``, ``reason``, ``message`` (fragments), ``status`` and
    ``tasks``: by id what its records ``is`` and ``has``, by dotted path; ``never`` lists texts
    that no record may hold.
    """

    name: str

    @property
    def given(self) -> Raw:
        """What is applied."""
        return self._read("run.yaml")

    @property
    def want(self) -> Raw:
        """What must come out."""
        return self._read("want.yaml")

    def start(self, release: Release) -> None:
        """Create everything of the scenario."""
        given = self.given
        if "needs" in given:
            call(str(FOLDER.parent / given["needs"]))
        objects, source = self._pack(given.get("pack", "configMap"), release)
        spec = {**given["spec"], **source}
        run = benchmark_run(self.name, spec)
        run["metadata"]["labels"] = given.get("labels", {})
        release.create(*objects, *given.get("objects", []), run)

    def check(self, release: Release) -> None:
        """Wait for the end of the run and compare."""
        run, want = release.wait_ended(self.name), self.want
        problems = [*differences(condition(run), want), *_status(run, want)]
        if "tasks" in want:
            text = release.file(self.name, "candidates.jsonl").decode()
            records = release.records(self.name)
            problems += _unpublished(records)
            problems += _records(records, want["tasks"])
            never = (item for item in want.get("never", []) if item in text)
            problems += [f"{item!r} is in a record" for item in never]
        assert not problems, "\n".join(problems)

    def _read(self, name: str) -> Raw:
        content: Raw = yaml.safe_load((FOLDER / self.name / name).read_text(encoding="utf-8"))
        return content

    def _pack(self, kind: str, release: Release) -> tuple[list[Raw], Raw]:
        folder = FOLDER / self.name / "pack"
        match kind:
            case "none":
                return [], {}
            case "volume":
                release.operator("tar", "-x", "-C", f"{DATA}/packs", stdin=_tar(folder, self.name))
                return [], {"pack": {"volume": {"path": self.name}}}
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        made, source = keyed_pack(kind[0].upper() + kind[1:], f"{self.name}-pack", files)
        if kind == "secret":
            made["metadata"]["labels"] = {"securebench.dev/usable-by-runs": "pack"}
        return [made], {"pack": source}


class Starter:
    """Creates the runs of scenarios, each once.

    Args:
        release: Where they go.
        waiting: In the order in which they begin.
    """

    def __init__(self, release: Release, waiting: list[Scenario]) -> None:
        self.release = release
        self._waiting = waiting

    def start_next(self) -> None:
        """Begin the next one, if there is one."""
        if self._waiting:
            self._waiting.pop(0).start(self.release)

    def require(self, scenario: Scenario) -> None:
        """Begin a scenario now, unless it was begun before."""
        if scenario in self._waiting:
            self._waiting.remove(scenario)
            scenario.start(self.release)


def scenarios() -> list[Scenario]:
    """Return all scenarios; those that take long come first."""
    found = [Scenario(path.parent.name) for path in sorted(FOLDER.glob("*/run.yaml"))]
    return sorted(found, key=lambda scenario: -scenario.given.get("weight", 0))


def differences(seen: Raw, want: Raw) -> Iterator[str]:
    """Yield how a condition differs."""
    for key in ("status", "reason"):
        wanted = want["succeeded" if key == "status" else key]
        if seen[key] != wanted:
            yield f"{key} is {seen[key]!r}, not {wanted!r}: {seen['message']}"
    for fragment in want.get("message", []):
        if fragment not in seen["message"]:
            yield f"message lacks {fragment!r}: {seen['message']}"


def _unpublished(records: list[Record]) -> Iterator[str]:
    """Yield where records are not as the published schema says."""
    for number, record in enumerate(records, start=1):
        for error in PUBLISHED.iter_errors(record):
            yield f"line {number} of candidates.jsonl: {error.json_path}: {error.message[:300]}"


def _status(run: Raw, want: Raw) -> Iterator[str]:
    for path, value in want.get("status", {}).items():
        if at(run["status"], path) != value:
            yield f"status.{path} is {at(run['status'], path)!r}, not {value!r}"


def _records(records: list[Record], want: Mapping[str, Any]) -> Iterator[str]:
    found: dict[str, Record] = {}
    for record in records:
        number = f"#{record['attempt']}" if record["task_id"] in found else ""
        found[f"{record['task_id']}{number}"] = record
    if sorted(found) != sorted(want):
        yield f"records of {sorted(found)}, not of {sorted(want)}"
        return
    for task, wanted in want.items():
        for problem in _record(found[task], wanted):
            yield f"{task}: {problem}"


def _record(record: Record, want: Mapping[str, Any]) -> Iterator[str]:
    for path, wanted in want.get("is", {}).items():
        seen = at(record, path)
        allowed = wanted["one_of"] if isinstance(wanted, dict) and "one_of" in wanted else [wanted]
        if seen not in allowed:
            because = f" ({record.get('failure_reason')}: {record.get('failure_message')})"
            yield f"{path} is {str(seen)[:300]!r}, not {wanted!r}{because}"
    for path, fragments in want.get("has", {}).items():
        for fragment in [fragments] if isinstance(fragments, str) else fragments:
            if fragment not in str(at(record, path)):
                yield f"{path} lacks {fragment!r}: {str(at(record, path))[:600]!r}"
    for path in want.get("lacks", []):
        if at(record, path) != MISSING:
            yield f"{path} is there: {at(record, path)!r}"


def at(value: object, path: str) -> object:
    """Return the value at a dotted path, or ``MISSING``."""
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return MISSING
        value = value[name]
    return value


def _tar(folder: Path, name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, name)
    return buffer.getvalue()
