"""What the chart's roles may and may not do, asked of the real API server."""

from __future__ import annotations

import copy
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from kubernetes import client, config

from securebench.names import OPERATOR_LEASE

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "securebench"
BENCH = "securebench.dev"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

ROLES_YAML = """
fullnameOverride: securebench
persistence: {existingClaim: results}
roles:
  tester: [{kind: User, name: tester, apiGroup: rbac.authorization.k8s.io}]
  submitter: [{kind: User, name: submitter, apiGroup: rbac.authorization.k8s.io}]
  viewer: [{kind: User, name: viewer, apiGroup: rbac.authorization.k8s.io}]
"""

OPERATOR_RIGHTS = {
    ("get", "benchmarkruns"),
    ("list", "benchmarkruns"),
    ("watch", "benchmarkruns"),
    ("delete", "benchmarkruns"),
    ("create", "benchmarkruns"),
    ("patch", "benchmarkruns"),
    ("patch", "benchmarkruns/status"),
    ("get", "benchmarksuites"),
    ("list", "benchmarksuites"),
    ("watch", "benchmarksuites"),
    ("patch", "benchmarksuites/status"),
    ("create", "pods"),
    ("get", "pods"),
    ("list", "pods"),
    ("watch", "pods"),
    ("delete", "pods"),
    ("deletecollection", "pods"),
    ("create", "networkpolicies"),
    ("get", "networkpolicies"),
    ("list", "networkpolicies"),
    ("watch", "networkpolicies"),
    ("delete", "networkpolicies"),
    ("create", "events.events.k8s.io"),
    ("get", "events.events.k8s.io"),
    ("patch", "events.events.k8s.io"),
    ("create", "services"),
    ("get", "services"),
    ("list", "services"),
    ("watch", "services"),
    ("delete", "services"),
    ("get", "configmaps"),
    ("get", "secrets"),
    ("create", "leases"),
}
LEASE_RIGHTS = {("get", "leases"), ("update", "leases")}
"""Of the operator, for its own Lease by name."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = {
    "benchmarkruns": BENCH,
    "benchmarkruns/status": BENCH,
    "benchmarksuites": BENCH,
    "benchmarksuites/status": BENCH,
    "pods": "",
    "pods/exec": "",
    "pods/attach": "",
    "pods/portforward": "",
    "pods/log": "",
    "pods/ephemeralcontainers": "",
    "pods/eviction": "",
    "events": "",
    "events.events.k8s.io": "events.k8s.io",
    "configmaps": "",
    "secrets": "",
    "services": "",
    "serviceaccounts": "",
    "serviceaccounts/token": "",
    "persistentvolumeclaims": "",
    "networkpolicies": "networking.k8s.io",
    "leases": "coordination.k8s.io",
    "statefulsets": "apps",
    "deployments": "apps",
    "jobs": "batch",
    "roles": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
}

RUN_READ = {
    (verb, kind)
    for verb in ("get", "list", "watch")
    for kind in ("benchmarkruns", "benchmarksuites")
}
SUITE_WRITE = {(verb, "benchmarksuites") for verb in ("create", "update", "patch", "delete")}
EVENT_READ = {(verb, "events") for verb in ("get", "list", "watch")}
ROLE_RIGHTS = {
    "tester": RUN_READ
    | EVENT_READ
    | SUITE_WRITE
    | {(verb, "benchmarkruns") for verb in ("create", "update", "patch", "delete")}
    | {(verb, "configmaps") for verb in ("create", "get", "list", "update", "patch", "delete")}
    | {(verb, "secrets") for verb in ("create", "get", "update", "patch", "delete")},
    "submitter": RUN_READ
    | SUITE_WRITE
    | {("create", "benchmarkruns"), ("delete", "benchmarkruns")},
    "viewer": RUN_READ | EVENT_READ,
}


class Installed(NamedTuple):
    """The chart's objects, created in a namespace of their own."""

    namespace: str
    objects: list[dict[str, Any]]


def render(namespace: str, values: Path) -> list[dict[str, Any]]:
    helm = shutil.which("helm")
    assert helm is not None, "helm is not in PATH"
    done = subprocess.run(
        [helm, "template", "securebench", str(CHART), "-n", namespace, "-f", str(values)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [item for item in yaml.safe_load_all(done.stdout) if item]


@pytest.fixture(scope="module")
def api() -> Iterator[client.ApiClient]:
    config.load_kube_config()
    with client.ApiClient() as connection:
        yield connection


@pytest.fixture(scope="module")
def installed(
    api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    namespace = f"rbac-{uuid.uuid4().hex[:8]}"
    values = tmp_path_factory.mktemp("chart") / "values.yaml"
    values.write_text(ROLES_YAML, encoding="utf-8")
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": namespace, "labels": RESTRICTED}})
    objects = render(namespace, values)
    rbac = client.RbacAuthorizationV1Api(api)
    for item in objects:
        match item["kind"]:
            case "ServiceAccount":
                core.create_namespaced_service_account(namespace, item)
            case "Role":
                rbac.create_namespaced_role(namespace, item)
            case "RoleBinding":
                rbac.create_namespaced_role_binding(namespace, item)
    yield Installed(namespace, objects)
    core.delete_namespace(namespace)


class Question(NamedTuple):
    verb: str
    resource: str
    namespace: str
    name: str = ""


def may(api: client.ApiClient, user: str, question: Question) -> bool:
    group = RESOURCES[question.resource]
    resource, _, subresource = question.resource.partition("/")
    attributes = {
        "verb": question.verb,
        "group": group,
        "resource": resource.removesuffix(f".{group}"),
        "subresource": subresource,
        "namespace": question.namespace,
        "name": question.name,
    }
    review = {"spec": {"user": user, "groups": ["system:authenticated"]}}
    review["spec"]["resourceAttributes"] = attributes  # type: ignore[assignment]
    answer = client.AuthorizationV1Api(api).create_subject_access_review(review)
    return bool(answer.status.allowed)


def rights(
    api: client.ApiClient, user: str, namespace: str, name: str = ""
) -> set[tuple[str, str]]:
    return {
        (verb, resource)
        for resource in RESOURCES
        for verb in VERBS
        if may(api, user, Question(verb, resource, namespace, name))
    }


def operator_user(installed: Installed) -> str:
    return f"system:serviceaccount:{installed.namespace}:securebench"


def test_the_operators_role_is_exactly_what_it_needs(installed: Installed) -> None:
    (role,) = (
        item
        for item in installed.objects
        if item["kind"] == "Role" and item["metadata"]["name"] == "securebench-operator"
    )
    granted = [
        (verb, "events.events.k8s.io" if resource == "events" else resource)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(granted) == sorted([*OPERATOR_RIGHTS, *LEASE_RIGHTS])
    assert not any("*" in value for rule in role["rules"] for value in rule["apiGroups"])


def test_the_operator_may_do_that_and_nothing_else(
    api: client.ApiClient, installed: Installed
) -> None:
    assert rights(api, operator_user(installed), installed.namespace) == OPERATOR_RIGHTS


def test_the_lease_is_the_operators_and_a_tester_may_look_who_has_it(
    api: client.ApiClient, installed: Installed
) -> None:
    def on_leases(user: str, name: str) -> set[str]:
        questions = [Question(verb, "leases", installed.namespace, name) for verb in VERBS]
        return {question.verb for question in questions if may(api, user, question)}

    operator = operator_user(installed)
    assert on_leases(operator, OPERATOR_LEASE) == {"create", "get", "update"}
    assert on_leases(operator, "another") == {"create"}
    assert on_leases("tester", OPERATOR_LEASE) == {"get"}
    assert on_leases("submitter", OPERATOR_LEASE) == on_leases("tester", "another") == set()


@pytest.mark.parametrize("user", ["operator", "tester", "submitter", "viewer"])
@pytest.mark.parametrize("namespace", ["default", "kube-system", ""])
def test_nobody_may_do_anything_elsewhere(
    user: str, namespace: str, api: client.ApiClient, installed: Installed
) -> None:
    name = operator_user(installed) if user == "operator" else user
    assert rights(api, name, namespace) == set()


@pytest.mark.parametrize("role", sorted(ROLE_RIGHTS))
def test_a_role_may_do_what_is_listed_and_nothing_else(
    role: str, api: client.ApiClient, installed: Installed
) -> None:
    assert rights(api, role, installed.namespace) == ROLE_RIGHTS[role]


def test_a_tester_may_exec_into_the_operators_pod_only(
    api: client.ApiClient, installed: Installed
) -> None:
    own = rights(api, "tester", installed.namespace, "securebench-0")
    extra = {("get", "pods"), ("get", "pods/exec"), ("create", "pods/exec")}
    assert own == ROLE_RIGHTS["tester"] | extra
    assert rights(api, "tester", installed.namespace, "securebench-1") == ROLE_RIGHTS["tester"]


@pytest.mark.parametrize("role", ["submitter", "viewer"])
def test_the_other_roles_have_no_way_to_the_operators_pod(
    role: str, api: client.ApiClient, installed: Installed
) -> None:
    assert rights(api, role, installed.namespace, "securebench-0") == ROLE_RIGHTS[role]


@pytest.mark.parametrize("role", ["submitter", "viewer"])
def test_the_other_roles_may_exec_into_the_pod_for_viewers_only(
    role: str, api: client.ApiClient, installed: Installed
) -> None:
    own = rights(api, role, installed.namespace, "securebench-viewers-0")
    extra = {("get", "pods"), ("get", "pods/exec"), ("create", "pods/exec")}
    assert own == ROLE_RIGHTS[role] | extra
    assert rights(api, role, installed.namespace, "securebench-viewers-1") == ROLE_RIGHTS[role]


def test_the_pod_for_viewers_sees_one_folder_and_has_no_rights(
    api: client.ApiClient, installed: Installed
) -> None:
    sets = {item["metadata"]["name"]: item for item in stateful_sets(installed)}
    template = sets["securebench-viewers"]["spec"]["template"]
    spec = template["spec"]
    (container,) = spec["containers"]
    (mount,) = container["volumeMounts"]
    assert (mount["subPath"], mount["readOnly"]) == ("published", True)
    assert spec["automountServiceAccountToken"] is False
    account = f"system:serviceaccount:{installed.namespace}:{spec['serviceAccountName']}"
    assert rights(api, account, installed.namespace) == set()
    policies = [
        item["spec"]
        for item in installed.objects
        if item["kind"] == "NetworkPolicy"
        and item["spec"]["podSelector"]["matchLabels"].items()
        <= template["metadata"]["labels"].items()
    ]
    assert [(one["policyTypes"], "egress" in one) for one in policies] == [
        (["Ingress", "Egress"], False)
    ]
    assert "ingress" not in policies[0]


def test_the_pods_of_the_chart_are_admitted_by_pod_security_restricted(
    api: client.ApiClient, installed: Installed
) -> None:
    core = client.CoreV1Api(api)
    options = {"dry_run": "All", "field_validation": "Strict"}
    for stateful_set in stateful_sets(installed):
        template = copy.deepcopy(stateful_set["spec"]["template"])
        name = f"{stateful_set['metadata']['name']}-0"
        pod = {"metadata": {**template["metadata"], "name": name}, "spec": template["spec"]}
        core.create_namespaced_pod(installed.namespace, pod, **options)
        pod["spec"]["securityContext"] = {}
        pod["spec"]["containers"][0]["securityContext"] = {}
        with pytest.raises(client.ApiException, match="violates PodSecurity"):
            core.create_namespaced_pod(installed.namespace, pod, dry_run="All")


def stateful_sets(installed: Installed) -> list[dict[str, Any]]:
    return [item for item in installed.objects if item["kind"] == "StatefulSet"]


def test_the_server_accepts_every_object_as_it_is(
    api: client.ApiClient, installed: Installed
) -> None:
    options = {"dry_run": "All", "field_validation": "Strict"}
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    create = {
        "ConfigMap": core.create_namespaced_config_map,
        "Service": core.create_namespaced_service,
        "StatefulSet": apps.create_namespaced_stateful_set,
        "NetworkPolicy": client.NetworkingV1Api(api).create_namespaced_network_policy,
    }
    accepted = set()
    for item in installed.objects:
        if item["kind"] in create:
            create[item["kind"]](installed.namespace, item, **options)
            accepted.add(item["kind"])
    assert accepted == set(create)
