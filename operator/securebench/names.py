"""Names that clusters know us by, and names of what users write.

Labels and annotations of the API group; names that are derived from the ids of tasks and runs; and
names of packs in a registry, ``host/repository[:tag]@sha256:…``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from securebench.digests import PATTERN
from securebench.errors import InvalidInputError

GROUP = "securebench.dev"
"""API group; also the domain of our labels and annotations."""

RUN_UID_LABEL = f"{GROUP}/run-uid"
RUN_LABEL = f"{GROUP}/run"
ROLE_LABEL = f"{GROUP}/role"
USABLE_LABEL = f"{GROUP}/usable-by-runs"
"""On a Secret: runs may name it, for what its value says."""
USABLE = "true"
"""Value of the label: by every Pod of a run, the agent's too."""
USABLE_BY_GATEWAY = "gateway"
"""As a provider's key only: no run can have it brought into a Pod of an agent."""
USABLE_AS_PACK = "pack"
"""As a pack only, with its hidden files: no run can have it brought into any Pod by name."""
PACK_PATHS_ANNOTATION = f"{GROUP}/pack-paths"
"""On a pack's ConfigMap or Secret: paths of files that no key can name, as a JSON object by key."""
PURPOSE_LABEL = f"{GROUP}/purpose"
"""On a BenchmarkRun: ``AUDIT`` where it examines a pack and no agent; its records say so."""
AUDIT = "audit"

SUITE_LABEL = f"{GROUP}/suite"
"""On a BenchmarkRun: the BenchmarkSuite that made it."""
SUITE_CELL_ANNOTATION = f"{GROUP}/suite-cell"
"""On such a run: the cell of the matrix."""
CANCEL_REASON_ANNOTATION = f"{GROUP}/cancel-reason"
"""On such a run: why the suite cancelled it."""
RERUN_ANNOTATION = f"{GROUP}/rerun"
"""On a BenchmarkSuite: every new value runs all cells again."""

REQUESTER_ANNOTATION = f"{GROUP}/requested-by"
"""On a BenchmarkRun and a BenchmarkSuite: the user who requested the runs. Admission policies of
the chart write it and keep it true; without them anybody can write anything there."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue's: on a BenchmarkRun and the Pods of its launches, the LocalQueue that admits them."""

TASK_INDEX_ANNOTATION = f"{GROUP}/task-index"
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
LAUNCH_ANNOTATION = f"{GROUP}/launch"
MEMBERS_ANNOTATION = f"{GROUP}/members"
"""On the Pod of a batch: its launches, ``<task>-<attempt>-<launch>`` each, with blanks between."""
HARNESS_DIGEST_ANNOTATION = f"{GROUP}/harness-digest"
"""On a BenchmarkRun of the command line: lets a later start find the run that it may join."""

NAME_LABEL = "app.kubernetes.io/name"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
COMPONENT_LABEL = "app.kubernetes.io/component"
APP_NAME = "securebench"

MANAGED_BY = f"{APP_NAME}-operator"
"""What the operator calls itself in labels of its objects and in Events."""

OPERATOR_LEASE = "securebench-operator"
"""Name of the Lease of a namespace's operators, whatever their releases are called; the chart names
it too."""


def lease_holder(pod: str, uid: str) -> str:
    """Return how an operator's Pod signs the Lease; an earlier Pod of its name signs otherwise."""
    return f"{pod}_{uid}"


def holder_pod(holder: str) -> str:
    """Return the name of the Pod that signed the Lease so; empty if nobody did."""
    return holder.partition("_")[0]


LABEL_LIMIT = 63
"""Characters of a label value and of a DNS-1123 label (Kubernetes API conventions)."""

DIGEST_CHARACTERS = 8
"""Hex digits of SHA-256 that keep shortened names apart (contract 12.6)."""

_LOGICAL = re.compile(r"[A-Za-z0-9_.-]+")
_FOREIGN_IN_LOGICAL = re.compile(r"[^A-Za-z0-9_.-]+")
_FOREIGN_IN_LABEL = re.compile(r"[^A-Za-z0-9_.-]")
_FOREIGN_IN_DNS = re.compile(r"[^a-z0-9]+")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def logical_name(task_id: str) -> str:
    """Return the name of a task's workspace in records and in the output folder.

    Returns:
        The id itself where it is a safe file name, else a readable form with a digest.

    Source: contract 12.6.
    """
    if _LOGICAL.fullmatch(task_id) and task_id == task_id.strip("._"):
        return task_id
    readable = _FOREIGN_IN_LOGICAL.sub("_", task_id).strip("._") or "task"
    return f"{readable}-{_digest(task_id)}"


def label_value(text: str) -> str:
    """Return the text as a label value: foreign characters become ``_``, cut at 63.

    Different texts may give the same value; never use it as a key.
    """
    return _FOREIGN_IN_LABEL.sub("_", text)[:LABEL_LIMIT].strip("._-")


def is_dns_label(text: str) -> bool:
    """Whether a text is a DNS-1123 label."""
    return _DNS_LABEL.fullmatch(text) is not None


def kubernetes_name(text: str, *, limit: int = LABEL_LIMIT) -> str:
    """Return a DNS-1123 label for a text.

    Args:
        text: Anything.
        limit: Longest result, 10 to 63 characters.

    Returns:
        The text itself when it is a DNS-1123 label within the limit; otherwise its
        readable part and a digest of the text, so that different texts differ.
    """
    if len(text) <= limit and is_dns_label(text):
        return text
    room = limit - DIGEST_CHARACTERS - 1
    readable = _FOREIGN_IN_DNS.sub("-", text.lower())[:room].strip("-") or "x"
    return f"{readable}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

HOST_PATTERN = rf"{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?"
"""A registry: DNS name or IPv4 address, in lower case, with its port unless that is 443."""

REPOSITORY_PATTERN = rf"{_PART}(/{_PART})*"
TAG_PATTERN = "[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}"

PINNED_PATTERN = f"{HOST_PATTERN}/{REPOSITORY_PATTERN}(:{TAG_PATTERN})?@{PATTERN}"
"""A reference that always names the same content: one by digest (RE2 and Python)."""

_REFERENCE = re.compile(
    rf"(?P<host>{HOST_PATTERN})/(?P<repository>{REPOSITORY_PATTERN})"
    rf"(:(?P<tag>{TAG_PATTERN}))?(@(?P<digest>{PATTERN}))?"
)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A pack in a registry.

    Attributes:
        host: The registry, with its port if one is named.
        repository: Path of the pack in the registry.
        tag: For people where there is a digest too; may be empty.
        digest: ``sha256:…`` of the image's manifest; may be empty.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """Return the reference as it was written."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.repository}{tag}{digest}"


def image_reference(text: str) -> ImageReference:
    """Return what a text names.

    Raises:
        InvalidInputError: It is no reference.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{text!r} names no image; write registry/repository:tag or"
            " registry/repository@sha256:…, in lower case and without a scheme"
        )
    return ImageReference(
        found["host"], found["repository"], found["tag"] or "", found["digest"] or ""
    )
