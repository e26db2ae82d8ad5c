"""Builders that tests share: Pods as the API server shows them, messages, histories, a clock."""

from __future__ import annotations

import asyncio
import hashlib
import json
import selectors
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from securebench.clock import Instant, TokenBucket, rfc3339
from securebench.cluster.port import Cluster
from securebench.controller.capacity import CreationRate, SharedCapacity
from securebench.controller.context import Context
from securebench.controller.reading import Reading
from securebench.controller.settings import Settings
from securebench.controller.volume.lead import VolumeLead
from securebench.protocol.gateway import PROVIDER_KEY, LaunchReport, RelayReport
from securebench.protocol.grading import encode_verdicts
from securebench.run.decide.network import NetworkState
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import (
    AttemptKey,
    EgressPlan,
    LaunchKey,
    ProviderPlan,
    Role,
    RunPlan,
    TaskPlan,
    member_name,
    pod_name,
)
from securebench.run.state.attempts import (
    QUEUED,
    AttemptHistory,
    AttemptState,
    CommandReport,
    FinishedState,
    HarnessResult,
    JudgedState,
    LaunchedState,
    Lost,
    PodFacts,
    ProducedState,
    QueuedState,
    SealedCandidate,
    VerifierResult,
)
from securebench.run.state.entries import IsolationResult
from support.leads import take_volume
from support.manifest_samples import RUN_UID, digest, policy_of, run_plan, terminal_task, text_task
from support.places import launch_folder

P = ParamSpec("P")
T = TypeVar("T")

NOW = 1_767_225_600.0
KEY = AttemptKey(0, 1)
HARNESS = LaunchKey(0, 1, Role.HARNESS, 1)
VERIFIER = LaunchKey(0, 1, Role.VERIFIER, 1)
IMAGE_ID = "registry.example/python@sha256:" + "7" * 64
CANDIDATE_SHA256 = digest("9")

Status = dict[str, object]


MONOTONIC = 5_000.0
"""Monotonic time at ``NOW``."""


class FakeClock:
    """A clock that moves when a test says so."""

    def __init__(self, now: float = NOW) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - NOW + MONOTONIC

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def instant(self) -> Instant:
        return Instant(self.now(), self.monotonic())


# Messages


def supervise_message(code: int = 0, **changes: object) -> str:
    body = {
        "v": 1,
        "code": code,
        "phase": "harness",
        "exit_code": 0,
        "signal": 0,
        "timed_out": code == 124,
        "duration_seconds": 1.5,
        "stdout_bytes": 10,
        "stderr_bytes": 0,
        "error": "",
    }
    return json.dumps(body | changes)


KERNEL = "6.1.0-test"


def seal_message(**changes: object) -> str:
    body = {
        "v": 1,
        "problem": None,
        "message": "",
        "file": "candidate.txt",
        "digest": digest("f"),
        "size_bytes": 3,
        "candidate_sha256": CANDIDATE_SHA256,
        "dropped_entries": 0,
        "stdout": {"bytes": 10, "truncated": False},
        "stderr": {"bytes": 0, "truncated": False},
        "kernel": KERNEL,
    }
    return json.dumps(body | changes)


def collect_message(**changes: object) -> str:
    streams = {"stdout": {"bytes": 5, "truncated": True}, "stderr": {"bytes": 0}}
    return json.dumps({"v": 1, "kernel": KERNEL} | streams | changes)


def text_message(*, passed: bool = True, **changes: object) -> str:
    body = {"v": 1, "passed": passed, "score": float(passed), "metadata": {"matched": passed}}
    return json.dumps(body | changes)


# Container states


def running(name: str, *, restarts: int = 0) -> Status:
    state = {"running": {"startedAt": rfc3339(NOW)}}
    return {"name": name, "state": state, "restartCount": restarts, "imageID": IMAGE_ID}


def waiting(
    name: str,
    reason: str = "PodInitializing",
    message: str = "",
    *,
    restarts: int = 0,
    image: str = "",
) -> Status:
    state = {"waiting": {"reason": reason, "message": message}}
    status = {"name": name, "state": state, "restartCount": restarts, "imageID": ""}
    return status | ({"image": image} if image else {})


def ended(name: str, code: int = 0, reason: str = "", message: str = "") -> Status:
    end = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "message": message,
        "startedAt": rfc3339(NOW + 1),
        "finishedAt": rfc3339(NOW + 3),
    }
    return {"name": name, "state": {"terminated": end}, "restartCount": 0, "imageID": IMAGE_ID}


def pod_status(
    phase: str,
    *containers: Status,
    reason: str = "",
    message: str = "",
    conditions: Sequence[Mapping[str, str]] = (),
) -> Status:
    """Return a Pod's status; init containers are those of real Pods."""
    names = {"courier", "egress-proxy", "materialize", "control-check", "candidate"}
    init = [item for item in containers if item["name"] in names]
    main = [item for item in containers if item not in init]
    status: Status = {"phase": phase, "conditions": list(conditions)}
    status |= {"reason": reason} if reason else {}
    status |= {"message": message} if message else {}
    status |= {"initContainerStatuses": init} if init else {}
    return status | ({"containerStatuses": main} if main else {})


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def raw_pod(
    launch: LaunchKey = HARNESS,
    status: Status | None = None,
    *,
    deleting_at: float | None = None,
    created_at: float = NOW,
    **spec: object,
) -> dict[str, Any]:
    """Return a launch Pod as the API server lists it."""
    metadata: dict[str, object] = {
        "name": pod_name(RUN_UID, launch),
        "uid": f"uid-of-{pod_name(RUN_UID, launch)}",
        "creationTimestamp": rfc3339(created_at),
        "labels": {
            "securebench.dev/role": launch.role.value,
            "securebench.dev/run-uid": RUN_UID,
        },
        "annotations": {
            "securebench.dev/task-index": str(launch.task),
            "securebench.dev/attempt": str(launch.attempt),
            "securebench.dev/launch": str(launch.launch),
        },
        "ownerReferences": [{"kind": "BenchmarkRun", "uid": RUN_UID}],
    }
    if deleting_at is not None:
        metadata["deletionTimestamp"] = rfc3339(deleting_at)
    return {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}


def view_of(launch: LaunchKey = HARNESS, status: Status | None = None, **changes: Any) -> PodView:
    view = pod_view(raw_pod(launch, status, **changes))
    assert view is not None
    return view


def harness_done(code: int = 0, seal: str | None = None, **report: object) -> Status:
    """Return the status of a harness Pod whose courier has sealed."""
    return pod_status(
        "Failed" if code else "Succeeded",
        ended("courier", 0, message=seal_message() if seal is None else seal),
        ended("harness", code, message=supervise_message(code, **report)),
    )


def check_done(code: int = 0, **report: object) -> Status:
    return pod_status(
        "Failed" if code else "Succeeded",
        ended("courier", 0, message=collect_message()),
        ended("check", code, message=supervise_message(code, **{"phase": "checker"} | report)),
    )


def verifier_done(*, passed: bool = True) -> Status:
    return pod_status("Succeeded", ended("verifier", 0, message=text_message(passed=passed)))


def batch_done(
    root: Path, uid: str, messages: Mapping[LaunchKey, str], *, file: bytes | None = None
) -> Status:
    """Leave the verdicts of a batch on the volume and return its Pod's status.

    Args:
        root: Of the volume.
        uid: The run's.
        messages: What is said of its launches, the first one before all others.
        file: What lies there in the place of the verdicts, if it is anything else.
    """
    content = encode_verdicts({member_name(each): text for each, text in messages.items()})
    folder = root / launch_folder(uid, next(iter(messages))) / "verification"
    (folder / "verdicts.json").write_bytes(content if file is None else file)
    message = json.dumps({"v": 1, "verdicts": f"sha256:{hashlib.sha256(content).hexdigest()}"})
    return pod_status("Succeeded", ended("verifier", 0, message=message))


# Plans and histories


def plan_of(*tasks: TaskPlan, **policy: Any) -> RunPlan:
    """Return a run of these tasks (default: one short answer), with changed numbers of the loop."""
    return run_plan(*(tasks or (text_task(),)), policy=policy_of(**policy))


def many_tasks(count: int, **changes: Any) -> tuple[TaskPlan, ...]:
    return tuple(text_task(index=index, **changes) for index in range(count))


def check_task(**changes: Any) -> TaskPlan:
    return terminal_task(index=0, timeout_seconds=60.0, **changes)


def unverified_task(**changes: Any) -> TaskPlan:
    return text_task(verification=None, **changes)


def sealed(**changes: Any) -> SealedCandidate:
    known = SealedCandidate(
        1, "candidate.txt", digest("f"), 3, CANDIDATE_SHA256, 0, problem=None, message=""
    )
    return replace(known, **changes)


def production(**changes: Any) -> HarnessResult:
    known = HarnessResult(1, CommandReport(exit_code=0), sealed(), PodFacts(image_id=IMAGE_ID))
    return replace(known, **changes)


def verification(*, passed: bool = True, **changes: Any) -> VerifierResult:
    facts = PodFacts(image_id=IMAGE_ID)
    return replace(VerifierResult(1, passed, {}, CommandReport(), facts), **changes)


STATE = {
    "live",
    "live_since",
    "batch",
    "production",
    "produced_at",
    "verification",
    "finish",
    "record_sha256",
    "finished_at",
}
"""What a test says of an attempt's state; ``state_of`` finds the state that it is."""


def state_of(**known: Any) -> AttemptState:
    made = known.get("production")
    produced = QUEUED if made is None else ProducedState(made, known.get("produced_at", 0.0))
    if (finish := known.get("finish")) is not None:
        return FinishedState(finish, known.get("record_sha256", ""), known.get("finished_at"))
    if (launch := known.get("live")) is not None:
        return LaunchedState(launch, known.get("live_since", 0.0), known.get("batch"), produced)
    if (verified := known.get("verification")) is None:
        return produced
    assert isinstance(produced, ProducedState)
    return JudgedState(produced, verified)


def _known(state: AttemptState) -> dict[str, Any]:
    match state:
        case QueuedState():
            return {}
        case ProducedState(production, at):
            return {"production": production, "produced_at": at}
        case LaunchedState(launch, since, batch, before):
            return {"live": launch, "live_since": since, "batch": batch} | _known(before)
        case JudgedState(produced, verified):
            return {"verification": verified} | _known(produced)
        case FinishedState(finish, sha256, at):
            return {"finish": finish, "record_sha256": sha256, "finished_at": at}


def changed(history: AttemptHistory, **changes: Any) -> AttemptHistory:
    """Return an attempt of which something else is known, its state included."""
    known = _known(history.state) | {name: changes[name] for name in STATE & changes.keys()}
    rest = {name: value for name, value in changes.items() if name not in STATE}
    return history._replace(state=state_of(**known), **rest)


def history_of(key: AttemptKey = KEY, **changes: Any) -> AttemptHistory:
    return changed(AttemptHistory(key), **changes)


def live(launch: LaunchKey = HARNESS, **changes: Any) -> AttemptHistory:
    known = {"live": launch, "live_since": NOW, "launches": launch.launch, "started_at": NOW}
    return history_of(launch.attempt_key, **(known | changes))


def lost_launch(launch: LaunchKey = HARNESS, at: float = NOW, reason: str = "pod_lost") -> Lost:
    return Lost(launch, reason, "Pod was evicted", at)


# Egress


DOMAINS = EgressPlan(domains=("docs.example.org",), provider=None)
OPENAI = EgressPlan(
    domains=(),
    provider=ProviderPlan(
        "openai", "api.openai.com", PROVIDER_KEY, secret="openai-key", key="OPENAI_API_KEY"
    ),
)


def egress_report(launch: LaunchKey = HARNESS, **changes: Any) -> LaunchReport:
    """Return what a gateway says of a launch that has ended."""
    name = pod_name(RUN_UID, launch)
    return replace(LaunchReport(name, f"uid-of-{name}", closed=True), **changes)


def relayed(**relay: Any) -> LaunchReport:
    """Return the same of a launch that asked its model provider."""
    known = {"requests": 4, "input_tokens": 1000, "cached_tokens": 200, "output_tokens": 50}
    return egress_report(relay=RelayReport(**(known | relay)))


# Shared parts of the operator


TURNS = 5_000
"""Turns of a virtual loop without any sleep after which something must be spinning."""


class _Selector(selectors.SelectSelector):
    """Waits by moving a clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the loop waits for something that never comes")
        self._turns += 1
        if self._turns > TURNS:
            raise RuntimeError("something spins: the loop turns and time stands still")
        if timeout > 0:
            self._clock.advance(max(timeout, 1e-6))
            self._turns = 0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose sleeps take no time; it knows no threads and no sockets."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Selector(clock))
        self._time = clock
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._time.monotonic()

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - there are no threads
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Do the work at once, in the loop's own thread."""
        done: asyncio.Future[T] = self.create_future()
        finish(done, partial(func, *args))
        return done


def finish(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Do some work, and let a future have what becomes of it."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits gets it
        future.set_exception(error)


async def inline(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Stand in for ``asyncio.to_thread`` on a virtual loop."""
    return work(*args, **kwargs)


def probe_done(states: Mapping[str, str], kernel: str = KERNEL) -> Status:
    """Return the status of a probing Pod that has its answer."""
    message = json.dumps({"v": 1, "targets": states, "kernel": kernel})
    return pod_status("Succeeded", ended("probe", 0, message=message))


PLACE = {
    "namespace": "bench",
    "pod_name": "securebench-0",
    "pod_uid": "11111111-0000-4000-8000-000000000000",
    "node_name": "node-1",
    "node_address": "192.0.2.1",
}
"""What an operator's Pod tells of itself, by field of the settings."""


def settings_of(root: Path, **changes: object) -> Settings:
    known: dict[str, object] = {
        **PLACE,
        "pod_image": "securebench-pod:0.1.0",
        "gateway_image": "securebench-operator:0.1.0",
        "volume_claim": "securebench-results",
        "runs_account": "securebench-runs",
        "data_root": root,
        "relist_seconds": 60.0,
    }
    return Settings.model_validate(known | changes)


_EPOCHS = count(1)


def lead_of(root: Path) -> VolumeLead:
    """Return the right of the next leader to write to a volume; it ends that of the one before."""
    return take_volume(root, next(_EPOCHS), "securebench-0_uid")


def in_this_process(work: Callable[[], T]) -> T:
    """Read what an agent left without a process of its own."""
    return work()


def context_of(cluster: Cluster, clock: FakeClock, root: Path, **settings: object) -> Context:
    known = settings_of(root, **settings)
    return Context(
        cluster=cluster,
        settings=known,
        clock=clock,
        rate=CreationRate(TokenBucket(1000.0, 1000, clock.now)),
        capacity=SharedCapacity(known.creation, clock),
        node_name="node-1",
        targets=(),
        tools="sha256:" + "7" * 64,
        lead=lead_of(root) if root.is_absolute() else VolumeLead(root, 0, "nobody"),
        reading=Reading(in_this_process),
    )


PROVEN_NETWORK = NetworkState(
    found=IsolationResult(verified=True, user_namespaces=True, message="closed: dns")
)
"""Of a run without egress, whose policies are there."""

MANIFEST = """\
id: smoke
version: 1
defaults:
  family: multiple_choice
  environment: {image: "python:3.11-slim", timeout_seconds: 60}
"""


def question(task_id: str) -> dict[str, object]:
    return {
        "id": task_id,
        "input": {"question": "Which?", "choices": ["red", "blue"]},
        "eval": {"answer": 1},
    }


def write_pack(
    folder: Path, rows: Sequence[Mapping[str, object]], manifest: str = MANIFEST
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.yaml").write_text(manifest)
    lines = (json.dumps(row) + "\n" for row in rows)
    (folder / "tasks.jsonl").write_text("".join(lines))


def run_body(name: str = "nightly", **spec: object) -> dict[str, Any]:
    known: dict[str, object] = {
        "pack": {"volume": {"path": "smoke"}},
        "harness": {"type": "command", "config": {"command": "echo B"}},
        "isolation": {"require": "Declared"},
    }
    return {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": {"name": name},
        "spec": known | spec,
    }
