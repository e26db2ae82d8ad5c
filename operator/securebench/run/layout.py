"""Names of the objects of a run, of what its launches leave, and of paths inside Pods.

Source: docs/reference/protocol.md.
"""

from __future__ import annotations

from securebench.benchmark import resources
from securebench.benchmark.resources import Lane
from securebench.protocol.candidate import ORACLE_FOLDER
from securebench.run.artifacts import LaunchPart, Part
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
SERVICE_PREFIX = "service-"
"""Of the names of containers that serve the commands of a side."""
LOOPBACK = "127.0.0.1"

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
SCRATCH = "/securebench-workspace"
"""Beside the image's repository, for the check of a patch (contract 10)."""
REPOSITORY_INPUTS = "/opt/securebench/evaluation_inputs"
"""Lane evaluation_inputs, outside of the image's repository."""
PYTEST_BUNDLE = TOOLS + "/pytest"
"""For task images without a pytest of their own."""
MATERIALIZED = "/opt/securebench/materialize"
TEMPORARY = "/tmp"  # noqa: S108  # an emptyDir, 0777 and root's; supervise makes it sticky
VERIFIER_LOGS = "/logs/verifier"
LOG_FOLDERS = (VERIFIER_LOGS, "/logs/agent", "/logs/artifacts")
"""Where containers of a Harbor task have folders for logs."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a memory emptyDir of each container's own

COURIER_ROOT = "/work"
COURIER_WORKSPACE = "/work/workspace"
COURIER_OUTPUT = "/work/output"
COURIER_CANDIDATE = "/work/candidate"
COURIER_PRODUCER = "/work/producer"
COURIER_VERIFICATION = "/work/verification"
VERIFIER_MEMBERS = "/work/members"
PROBE_VOLUME = "/work/probe"
EGRESS_TOKEN_FILE = "/work/token/token"  # noqa: S105 - a file's name
"""In the sidecar only."""
GATEWAY_WORK = "/work/gateway"
"""Configuration and reports, in the gateway."""
GATEWAY_AUTHORITIES_FILE = "/work/authorities/ca.crt"

LANE_PUBLIC = Lane.PUBLIC.value
LANE_EVALUATION_INPUTS = Lane.EVALUATION_INPUTS.value
LANE_HIDDEN = Lane.HIDDEN.value
LANE_ORACLE = resources.ORACLE
"""Not a lane of a task, but it lies beside them."""


def launch_part(run_uid: str, launch: LaunchKey, part: Part) -> LaunchPart:
    """Return the name of a part of what a launch leaves."""
    return LaunchPart(run_uid, launch.task, launch.attempt, launch.launch, part)


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


def numbered(name: str) -> int:
    """Return the number in the name of a gateway, canary or control Pod; 0 without one."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def probe_name(run_uid: str, role: Role, number: int) -> str:
    """Return the name of a canary or control Pod; numbers count from 1."""
    return f"sb-{short_uid(run_uid)}-{role.value}-{number}"
