"""The chart's admission policies on who requests a run, in a namespace without an operator."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from securebench.names import REQUESTER_ANNOTATION
from support.release import CHART, RELEASE, CommandError, call, remove_policies
from support.waiting import until

Raw = dict[str, Any]

POLICY_SECONDS = 60
"""How long the API server may take to apply new policies."""
MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
COMMAND = {"type": "command", "config": {"command": "./agent"}}
SPECS: Mapping[str, Raw] = {
    "BenchmarkRun": {"pack": {"configMap": {"name": "p"}}, "harness": COMMAND},
    "BenchmarkSuite": {
        "matrix": {
            "packs": [{"name": "p", "pack": {"configMap": {"name": "p"}}}],
            "harnesses": [{"name": "h", "harness": COMMAND}],
        }
    },
}


class Requests(NamedTuple):
    """A namespace in which users request runs and suites."""

    namespace: str

    @property
    def operator(self) -> str:
        """The name of the operator's service account."""
        return f"system:serviceaccount:{self.namespace}:{RELEASE}"

    def kubectl(self, user: str, *words: str, body: Raw | None = None) -> str:
        """Run kubectl as a user."""
        stdin = json.dumps(body).encode() if body is not None else None
        return call("kubectl", "-n", self.namespace, f"--as={user}", *words, stdin=stdin).decode()

    def create(self, user: str, item: Raw) -> str:
        """Create an object and return whom it names as its requester, or the refusal."""
        try:
            made = self.kubectl(user, "create", "-o", "json", "-f", "-", body=item)
        except CommandError as error:
            return str(error)
        return requester(json.loads(made))

    def edit(self, user: str, item: Raw, change: Raw) -> str:
        """Patch an object; return whom it names then, or the refusal."""
        words = ("patch", item["kind"], item["metadata"]["name"], "--type=merge", "-o", "json")
        try:
            made = self.kubectl(user, *words, "-p", json.dumps(change))
        except CommandError as error:
            return str(error)
        return requester(json.loads(made))


def naming(user: str | None) -> Raw:
    """Return metadata that name a requester, or take the name away."""
    return {"metadata": {"annotations": {REQUESTER_ANNOTATION: user}}}


def named(kind: str, name: str, user: str | None = None) -> Raw:
    """Return an object, as somebody writes it who may name somebody as its requester."""
    annotations = {REQUESTER_ANNOTATION: user} if user is not None else {}
    metadata = {"name": name, "annotations": annotations}
    return {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": SPECS[kind],
    }


def requester(item: Raw) -> str:
    """Return whom an object names; empty for nobody."""
    return str(item["metadata"].get("annotations", {}).get(REQUESTER_ANNOTATION, ""))


@contextmanager
def requests(*, has_policies: bool = True, is_stamped: bool = True) -> Iterator[Requests]:
    """Open a namespace.

    Args:
        has_policies: Whether the chart's admission policies are there.
        is_stamped: Whether the cluster has mutating ones.
    """
    if "KUBECONFIG" not in os.environ:
        pytest.skip("no cluster: KUBECONFIG is not set")
    opened = Requests(f"requests-{uuid.uuid4().hex[:8]}")
    call("kubectl", "create", "namespace", opened.namespace)
    policies = _policies(opened.namespace, is_stamped=is_stamped) if has_policies else b""
    try:
        _may_write(opened.namespace)
        if policies:
            call("kubectl", "create", "-f", "-", stdin=policies)
            until(
                lambda: _is_in_force(opened, is_stamped=is_stamped),
                "the policies are in force",
                POLICY_SECONDS,
            )
        yield opened
    finally:
        remove_policies(opened.namespace)
        call("kubectl", "delete", "namespace", opened.namespace, "--wait=false")


def _policies(namespace: str, *, is_stamped: bool) -> bytes:
    words = ("template", RELEASE, str(CHART), "-n", namespace, "-s", "templates/requesters.yaml")
    return call("helm", *words, *(("--api-versions", MUTATING) if is_stamped else ()))


def _may_write(namespace: str) -> None:
    words = ("role", "writer", "--verb=*", "--resource=benchmarkruns,benchmarksuites")
    call("kubectl", "-n", namespace, "create", *words)
    users = ("--user=ada", "--user=ben", f"--serviceaccount={namespace}:{RELEASE}")
    call("kubectl", "-n", namespace, "create", "rolebinding", "writer", "--role=writer", *users)


def _is_in_force(opened: Requests, *, is_stamped: bool) -> bool:
    """Whether both policies act: one writes the caller's name, the other one keeps it true."""
    words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    try:
        forged = named("BenchmarkRun", "probe", "nobody")
        made = json.loads(opened.kubectl("ada", *words, body=forged))
    except CommandError as error:
        if REQUESTER_ANNOTATION not in str(error):
            raise
        return not is_stamped
    if not is_stamped or requester(made) != "ada":
        return False
    # What changes the annotation later than the first policy does not get past the second one.
    probe = named("BenchmarkRun", "probe")
    opened.create("ada", probe)
    is_kept = REQUESTER_ANNOTATION in opened.edit("ada", probe, naming("nobody"))
    opened.kubectl("ada", "delete", "benchmarkrun", "probe")
    return is_kept
