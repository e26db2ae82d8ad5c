"""Plans and lanes whose Pods are kept as golden files; unit tests use them too.

``PYTHONPATH=operator:tests python -m support.manifest_samples`` writes the files anew.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from securebench.agents.harness import CommandHarness, ProviderHarness, extraction_for, task_prompt
from securebench.agents.registry import cli_named, harness_config
from securebench.benchmark.families.base import CodePlan, PatchPlan, RewardRequest, WantedArtifact
from securebench.benchmark.pack.lane_plan import AssetMount, LaneSet
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.controller.volume.artifacts import SharedVolume
from securebench.protocol.candidate import Extraction
from securebench.protocol.gateway import PROVIDER_KEY, GatewayLimits
from securebench.protocol.supervise import ProbeTarget
from securebench.run.api.field_types import PodRetention
from securebench.run.plan.build import PROVIDER_URL, agent_image, agent_plan
from securebench.run.plan.environment import Environment, in_image
from securebench.run.plan.model import (
    ClusterFacts,
    EgressPlan,
    HarnessPlan,
    LaunchKey,
    PodPolicy,
    PodUserNamespaces,
    ProviderPlan,
    Role,
    RunIdentity,
    RunPlan,
    RunPolicy,
    TaskLimits,
    TaskPlan,
)
from securebench.run.pods.gateway import GatewayPolicy, gateway_pod, gateway_service
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.isolation import (
    canary_pod,
    control_pod,
    deny_policy,
    egress_policy,
    gateway_policy,
)
from securebench.run.state.attempts import SealedCandidate, SealedPatch
from securebench.run.verification.base import Member, verifier_pod
from securebench.run.verification.checks import CheckPlan
from securebench.run.verification.code import CodeVerification
from securebench.run.verification.command import CommandVerification
from securebench.run.verification.patch import PatchVerification
from securebench.run.verification.reward import RewardVerification
from securebench.run.verification.text import TextVerification

FOLDER = Path(__file__).parents[1] / "golden" / "manifests"
RUN_UID = "3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77"
RUN_NAME = "nightly-geo"
TEXT_TASK_ID = "geo/lake-1"
TERMINAL_TASK_ID = "lab/reset-3"
PACK_ID = "geo-pack"
HIDDEN_ANSWER = "Lake Superior is the hidden answer"
CHECK_COMMAND = "bash securebench/evaluation_inputs/tests/run.sh"


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


LANES = LaneSet(digest("a"), digest("b"), digest("c"))
LANES_WITH_ASSETS = replace(
    LANES,
    asset_mounts=(
        AssetMount("assets/0", "data/raw/in.csv", is_folder=False),
        AssetMount("assets/1", "reference", is_folder=True),
    ),
)


def pods(**changes: Any) -> PodPolicy:
    return replace(
        PodPolicy(
            image="securebench-pod:0.1.0",
            image_pull_policy="IfNotPresent",
            medium=SharedVolume("securebench-results"),
            tools=digest("7"),
            service_account="securebench-runs",
            requests={"cpu": "100m", "memory": "256Mi"},
            limits={"memory": "1Gi"},
            workspace_size="1Gi",
            runtime_class="",
            priority_class="",
            node_selector={},
            tolerations=(),
            image_pull_secrets=(),
            node_name="",
            probes=("10.96.0.1:443",),
            startup_allowance_seconds=300,
            grace_seconds=120,
            text_verifier_image="securebench-operator:0.1.0",
        ),
        **changes,
    )


IN_ENVIRONMENT = frozenset(each.name for each in fields(Environment))


def changed(task: TaskPlan, /, **changes: Any) -> TaskPlan:
    """Return a task with other values of its plan and of its environment."""
    own = {name: value for name, value in changes.items() if name in IN_ENVIRONMENT}
    rest = {name: value for name, value in changes.items() if name not in IN_ENVIRONMENT}
    environment = replace(rest.pop("environment", task.environment), **own)
    return replace(task, environment=environment, **rest)


def text_task(**changes: Any) -> TaskPlan:
    resources = ResourceBundle(
        (
            Resource("question", Lane.PUBLIC, "text", "Which lake is the largest?"),
            Resource("accepted_answers", Lane.HIDDEN, "json", [HIDDEN_ANSWER]),
        )
    )
    return changed(
        TaskPlan(
            index=0,
            task=SecureBenchTask(TEXT_TASK_ID, PACK_ID, "short_answer", {}, resources),
            environment=Environment(
                image="python:3.11-slim",
                workspace="/workspace",
                workdir="/workspace",
                timeout_seconds=60,
            ),
            extraction=Extraction(mode="stdout", kind="text", path=None),
            verification=TextVerification(),
            refusal=None,
            denial=None,
            row_digest=digest("d"),
        ),
        **changes,
    )


def harbor_task(request: RewardRequest, **changes: Any) -> TaskPlan:
    """Return a task whose tests are a script; its candidate is a workspace."""
    resources = ResourceBundle(
        (
            Resource("instruction", Lane.PUBLIC, "text", "Repair the service."),
            Resource("tests", Lane.EVALUATION_INPUTS, "json", {"files": [{"path": "test.sh"}]}),
            Resource("verifier", Lane.HIDDEN, "json", {}),
        )
    )
    task = SecureBenchTask("hello", PACK_ID, "harbor_task", {}, resources)
    verification = RewardVerification(request, changes_root=False)
    return terminal_task(**{"task": task, "verification": verification, **changes})


def terminal_task(**changes: Any) -> TaskPlan:
    resources = ResourceBundle(
        (
            Resource("instructions", Lane.PUBLIC, "text", "Repair the service."),
            Resource("checker", Lane.EVALUATION_INPUTS, "json", {"command": CHECK_COMMAND}),
        )
    )
    return changed(
        TaskPlan(
            index=7,
            task=SecureBenchTask(TERMINAL_TASK_ID, PACK_ID, "terminal_task", {}, resources),
            environment=Environment(
                image="python:3.11-slim", workspace="/app", workdir="/app", starts_filled=True
            ),
            extraction=Extraction(mode="workspace", kind="workspace", path=None),
            verification=CommandVerification(
                CheckPlan(("sh", "-lc", CHECK_COMMAND), "/app", 300.0, ("SYS_CHROOT",))
            ),
            refusal=None,
            denial=None,
            row_digest=digest("e"),
        ),
        **changes,
    )


def code_task(**changes: Any) -> TaskPlan:
    tests = {"source": "inline", "code": "assert area(2) == 4"}
    resources = ResourceBundle(
        (
            Resource("prompt", Lane.PUBLIC, "text", "Write area(side)."),
            Resource("tests", Lane.EVALUATION_INPUTS, "json", tests),
        )
    )
    return changed(
        text_task(
            index=3,
            task=SecureBenchTask("code/area", PACK_ID, "code_completion", {}, resources),
            extraction=Extraction(mode="stdout", kind="code", path=None),
            verification=CodeVerification(CodePlan(12.5, "separate", ("json", "sum"))),
        ),
        **changes,
    )


def repeat_code_task() -> TaskPlan:
    return code_task(verification=CodeVerification(CodePlan(12.5, "separate", (), 2)))


def shared_code_task() -> TaskPlan:
    return code_task(verification=CodeVerification(CodePlan(12.5, "shared", ())))


BASE_COMMIT = "0123456789" * 4
TEST_PATCH = "diff --git a/tests/new b/tests/new\nnew file mode 100644\n"


def patch_task(**changes: Any) -> TaskPlan:
    policy = {"allow_paths": ["src"], "patch_preserved_paths": ["docs"]}
    tests = {"source": "command", "command": CHECK_COMMAND, "test_patch": TEST_PATCH}
    resources = ResourceBundle(
        (
            Resource("instructions", Lane.PUBLIC, "text", "Mend the bug."),
            Resource("base_commit", Lane.PUBLIC, "text", BASE_COMMIT),
            Resource("tests", Lane.EVALUATION_INPUTS, "json", tests),
        )
    )
    patch = PatchPlan(policy, BASE_COMMIT, has_setup=False, has_test=True, has_control=True)
    command = ("sh", "-lc", CHECK_COMMAND)
    return changed(
        text_task(
            index=4,
            task=SecureBenchTask("repo/bug", PACK_ID, "repo_patch", {}, resources),
            extraction=Extraction(mode="stdout", kind="patch", path=None),
            verification=PatchVerification(CheckPlan(command, "/testbed", 120.0), patch),
        ),
        **changes,
    )


ROOT_ENVIRONMENT = in_image(
    {
        "image": "example.org/sort-it:1",
        "env": {"LEVEL": "$(HARD)", "HTTP_PROXY": "http://elsewhere"},
        "cpus": 1.5,
        "memory_mb": 2048,
        "storage_mb": 512,
    },
    None,
)


def root_task(**changes: Any) -> TaskPlan:
    """Return a task whose agent works on the image's own files."""
    resources = ResourceBundle(
        (
            Resource("instruction", Lane.PUBLIC, "text", "Sort the names."),
            Resource("tests", Lane.EVALUATION_INPUTS, "json", {"files": [{"path": "test.sh"}]}),
            Resource("verifier", Lane.HIDDEN, "json", {"script": {"path": "test.sh"}}),
        )
    )
    return changed(
        text_task(
            index=6,
            task=SecureBenchTask("sort-it", PACK_ID, "harbor_task", {}, resources),
            environment=ROOT_ENVIRONMENT,
            extraction=Extraction("root_diff", "root"),
            verification=None,
        ),
        **changes,
    )


SERVICES = [
    {
        "name": "db",
        "image": "postgres:16",
        "env": {"POSTGRES_PASSWORD": "of the $(task)"},
        "cpus": 0.5,
        "memory_mb": 512,
        "healthcheck": {
            "command": ["pg_isready", "-U", "postgres"],
            "timeout_seconds": 2.5,
            "interval_seconds": 5,
            "retries": 4,
            "start_period_seconds": 10,
        },
    },
    {"name": "web", "image": "nginx:1", "command": ["nginx", "$1"], "user": 101, "workdir": "/srv"},
]
SERVED_ENVIRONMENT = in_image({"image": "example.org/sort-it:1", "services": SERVICES}, 60.0)


def policy_of(**changes: Any) -> RunPolicy:
    """What steers a loop, as a spec without a word and the default settings say it."""
    given: dict[str, Any] = {
        "attempts": 1,
        "infrastructure_retries": 2,
        "provider_retries": 2,
        "backoff_seconds": 5.0,
        "backoff_limit_seconds": 300.0,
        "lost_after_seconds": 60.0,
        "keep_pods": "Failed",
        "keep_lanes": False,
        **changes,
    }
    return RunPolicy(**{**given, "keep_pods": PodRetention(given["keep_pods"])})


def run_plan(*tasks: TaskPlan, **changes: Any) -> RunPlan:
    return replace(
        RunPlan(
            identity=RunIdentity(RUN_UID, RUN_NAME, "bench", "nightly 1"),
            pack_id=PACK_ID,
            pack_version=3,
            pack_digest=digest("1"),
            harness=HarnessPlan(
                type="command",
                command=("sh", "-lc", 'python3 agent.py "$(pwd)" $$'),
                task_file="task.json",
                config={"command": 'python3 agent.py "$(pwd)" $$', "task_file": "task.json"},
                env=(),
                secret="",
                digest=digest("2"),
            ),
            policy=policy_of(),
            pods=pods(),
            limits=TaskLimits(),
            tasks={task.index: task for task in tasks},
            verifier_version="1",
            policy_digest=digest("3"),
            digest=digest("4"),
        ),
        **changes,
    )


def candidate(file: str | None = "candidate.txt", **changes: Any) -> SealedCandidate:
    sealed = SealedCandidate(1, file, digest("f"), 12, digest("9"), 0, None, "")
    return replace(sealed, **changes)


PATCH = SealedPatch(applied_digest=digest("1"), declared_digest=digest("2"))
TARGETS = (
    ProbeTarget("api-server", "10.96.0.1", 443, "tcp"),
    ProbeTarget("dns", "10.96.0.10", 53, "udp"),
)
PLACED_PODS = pods(
    runtime_class="runc",
    priority_class="low",
    node_selector={"kubernetes.io/arch": "amd64"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
    image_pull_secrets=("registry",),
    node_name="node-1",
    limits={"cpu": "2", "memory": "1Gi"},
)


ORACLE_LANES = replace(LANES, oracle_digest=digest("6"))


def harness_plan(kind: str) -> HarnessPlan:
    """Return the plan of a harness whose command is ours."""
    harness = harness_config(kind, {})
    assert isinstance(harness, CommandHarness)
    config = harness.filled_config()
    return HarnessPlan(kind, harness.argv, harness.task_file, config, (), "", digest("2"))


GATEWAY_ADDRESS = "10.96.7.7"
FACTS = ClusterFacts(GATEWAY_ADDRESS, PodUserNamespaces.OFF, 0)
USER_NAMESPACES = replace(FACTS, user_namespaces=PodUserNamespaces.ON, max_processes=256)
DOMAINS = EgressPlan(("docs.example.com", "pypi.org"), None)
PROVIDER = EgressPlan(
    (), ProviderPlan("openai", "api.openai.com", PROVIDER_KEY, secret="keys", key="OPENAI_API_KEY")
)
PLAIN_GATEWAY = GatewayPolicy("securebench-operator:0.1.0", "1Gi", GatewayLimits())
GATEWAY = replace(PLAIN_GATEWAY, nameservers=("192.0.2.53",), ca_config_map="our-authority")


def golden() -> dict[str, dict[str, object]]:
    """Return every golden manifest by name."""
    text, terminal = text_task(), terminal_task()
    request = RewardRequest(
        script="test.sh", environment={"env": {"SEED": "$(X)"}}, timeout_seconds=600.0
    )
    rewarded = root_task(verification=RewardVerification(request, changes_root=True))
    apart = replace(
        request,
        environment={"image": "judge:1", "cpus": 1, "user": "judge"},
        artifacts=(WantedArtifact("/logs/artifacts"), WantedArtifact("out", ("*.tmp",))),
        brings_tests=True,
    )
    separate = root_task(verification=RewardVerification(apart, changes_root=True))
    plan = run_plan(text, terminal)
    secret = replace(plan.harness, env=("MY_TOKEN", "OTHER"), secret="keys")
    closed = replace(plan, pods=PLACED_PODS, harness=secret)
    workspace = candidate("workspace.tar", launch=2)
    return {
        **egress_golden(plan, text),
        **agent_golden(plan),
        "checkout_harness": harness_pod(
            plan,
            patch_task(
                workdir="/testbed",
                writable_root=True,
                extraction=Extraction("git_diff", "patch"),
            ),
            LaunchKey(4, 1, Role.HARNESS, 1),
            LANES,
            FACTS,
        ),
        "separate_harness": harness_pod(
            plan, separate, LaunchKey(6, 1, Role.HARNESS, 1), LANES, FACTS
        ),
        "separate_verifier": verifier_pod(
            plan,
            [Member(separate, LaunchKey(6, 1, Role.VERIFIER, 1), LANES, candidate("root.tar"))],
            FACTS,
        ),
        "root_verifier": verifier_pod(
            plan,
            [Member(rewarded, LaunchKey(6, 1, Role.VERIFIER, 1), LANES, candidate("root.tar"))],
            FACTS,
        ),
        "root_harness": harness_pod(
            replace(plan, egress=DOMAINS),
            root_task(),
            LaunchKey(6, 1, Role.HARNESS, 1),
            LANES,
            FACTS,
        ),
        "served_harness": harness_pod(
            replace(plan, egress=DOMAINS),
            root_task(environment=SERVED_ENVIRONMENT),
            LaunchKey(6, 1, Role.HARNESS, 1),
            LANES,
            FACTS,
        ),
        "text_harness": harness_pod(plan, text, LaunchKey(0, 1, Role.HARNESS, 1), LANES, FACTS),
        "oracle_harness": harness_pod(
            replace(plan, harness=harness_plan("oracle"), audit=True),
            text,
            LaunchKey(0, 1, Role.HARNESS, 1),
            ORACLE_LANES,
            FACTS,
        ),
        "text_verifier": verifier_pod(
            plan, [Member(text, LaunchKey(0, 1, Role.VERIFIER, 2), LANES, candidate())], FACTS
        ),
        "text_batch": verifier_pod(plan, batch_members(), FACTS),
        "terminal_harness": harness_pod(
            closed, terminal, LaunchKey(7, 2, Role.HARNESS, 2), LANES_WITH_ASSETS, USER_NAMESPACES
        ),
        "terminal_verifier": verifier_pod(
            plan,
            [Member(terminal, LaunchKey(7, 2, Role.VERIFIER, 3), LANES_WITH_ASSETS, workspace)],
            FACTS,
        ),
        "code_verifier": verifier_pod(
            closed,
            [Member(code_task(), LaunchKey(3, 1, Role.VERIFIER, 1), LANES, candidate())],
            USER_NAMESPACES,
        ),
        "repeat_code_verifier": verifier_pod(
            closed,
            [Member(repeat_code_task(), LaunchKey(3, 1, Role.VERIFIER, 1), LANES, candidate())],
            USER_NAMESPACES,
        ),
        "shared_code_verifier": verifier_pod(
            closed,
            [Member(shared_code_task(), LaunchKey(3, 1, Role.VERIFIER, 1), LANES, candidate())],
            USER_NAMESPACES,
        ),
        "patch_verifier": verifier_pod(
            plan,
            [
                Member(
                    patch_task(), LaunchKey(4, 1, Role.VERIFIER, 1), LANES, candidate(patch=PATCH)
                )
            ],
            FACTS,
        ),
        "deny_policy": deny_policy(plan),
        "canary": canary_pod(plan, 1, TARGETS, replace(USER_NAMESPACES, gateway="")),
        "control": control_pod(plan, 1, TARGETS),
    }


def batch_members() -> list[Member]:
    """Return two tasks whose candidates are judged together."""
    second = LaunchKey(5, 2, Role.VERIFIER, 3)
    return [
        Member(text_task(), LaunchKey(0, 1, Role.VERIFIER, 1), LANES, candidate()),
        Member(text_task(index=5), second, replace(LANES, hidden_digest=digest("d")), candidate()),
    ]


def agent_run(plan: RunPlan, kind: str, task: TaskPlan) -> tuple[RunPlan, TaskPlan]:
    """Return the same run with the tool of a model provider."""
    harness = harness_config(kind, {"model": "m-1"})
    assert isinstance(harness, ProviderHarness)
    overlays = {kind: {"1.2.3": f"securebench/overlay-{kind}:1.2.3", "latest": "1.2.3"}}
    agent = agent_plan(harness, *agent_image(harness, overlays))
    extraction = extraction_for(task.task.task_type, harness)
    prompt = task_prompt(extraction, task.environment.workspace, harness.task_file)
    command = cli_named(harness.type).command(harness, prompt, PROVIDER_URL)
    planned = replace(plan.harness, type=kind, command=(), agent=agent)
    return replace(plan, harness=planned, egress=PROVIDER), replace(
        task, command=command, extraction=extraction
    )


def agent_golden(plan: RunPlan) -> dict[str, dict[str, object]]:
    """Return harness Pods of both tools: one works in a checkout, one writes an answer."""
    codex = agent_run(plan, "codex", patch_task(workdir="/testbed", writable_root=True))
    claude = agent_run(replace(plan, pods=PLACED_PODS), "claude_code", text_task())
    return {
        "codex_harness": harness_pod(*codex, LaunchKey(4, 1, Role.HARNESS, 1), LANES, FACTS),
        "claude_harness": harness_pod(
            *claude, LaunchKey(0, 1, Role.HARNESS, 1), LANES, USER_NAMESPACES
        ),
    }


def egress_golden(plan: RunPlan, task: TaskPlan) -> dict[str, dict[str, object]]:
    """Return the manifests of a run that has egress."""
    domains = replace(plan, egress=DOMAINS)
    provider = replace(plan, egress=PROVIDER, pods=PLACED_PODS)
    return {
        "egress_harness": harness_pod(
            domains, task, LaunchKey(0, 1, Role.HARNESS, 1), LANES, FACTS
        ),
        "egress_canary": canary_pod(domains, 1, TARGETS, FACTS),
        "egress_policy": egress_policy(domains),
        "gateway_service": gateway_service(domains),
        "gateway": gateway_pod(domains, 1, PLAIN_GATEWAY, 4),
        "gateway_policy": gateway_policy(domains),
        "provider_gateway": gateway_pod(provider, 2, GATEWAY, 60),
        "provider_gateway_policy": gateway_policy(provider, GATEWAY.nameservers),
    }


def golden_text(manifest: dict[str, object]) -> str:
    """Return a manifest as its golden file has it."""
    return yaml.safe_dump(manifest, sort_keys=True, width=1_000_000)


if __name__ == "__main__":
    for name, manifest in golden().items():
        (FOLDER / f"{name}.yaml").write_text(golden_text(manifest), encoding="utf-8")
