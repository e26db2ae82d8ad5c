"""Scripts that leave rewards, run on this machine: Pod, supervise, courier and verdict, no cluster.

The Pod is that of ``RewardVerification``. Its folders lie in a folder of the test; what a script
calls ``/logs/verifier`` and the like is there, too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from securebench.benchmark.families.base import RewardRequest
from securebench.files import tree_digest
from securebench.protocol.candidate import CandidateBounds
from securebench.run.decide.attempt import after_verification
from securebench.run.plan.model import LaunchKey, Role, TaskPlan
from securebench.run.state.attempts import Finish, PodFacts, VerifierResult
from securebench.run.verification.base import Member, verifier_pod
from support import courier
from support.build import VERIFIER, ended, pod_status, view_of
from support.left import LeftIn
from support.manifest_samples import FACTS, LANES, candidate, harbor_task, run_plan
from support.records import VERIFICATION, WORKSPACE_PRODUCTION, checked, record
from support.supervise_build import Edit

SECONDS = 60
"""When a test fails because supervise still runs."""

ROOT = ("unshare", "--pid", "--fork", "--kill-child")
"""supervise as PID 1, which ends whatever runs beside it."""


class Graded(NamedTuple):
    """What became of a candidate."""

    result: VerifierResult
    finish: Finish
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """A script with its candidate.

    Attributes:
        text: The script; folders of the Pod are ``{tests}``, ``{logs}`` of the verifier,
            ``{output}`` of supervise and ``{workspace}``.
        candidate: Files of the workspace by path; they know the same places.
        workspace: Where the Pod has the workspace.
        request: More of what the row says.
        spec: What is other in the specification of supervise.
    """

    text: str
    candidate: Mapping[str, str] = field(default_factory=dict)
    workspace: str = "/app"
    request: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def graded(self, folder: Path, *edits: Edit) -> Graded:
        """Run the script in a Pod made of folders and return what is written of it.

        Args:
            folder: Of the test.
            edits: Controls that are taken out of supervise.
        """
        request = RewardRequest(script="test.sh", **{"timeout_seconds": 20.0, **self.request})
        task = harbor_task(request, workspace=self.workspace, workdir=self.workspace)
        pod = _Pod(folder)
        words = {
            "tests": pod.place("/tests"),
            "logs": pod.place("/logs/verifier"),
            "output": pod.place("/opt/securebench/output"),
            "workspace": pod.place(self.workspace),
        }
        tests = pod.place("/tests")
        (tests / "test.sh").write_text(_filled(self.text, words))
        archive = _archived({name: _filled(text, words) for name, text in self.candidate.items()})
        (pod.place("/opt/securebench/candidate") / "workspace.tar").write_bytes(archive)
        sealed = replace(
            candidate("workspace.tar"), digest=f"sha256:{hashlib.sha256(archive).hexdigest()}"
        )
        lanes = replace(LANES, evaluation_inputs_digest=tree_digest(tests))
        member = Member(task, LaunchKey(7, 1, Role.VERIFIER, 1), lanes, sealed)
        made = verifier_pod(run_plan(task), [member], FACTS)
        code, message = pod.run(made, self.spec, edits)
        return _judged(task, folder / "verification", code, message, pod.collect())


class _Pod:
    """Folders in the place of a Pod's mounts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, Path] = {}

    def place(self, path: str) -> Path:
        """Return where a folder of the Pod lies; a mount below another one lies in it."""
        parents = [known for known in self._places if path.startswith(f"{known}/")]
        if parents:
            parent = max(parents, key=len)
            found = self._places[parent] / path.removeprefix(f"{parent}/")
        else:
            found = self._folder / "pod" / path.removeprefix("/")
        found.mkdir(parents=True, exist_ok=True)
        found.chmod(0o777)
        return self._places.setdefault(path, found)

    def run(
        self, pod: Mapping[str, Any], changes: Mapping[str, Any], edits: tuple[Edit, ...]
    ) -> tuple[int, str]:
        """Run the main container of a Pod; return its exit code and its message."""
        (container,) = pod["spec"]["containers"]
        for mount in sorted(container["volumeMounts"], key=lambda each: each["mountPath"]):
            self.place(mount["mountPath"])
        _, verb, flag, text = container["command"]
        spec = self._here({**json.loads(text), **changes})
        spec |= {"temporary": "", "probes": [], "max_processes": 0}
        (self._folder / "log").touch()
        program = str(courier.courier(*edits))
        words = [*(ROOT if os.geteuid() == 0 else ()), program, verb, flag, json.dumps(spec)]
        done = subprocess.run(words, cwd=self._folder, timeout=SECONDS, check=False)
        return done.returncode, (self._folder / "log").read_text()

    def _here(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._here(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._here(each) for each in value]
        if isinstance(value, str) and value.startswith("/"):
            above = [known for known in self._places if f"{value}/".startswith(f"{known}/")]
            if above:
                known = max(above, key=len)
                return f"{self._places[known]}{value.removeprefix(known)}"
        return value

    def collect(self) -> str:
        """Run the courier; return its message."""
        (self._folder / "output").symlink_to(self.place("/opt/securebench/output"))
        (self._folder / "verification").mkdir()
        spec = {"version": 1, "limits": asdict(CandidateBounds()), "seal": None}
        found = courier.run(self._folder, json.dumps(spec))
        assert found.code == 0, found
        return found.message.decode()


def _judged(task: TaskPlan, left: Path, code: int, message: str, collected: str) -> Graded:
    status = pod_status("Succeeded", ended("check", code, message=message))
    known = replace(VERIFICATION, passed=False, metadata={}, facts=PodFacts())
    view = view_of(VERIFIER, status)
    assert task.verification is not None
    result = task.verification.verdict(known, LeftIn(left, code, {"courier": collected}, view=view))
    finish = after_verification(task, checked().finish.key, WORKSPACE_PRODUCTION, result)
    past = checked().but(verification=result, finish=finish)
    return Graded(result, finish, record(past, task))


def _archived(files: Mapping[str, str]) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, text in files.items():
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(text.encode()), 0o755
            archive.addfile(header, io.BytesIO(text.encode()))
    return result.getvalue()


def _filled(text: str, words: Mapping[str, Path]) -> str:
    for name, place in words.items():
        text = text.replace(f"{{{name}}}", str(place))
    return text
