from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from securebench.controller.volume.artifacts import folder_of
from securebench.errors import InvariantViolationError
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.protocol.gateway import GatewayConfig, ProviderConfig
from securebench.protocol.supervise import GATEWAY_TARGET
from securebench.run.artifacts import GatewayFiles
from securebench.run.plan.model import EgressPlan, LaunchKey, Role, RunPlan, pod_name
from securebench.run.pods.gateway import (
    egress_sidecar,
    gateway_config,
    gateway_pod,
    gateway_service,
    proxy_environment,
)
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.isolation import (
    canary_pod,
    control_pod,
    deny_policy,
    egress_policy,
    gateway_policy,
)
from support.manifest_samples import (
    DOMAINS,
    FACTS,
    GATEWAY,
    GATEWAY_ADDRESS,
    LANES,
    PLAIN_GATEWAY,
    PROVIDER,
    RUN_UID,
    TARGETS,
    run_plan,
    text_task,
)

HARNESS = LaunchKey(0, 1, Role.HARNESS, 1)


def plan_with(egress: EgressPlan | None) -> RunPlan:
    return replace(run_plan(text_task()), egress=egress)


def harness(egress: EgressPlan | None) -> Any:
    return harness_pod(plan_with(egress), text_task(), HARNESS, LANES, FACTS)


def told(command: list[str]) -> str:
    return command[command.index("--spec") + 1]


def selects(selector: Any, role: str, run: str = RUN_UID) -> bool:
    (expression,) = selector["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (ROLE_LABEL, "In")
    return selector["matchLabels"] == {RUN_UID_LABEL: run} and role in expression["values"]


def test_without_egress_a_harness_has_neither_sidecar_nor_proxy() -> None:
    body = harness(None)
    assert [one["name"] for one in body["spec"]["initContainers"]] == ["courier"]
    assert "hostAliases" not in body["spec"]
    assert "env" not in body["spec"]["containers"][0]
    assert "projected" not in json.dumps(body)


def test_the_sidecar_ends_before_the_courier() -> None:
    names = [one["name"] for one in harness(DOMAINS)["spec"]["initContainers"]]
    assert names == ["courier", "egress-proxy"]


def test_only_the_sidecar_has_the_token() -> None:
    pod = harness(DOMAINS)["spec"]
    (volume,) = (one for one in pod["volumes"] if "projected" in one)
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == f"securebench-gateway-{RUN_UID}"
    holders = [
        one["name"]
        for one in (*pod["initContainers"], *pod["containers"])
        if volume["name"] in {mount["name"] for mount in one["volumeMounts"]}
    ]
    assert holders == ["egress-proxy"]


@pytest.mark.parametrize(
    ("egress", "want"),
    [
        (DOMAINS, {"proxy": 8080}),
        (PROVIDER, {"provider": 8081}),
        (replace(PROVIDER, domains=("a.test",)), {"proxy": 8080, "provider": 8081}),
    ],
    ids=["domains", "provider", "both"],
)
def test_the_sidecar_offers_the_routes_of_the_run(egress: EgressPlan, want: object) -> None:
    sidecar: Any = egress_sidecar(plan_with(egress), GATEWAY_ADDRESS)
    spec = json.loads(told(sidecar["command"]))
    assert spec["listen"] == want
    assert spec["gateway"] == {"host": GATEWAY_ADDRESS, "port": 8443}


@pytest.mark.parametrize(
    ("egress", "want"),
    [
        (DOMAINS, ["127.0.0.1:8080"]),
        (PROVIDER, ["127.0.0.1:8081"]),
        (replace(PROVIDER, domains=("a.test",)), ["127.0.0.1:8080", "127.0.0.1:8081"]),
        (None, None),
    ],
    ids=["domains", "provider", "both", "no network"],
)
def test_the_agent_waits_for_every_port_of_the_sidecar(
    egress: EgressPlan | None, want: list[str] | None
) -> None:
    (agent,) = harness(egress)["spec"]["containers"]
    assert json.loads(told(agent["command"])).get("awaits") == want


def test_the_sidecar_stays_without_a_hook_or_a_probe() -> None:
    sidecar: Any = egress_sidecar(plan_with(DOMAINS), GATEWAY_ADDRESS)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["command"][:3] == ["/usr/local/bin/supervise", "egress-proxy", "--spec"]
    assert not {"lifecycle", "startupProbe", "readinessProbe"} & sidecar.keys()


@pytest.mark.parametrize(
    ("egress", "gateway"), [(None, GATEWAY_ADDRESS), (DOMAINS, "")], ids=["none", "unknown"]
)
def test_a_sidecar_needs_the_gateways_address(egress: EgressPlan | None, gateway: str) -> None:
    with pytest.raises(InvariantViolationError, match="address is not known"):
        egress_sidecar(plan_with(egress), gateway)


def test_proxy_variables_are_those_of_the_contract() -> None:
    found = {str(one["name"]): one["value"] for one in proxy_environment(plan_with(DOMAINS))}
    proxy = "http://securebench-egress-proxy:8080"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    want = dict.fromkeys((*names, *map(str.lower, names)), proxy)
    assert found == want | dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    assert harness(DOMAINS)["spec"]["hostAliases"] == [
        {"ip": "127.0.0.1", "hostnames": ["securebench-egress-proxy"]}
    ]


@pytest.mark.parametrize("egress", [None, PROVIDER], ids=["no egress", "provider only"])
def test_without_domains_there_is_no_proxy(egress: EgressPlan | None) -> None:
    assert proxy_environment(plan_with(egress)) == []


def test_the_gateway_is_told_what_the_run_may_do() -> None:
    egress = replace(PROVIDER, domains=("a.test",))
    plan = plan_with(egress)
    assert gateway_config(plan, GATEWAY) == GatewayConfig(
        pod_prefix="sb-3f2a9c1e5b7d-",
        namespace="bench",
        service_account="securebench-runs",
        audience=f"securebench-gateway-{RUN_UID}",
        domains=("a.test",),
        provider=ProviderConfig("openai", "api.openai.com", "/work/provider/key"),
        limits=GATEWAY.limits,
        authorities="/work/authorities/ca.crt",
    )
    assert pod_name(RUN_UID, HARNESS).startswith(gateway_config(plan, GATEWAY).pod_prefix)


def test_a_plain_gateway_has_neither_key_nor_authorities() -> None:
    config = gateway_config(plan_with(DOMAINS), PLAIN_GATEWAY)
    assert (config.provider, config.authorities) == (None, "")
    body = json.dumps(gateway_pod(plan_with(DOMAINS), 1, PLAIN_GATEWAY, 4))
    assert '"secret"' not in body
    assert '"configMap"' not in body


def test_budgets_and_tools_reach_the_gateway() -> None:
    assert PROVIDER.provider is not None
    limited = replace(PROVIDER.provider, allow_external_tools=True, max_requests=7, max_tokens=9)
    provider = gateway_config(plan_with(replace(PROVIDER, provider=limited)), GATEWAY).provider
    assert provider is not None
    assert (provider.allow_external_tools, provider.max_requests, provider.max_tokens) == (
        *(True, 7, 9),
    )


def test_the_gateway_has_one_key_of_the_secret_and_no_token() -> None:
    pod: Any = gateway_pod(plan_with(PROVIDER), 1, GATEWAY, 4)["spec"]
    (secret,) = (one["secret"] for one in pod["volumes"] if "secret" in one)
    assert secret["secretName"] == "keys"
    assert secret["items"] == [{"key": "OPENAI_API_KEY", "path": "key"}]
    (main,) = pod["containers"]
    assert {one["mountPath"] for one in main["volumeMounts"] if not one.get("readOnly")} == {
        *("/work/gateway", "/tmp")
    }
    assert "projected" not in json.dumps(pod)


def test_a_harness_never_names_the_providers_secret() -> None:
    assert '"keys"' not in json.dumps(harness(PROVIDER))


def test_requests_are_never_above_a_small_memory() -> None:
    pod: Any = gateway_pod(plan_with(DOMAINS), 1, replace(PLAIN_GATEWAY, memory="64Mi"), 4)["spec"]
    resources = pod["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "64Mi"


@pytest.mark.parametrize(
    ("parallelism", "want_cpu"), [(1, "54m"), (4, "66m"), (60, "290m"), (1000, "400m")]
)
def test_the_cpu_request_grows_with_the_agents_up_to_a_bound(
    parallelism: int, want_cpu: str
) -> None:
    pod: Any = gateway_pod(plan_with(DOMAINS), 1, PLAIN_GATEWAY, parallelism)["spec"]
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == want_cpu


def test_a_run_without_egress_has_no_gateway() -> None:
    with pytest.raises(InvariantViolationError, match="has no gateway"):
        gateway_config(plan_with(None), PLAIN_GATEWAY)
    with pytest.raises(InvariantViolationError, match="has no gateway"):
        gateway_pod(plan_with(None), 1, PLAIN_GATEWAY, 4)


def test_the_service_leads_to_the_gateway_pods_of_the_run_only() -> None:
    plan = plan_with(DOMAINS)
    service: Any = gateway_service(plan)
    pod: Any = gateway_pod(plan, 3, PLAIN_GATEWAY, 4)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= harness(DOMAINS)["metadata"]["labels"].items()
    assert pod["metadata"]["name"] == f"{service['metadata']['name']}-3"
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_only_agents_and_canaries_reach_only_the_gateway() -> None:
    spec: Any = egress_policy(plan_with(DOMAINS))["spec"]
    chosen = {role for role in Role if selects(spec["podSelector"], role.value)}
    assert chosen == {Role.HARNESS, Role.CANARY}
    assert not selects(spec["podSelector"], "harness", run="other")
    (rule,) = spec["egress"]
    (peer,) = rule["to"]
    assert {role for role in Role if selects(peer["podSelector"], role.value)} == {Role.GATEWAY}
    assert peer.keys() == {"podSelector"}
    assert rule["ports"] == [{"port": 8443, "protocol": "TCP"}]
    assert spec["policyTypes"] == ["Egress"]


def test_verifiers_are_denied_whatever_the_run_may_do() -> None:
    denied: Any = deny_policy(plan_with(DOMAINS))["spec"]
    assert selects(denied["podSelector"], "verifier")
    assert not denied.keys() & {"egress", "ingress"}


def test_the_gateway_lets_in_the_runs_agents_only() -> None:
    spec: Any = gateway_policy(plan_with(DOMAINS))["spec"]
    assert {role for role in Role if selects(spec["podSelector"], role.value)} == {Role.GATEWAY}
    (rule,) = spec["ingress"]
    (peer,) = rule["from"]
    assert peer.keys() == {"podSelector"}
    assert {role for role in Role if selects(peer["podSelector"], role.value)} == {
        *(Role.HARNESS, Role.CANARY)
    }
    assert rule["ports"] == [{"port": 8443, "protocol": "TCP"}]
    assert spec["policyTypes"] == ["Ingress", "Egress"]


def may_dial(address: str) -> bool:
    spec: Any = gateway_policy(plan_with(DOMAINS))["spec"]
    found = ip_address(address)
    return any(
        found in ip_network(peer["ipBlock"]["cidr"])
        and not any(found in ip_network(one) for one in peer["ipBlock"]["except"])
        for peer in spec["egress"][0]["to"]
    )


@pytest.mark.parametrize(
    "address",
    [
        *("10.96.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "127.0.0.1"),
        *("169.254.169.254", "168.63.129.16", "0.0.0.1", "224.0.0.1", "240.0.0.1"),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "192.0.0.1", "192.88.99.1"),
        *("::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "2002:a00::1"),
        *("::ffff:10.0.0.1", "64:ff9b::a00:1", "fec0::1", "100::1", "2001::1", "3fff::1"),
    ],
)
def test_the_gateway_dials_nothing_private(address: str) -> None:
    assert not may_dial(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "172.32.0.1", "192.31.196.53", "8.8.8.8", "2606:4700::1", "2a00::1"]
)
def test_the_gateway_dials_what_is_public(address: str) -> None:
    assert may_dial(address)


def test_exceptions_lie_in_their_networks() -> None:
    spec: Any = gateway_policy(plan_with(DOMAINS))["spec"]
    for peer in spec["egress"][0]["to"]:
        outer: Any = ip_network(peer["ipBlock"]["cidr"])
        for one in peer["ipBlock"]["except"]:
            inner: Any = ip_network(one)
            assert inner.subnet_of(outer)
            assert inner != outer


@pytest.mark.parametrize(
    ("nameservers", "want"),
    [
        (("192.0.2.53", "2001:db8::53"), ["192.0.2.53/32", "2001:db8::53/128"]),
        ((), []),
    ],
    ids=["named", "of the cluster"],
)
def test_names_are_asked_of_the_configured_servers(
    nameservers: tuple[str, ...], want: list[str]
) -> None:
    spec: Any = gateway_policy(plan_with(DOMAINS), nameservers)["spec"]
    rule = spec["egress"][1]
    assert {(port["port"], port["protocol"]) for port in rule["ports"]} == {
        *((53, "UDP"), (53, "TCP"))
    }
    assert [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer] == want
    assert len(rule["to"]) == max(1, len(want))
    pod: Any = gateway_pod(plan_with(DOMAINS), 1, replace(GATEWAY, nameservers=nameservers), 4)[
        "spec"
    ]
    assert pod["dnsConfig"].get("nameservers", []) == list(nameservers)
    assert pod["dnsPolicy"] == ("None" if nameservers else "ClusterFirst")


def test_the_gateways_folder_is_its_own() -> None:
    folder = folder_of(GatewayFiles(RUN_UID))
    assert folder == f"runs/{RUN_UID}/gateway"
    assert folder not in json.dumps(harness(DOMAINS))


def test_the_canary_must_reach_the_gateway_and_the_control_does_not_try() -> None:
    plan = plan_with(DOMAINS)
    canary: Any = canary_pod(plan, 1, TARGETS, FACTS)
    spec = json.loads(told(canary["spec"]["containers"][0]["command"]))
    gateway = {"name": GATEWAY_TARGET, "host": GATEWAY_ADDRESS, "port": 8443, "protocol": "tcp"}
    assert spec["must_open"] == [gateway]
    assert len(spec["targets"]) == len(TARGETS)
    assert GATEWAY_ADDRESS not in json.dumps(control_pod(plan, 1, TARGETS))


@pytest.mark.parametrize("egress", [None, DOMAINS], ids=["none", "unknown"])
def test_a_canary_without_a_gateway_must_reach_nothing(egress: EgressPlan | None) -> None:
    body = canary_pod(plan_with(egress), 1, TARGETS, replace(FACTS, gateway=""))
    assert "must_open" not in json.dumps(body)
