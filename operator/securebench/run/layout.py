"""Names of the objects of a run, of folders on the volume and of paths inside Pods.

Source: docs/reference/protocol.md.
"""

from __future__ import annotations

from securebench.benchmark import resources
from securebench.benchmark.resources import Lane
from securebench.digests import PREFIX
from securebench.protocol.candidate import ORACLE_FOLDER
from securebench.run.plan.model import LaunchKey, Role, short_uid

USER_ID = 65532
"""User and group of operator, courier and our verifier; launch Pods never set fsGroup."""

COURIER = "courier"
MATERIALIZE = "materialize"
HARNESS = "harness"
CHECK = "check"
CONTROL_CHECK = "control-check"
VERIFIER = "verifier"
CANDIDATE_CONTAINER = "candidate"
PROBE = "probe"
EGRESS_PROXY = "egress-proxy"
GATEWAY = "gateway"

TOOLS = "/opt/securebench/tools"
"""In task containers; in the operator's image the same lies there to be installed."""
SUPERVISE = TOOLS + "/supervise"
PUBLIC = "/opt/securebench/public"
PUBLIC_FILES = PUBLIC + "/files"
ORACLE = ORACLE_FOLDER
"""The task's reference answer, in the harness container of an oracle only."""
OUTPUT = "/opt/securebench/output"
CANDIDATE = "/opt/securebench/candidate"
HOME = "/opt/securebench/home"
EVALUATOR = "/opt/securebench/evaluator"
"""Second place of the evaluation inputs for a checker of the source form (contract 14.6)."""
BASELINE = "/opt/securebench/baseline"
"""In a harness container: git objects of the checkout as it was before the command."""
SCRATCH = "/securebench-workspace"
"""Beside the image's repository, for the check of a patch (contract 10)."""
REPOSITORY_INPUTS = "/opt/securebench/evaluation_inputs"
"""Lane evaluation_inputs, outside of the image's repository."""
PYTEST_BUNDLE = TOOLS + "/pytest"
"""For task images without a pytest of their own."""
MATERIALIZED = "/opt/securebench/materialize"
TEMPORARY = "/tmp"  # noqa: S108  # an emptyDir, 0777 and root's; supervise makes it sticky
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a memory emptyDir of each container's own

COURIER_ROOT = "/work"
COURIER_WORKSPACE = "/work/workspace"
COURIER_OUTPUT = "/work/output"
COURIER_CANDIDATE = "/work/candidate"
COURIER_PRODUCER = "/work/producer"
COURIER_VERIFICATION = "/work/verification"
VERIFIER_MEMBERS = "/work/members"
PROBE_VOLUME = "/work/probe"
EGRESS_TOKEN = "/work/token"  # noqa: S105 - a folder
"""In the sidecar only."""
EGRESS_TOKEN_FILE = "token"  # noqa: S105 - a file's name
GATEWAY_WORK = "/work/gateway"
"""Configuration and reports, in the gateway."""
GATEWAY_PROVIDER = "/work/provider"
GATEWAY_KEY_FILE = "key"
GATEWAY_AUTHORITIES = "/work/authorities"
GATEWAY_AUTHORITIES_FILE = "ca.crt"

LANE_PUBLIC = Lane.PUBLIC.value
LANE_EVALUATION_INPUTS = Lane.EVALUATION_INPUTS.value
LANE_HIDDEN = Lane.HIDDEN.value
LANE_ORACLE = resources.ORACLE
"""Not a lane of a task, but it lies beside them."""

PACKS = "packs"
"""Folder of the packs, relative to the volume's root."""
INSTALLED_TOOLS = "tools"
"""Folder of the programs of task containers: one folder for each content that an operator had."""
AUDITS = "audits"
"""Folder of the results of audits."""
LEADERS = "leaders"
"""A folder for the operator that works, named by its epoch."""
RUNS = "runs"
PUBLISHED = "published"
"""What the Pod for viewers mounts: results of ended runs without hidden data."""
SUITES = "suites"
"""A folder for each BenchmarkSuite, named by its uid: what it remembers."""
BASELINES = "baselines"
"""Records that suites are compared with, put there by testers."""
TASKS = "tasks"
LAUNCHES = "launches"

CANDIDATE_NAME = "candidate"
PRODUCER_NAME = "producer"
VERIFICATION_NAME = "verification"
LAUNCH_FOLDERS = (CANDIDATE_NAME, PRODUCER_NAME, VERIFICATION_NAME)
"""Folders of a launch; the operator makes them before the Pod is created."""


def tools_folder(digest: str) -> str:
    """Return the folder of programs with this tree digest, relative to the volume's root."""
    return f"{INSTALLED_TOOLS}/{digest.removeprefix(PREFIX)}"


def run_folder(run_uid: str) -> str:
    """Return the folder of a run, relative to the volume's root."""
    return f"{RUNS}/{run_uid}"


def probe_folder(run_uid: str) -> str:
    """Return the empty folder that canary Pods mount to show that a sub-path can be mounted."""
    return f"{run_folder(run_uid)}/probe"


def task_folder(run_uid: str, task: int) -> str:
    """Return the folder of a task, relative to the volume's root."""
    return f"{run_folder(run_uid)}/{TASKS}/{task}"


def lane_folder(run_uid: str, task: int, lane: str) -> str:
    """Return the folder of one lane of a task, relative to the volume's root."""
    return f"{task_folder(run_uid, task)}/lanes/{lane}"


def attempt_folder(run_uid: str, task: int, attempt: int) -> str:
    """Return the folder of an attempt, relative to the volume's root."""
    return f"{task_folder(run_uid, task)}/attempts/{attempt}"


def launch_folder(run_uid: str, launch: LaunchKey) -> str:
    """Return the folder of a launch, relative to the volume's root.

    Harness and verifier launches of the same number share it: the first writes ``candidate`` and
    ``producer``, the second ``verification``.
    """
    return f"{attempt_folder(run_uid, launch.task, launch.attempt)}/{LAUNCHES}/{launch.launch}"


def member_folders(number: int) -> tuple[str, str]:
    """Return where a text verifier finds the candidate and the hidden lane of a member."""
    folder = f"{VERIFIER_MEMBERS}/{number}"
    return f"{folder}/candidate", f"{folder}/hidden"


def policy_name(run_uid: str) -> str:
    """Return the name of the run's NetworkPolicy that closes everything."""
    return f"sb-{short_uid(run_uid)}-deny"


def egress_policy_name(run_uid: str) -> str:
    """Return the name of the NetworkPolicy that lets harness Pods reach the gateway."""
    return f"sb-{short_uid(run_uid)}-egress"


def gateway_policy_name(run_uid: str) -> str:
    """Return the name of the NetworkPolicy of the gateway itself."""
    return gateway_name(run_uid)


def gateway_name(run_uid: str) -> str:
    """Return the name of the Service of the run's gateway."""
    return f"sb-{short_uid(run_uid)}-gateway"


def gateway_pod_name(run_uid: str, number: int) -> str:
    """Return the name of a gateway Pod; numbers count from 1, a replacement has the next."""
    return f"{gateway_name(run_uid)}-{number}"


def gateway_folder(run_uid: str) -> str:
    """Return the folder of the run's gateway, relative to the volume's root."""
    return f"{run_folder(run_uid)}/{GATEWAY}"


def numbered(name: str) -> int:
    """Return the number in the name of a gateway, canary or control Pod; 0 without one."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def probe_name(run_uid: str, role: Role, number: int) -> str:
    """Return the name of a canary or control Pod; numbers count from 1."""
    return f"sb-{short_uid(run_uid)}-{role.value}-{number}"
