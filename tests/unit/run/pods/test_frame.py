from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.run.plan.model import ClusterFacts, LaunchKey, Role, RunIdentity
from securebench.run.pods.frame import deadline_seconds
from securebench.run.pods.harness import harness_pod
from securebench.run.verification.base import Member, verifier_pod
from support.manifest_samples import (
    FACTS,
    LANES,
    RUN_UID,
    USER_NAMESPACES,
    candidate,
    golden,
    pods,
    run_plan,
    text_task,
)

PODS = {name: body for name, body in golden().items() if body["kind"] == "Pod"}
GATEWAYS = {"gateway", "provider_gateway"}
OUR_IMAGES = {"securebench-pod:0.1.0", "securebench-operator:0.1.0"}
WITHOUT_SIZE = {"persistentVolumeClaim", "projected", "secret", "configMap", "image"}
HARNESS = LaunchKey(0, 1, Role.HARNESS, 1)


def spec(body: Any) -> Any:
    return body["spec"]


def containers(body: Any) -> list[Any]:
    return [*spec(body).get("initContainers", []), *spec(body)["containers"]]


def own_pod(facts: ClusterFacts = FACTS, **changes: Any) -> Any:
    plan = run_plan(text_task(), pods=pods(**changes))
    return harness_pod(plan, text_task(), HARNESS, LANES, facts)


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_pods_have_no_way_into_the_cluster(body: Any) -> None:
    pod = spec(body)

    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["restartPolicy"] == "Never"
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & pod.keys()
    assert "fsGroup" not in pod["securityContext"]


@pytest.mark.parametrize("name", sorted(PODS.keys() - GATEWAYS))
def test_pods_have_no_resolver(name: str) -> None:
    pod = spec(PODS[name])

    assert pod["dnsPolicy"] == "None"
    assert pod["dnsConfig"] == {"nameservers": ["127.0.0.1"]}


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_every_container_is_confined_and_bounded(body: Any) -> None:
    for container in containers(body):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["privileged"] is False
        assert security["capabilities"]["drop"] == ["ALL"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["terminationMessagePolicy"] == "File"
        for bound in ("requests", "limits"):
            assert set(container["resources"][bound]) >= {"cpu", "memory", "ephemeral-storage"}


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_containers_of_our_image_are_not_root(body: Any) -> None:
    ours = [one for one in containers(body) if one["image"] in OUR_IMAGES]

    assert ours
    for container in ours:
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["runAsUser"] == 65532
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_every_volume_is_bounded_and_mounted(body: Any) -> None:
    mounted = {mount["name"] for one in containers(body) for mount in one["volumeMounts"]}

    assert mounted == {volume["name"] for volume in spec(body)["volumes"]}
    for volume in spec(body)["volumes"]:
        assert volume.keys() & WITHOUT_SIZE or volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_the_results_volume_is_never_mounted_as_a_whole(body: Any) -> None:
    for container in containers(body):
        for mount in container["volumeMounts"]:
            if mount["name"] == "results":
                assert mount["subPath"].startswith((f"runs/{RUN_UID}/", "tools/"))


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_the_cluster_deletes_pods_with_their_run(body: Any) -> None:
    (owner,) = body["metadata"]["ownerReferences"]

    assert owner["uid"] == RUN_UID
    assert owner["controller"] is True
    assert "blockOwnerDeletion" not in owner


def test_disk_limits_cover_all_folders_of_the_pod() -> None:
    for name in ("text_harness", "terminal_verifier"):
        body = PODS[name]
        folders = sum(
            int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi"))
            for volume in spec(body)["volumes"]
            if volume.get("emptyDir", {}).get("medium", "disk") == "disk" and "emptyDir" in volume
        )
        (main,) = spec(body)["containers"]
        limit = main["resources"]["limits"]["ephemeral-storage"]
        assert int(limit.removesuffix("Mi")) > folders


def test_labels_are_the_same_for_every_launch_of_a_run() -> None:
    plan = run_plan(text_task())
    first: Any = harness_pod(plan, text_task(), HARNESS, LANES, FACTS)
    other: Any = harness_pod(
        plan, text_task(index=9), LaunchKey(9, 3, Role.HARNESS, 2), LANES, FACTS
    )

    assert first["metadata"]["labels"] == other["metadata"]["labels"]
    assert first["metadata"]["name"] != other["metadata"]["name"]


def test_a_long_run_name_is_cut_in_its_label() -> None:
    identity = RunIdentity(RUN_UID, "r" * 80, "bench", "id")
    body: Any = harness_pod(
        replace(run_plan(text_task()), identity=identity), text_task(), HARNESS, LANES, FACTS
    )

    assert body["metadata"]["labels"]["securebench.dev/run"] == "r" * 63
    assert body["metadata"]["ownerReferences"][0]["name"] == "r" * 80


def test_user_namespaces_are_as_the_canary_found() -> None:
    assert spec(own_pod(USER_NAMESPACES))["hostUsers"] is False
    assert "hostUsers" not in spec(own_pod(FACTS))


def test_placement_is_as_planned() -> None:
    pod = spec(own_pod(runtime_class="gvisor", node_name="n1", image_pull_secrets=("a", "b")))
    term = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert pod["runtimeClassName"] == "gvisor"
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert term["nodeSelectorTerms"][0]["matchFields"] == [
        {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    ]


def test_no_placement_without_wishes() -> None:
    assert not spec(own_pod()).keys() & {
        "runtimeClassName",
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "imagePullSecrets",
        "affinity",
    }


@pytest.mark.parametrize(
    ("command_seconds", "want"), [(60, 480), (0.5, 421), (None, 300 + 86_400 + 120)]
)
def test_deadline_is_allowance_limit_and_grace(command_seconds: float | None, want: int) -> None:
    assert deadline_seconds(pods(), command_seconds) == want


def test_grace_is_the_bound_of_sealing() -> None:
    assert spec(own_pod(grace_seconds=45))["terminationGracePeriodSeconds"] == 45


@pytest.mark.parametrize(
    ("requests", "limits", "want_requests", "want_limits"),
    [
        ({}, {}, {"cpu": "100m", "memory": "256Mi"}, {"cpu": "4", "memory": "1Gi"}),
        ({"cpu": "6"}, {}, {"cpu": "6", "memory": "256Mi"}, {"cpu": "6", "memory": "1Gi"}),
        (
            {},
            {"cpu": "50m", "memory": "128Mi"},
            {"cpu": "50m", "memory": "128Mi"},
            {"cpu": "50m", "memory": "128Mi"},
        ),
    ],
    ids=["nothing given", "request above the default limit", "limits below default requests"],
)
def test_resources_are_filled_in_without_contradiction(
    requests: dict[str, str],
    limits: dict[str, str],
    want_requests: dict[str, str],
    want_limits: dict[str, str],
) -> None:
    (main,) = spec(own_pod(requests=requests, limits=limits))["containers"]
    given = main["resources"]

    assert {**given["requests"], **want_requests} == given["requests"]
    assert {**given["limits"], **want_limits} == given["limits"]


def test_a_disk_limit_of_the_plan_is_kept() -> None:
    (main,) = spec(own_pod(limits={"ephemeral-storage": "32Mi"}))["containers"]

    assert main["resources"]["limits"]["ephemeral-storage"] == "32Mi"
    assert main["resources"]["requests"]["ephemeral-storage"] == "32Mi"


def test_names_are_deterministic() -> None:
    plan = run_plan(text_task())
    verifier: Any = verifier_pod(
        plan, [Member(text_task(), LaunchKey(0, 1, Role.VERIFIER, 2), LANES, candidate())], FACTS
    )

    assert verifier["metadata"]["name"] == "sb-3f2a9c1e5b7d-0-1v2"
    assert verifier["spec"]["hostname"] == "sb-3f2a9c1e5b7d-0-1v2"
    assert PODS["canary"]["metadata"]["name"] == "sb-3f2a9c1e5b7d-canary-1"  # type: ignore[index]
