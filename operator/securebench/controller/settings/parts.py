"""The parts of the settings; each attribute's docstring says unit, default and reason."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from securebench.agents.allowed_domains import domain_problem, normalize_domain
from securebench.controller.settings.base import Port, Positive, PositiveFloat, SettingsPart
from securebench.core.rates import BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS, MAX_UNSCHEDULABLE
from securebench.protocol.gateway import GatewayLimits
from securebench.run.api.field_types import TaintEffect, TolerationOperator, quantity

_GATEWAY = GatewayLimits()


def _address(value: str) -> str:
    ip_address(value)
    return value


def _domain(value: str) -> str:
    problem = domain_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return normalize_domain(value)


def _quantity(value: str) -> str:
    if quantity(value) <= 0:
        raise ValueError("must be above zero")
    return value


class ImagePullPolicy(StrEnum):
    """When the kubelet pulls an image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class UserNamespaces(StrEnum):
    """Whether launch Pods get a user namespace of their own."""

    AUTO = "Auto"
    REQUIRE = "Require"
    NEVER = "Never"


class AccessMode(StrEnum):
    """How the results volume may be mounted."""

    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE = "ReadWriteOnce"


class LogFormat(StrEnum):
    """Form of the operator's log."""

    TEXT = "Text"
    JSON = "Json"


class Creation(SettingsPart):
    """How fast Pods are created, and how many there may be; the runs share it in turn."""

    per_second: PositiveFloat = 5.0
    """Pods a second of one operator, sustained; 5. One node starts 3 to 4 a second."""
    burst: Positive = 10
    """Pods at once before the rate counts; 10, about one wave of a small run."""
    max_unschedulable: Positive = MAX_UNSCHEDULABLE
    """Unschedulable Pods of one run at which creation stops; 8, more only load the scheduler."""
    max_pods: Positive | None = None
    """Pods of launches of all runs that exist at once; none: only parallelism and quota bound
    them. Somewhat below a ResourceQuota it lets runs share that quota in turn."""
    max_starting: Positive | None = 200
    """Pods of all runs that a node may take and that have not begun: they are scheduled, pulled
    or set up; 200, 40 seconds of the rate. Unschedulable ones have their own bound."""
    max_starting_per_run: Positive | None = 50
    """The same for one run, Pods without a node included; 50, so that several runs fit."""
    first_pulls: Positive | None = 8
    """Pods of an image that has not started yet on nodes of a run's kind; 8, so that a new image
    is not pulled on every node at once. Each run may have one, also beyond it. After the first one
    has started there is no bound."""


class TolerationRule(SettingsPart):
    """A toleration that a BenchmarkRun may ask for; an absent part matches anything."""

    key: str | None = None
    """Key of the taint."""
    operator: TolerationOperator | None = None
    """How it compares."""
    value: str | None = None
    """Value of the taint."""
    effect: TaintEffect | None = None
    """Effect of the taint."""


class PodTemplateRules(SettingsPart):
    """What the podTemplate of a BenchmarkRun may name; nothing by default."""

    runtime_class_names: tuple[str, ...] = ()
    """Runtime classes; empty: only the cluster's default."""
    sandboxed_runtime_class_names: tuple[str, ...] = ()
    """Those of runtimeClassNames whose Pods must run in gVisor; a run whose canary finds an
    ordinary kernel there does not start. None."""
    priority_class_names: tuple[str, ...] = ()
    """Priority classes; empty: only the default, so that runs cannot push others away."""
    node_selector_keys: tuple[str, ...] = ()
    """Keys of node selectors; empty: none, so that runs cannot choose control plane nodes."""
    tolerations: tuple[TolerationRule, ...] = ()
    """Tolerations; empty: none."""

    @model_validator(mode="after")
    def _sandboxed_are_allowed(self) -> Self:
        odd = sorted({*self.sandboxed_runtime_class_names} - {*self.runtime_class_names})
        if odd:
            raise ValueError(
                f"sandboxedRuntimeClassNames: {', '.join(odd)} is not in runtimeClassNames; "
                "add it there or correct the name"
            )
        return self


class Canary(SettingsPart):
    """The Pod that shows that nothing can be reached."""

    timeout_seconds: Positive = 120
    """Seconds for the whole check with all its Pods; 120, an image pull included."""
    metadata_address: str = "169.254.169.254:80"
    """Address and port of the cloud's metadata service; the usual one."""
    outside_address: str = "1.1.1.1:443"
    """Address and port outside the cluster; a target that cannot be reached without the policy
    either proves nothing and is reported so."""
    extra_targets: tuple[str, ...] = ()
    """Further addresses with port that no Pod of a run may reach; none."""


class Launch(SettingsPart):
    """Limits of launch Pods beyond what the run says."""

    startup_seconds: Positive = 600
    """Seconds from creating a Pod to the start of its harness; 600, a large image included."""
    seal_seconds: Positive = 120
    """Seconds for sealing a candidate, the Pod's grace period; 120, a full one on slow NFS."""
    lost_margin_seconds: Positive = 60
    """Seconds after deletion time and grace until a Pod counts as lost; 60, a few kubelet syncs."""
    retry_backoff_seconds: PositiveFloat = BACKOFF_SECONDS
    """Seconds before the first launch after infrastructure trouble; 5, doubled each time."""
    retry_backoff_max_seconds: PositiveFloat = BACKOFF_LIMIT_SECONDS
    """Longest such wait; 300."""
    refusal_seconds: Annotated[float, Field(ge=0)] = 600.0
    """Seconds for which a create is repeated that rights or admission refuse; 600, a webhook or
    an API server that is replaced included. Then the run ends with PodRefused; 0: at once."""
    process_limit: Positive = 256
    """Processes of a task container; 256 (contract 10)."""


class ClusterProviderRule(SettingsPart):
    """A model provider inside the cluster that runs may name by its URL."""

    host: Annotated[str, AfterValidator(_domain)]
    """DNS name of its Service, as in the URL: vllm.models.svc.cluster.local."""
    port: Port
    """Port of the Service, as in the URL. The URL may begin with http:// here."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    """Namespace of its Pods; the gateway's network policy opens it."""
    pod_port: Port | None = None
    """Port of its Pods where it is not that of the Service; network policies are about Pods."""


class Gateway(SettingsPart):
    """The one Pod of a run that has egress, and what a launch may do through it."""

    nameservers: tuple[Annotated[str, AfterValidator(_address)], ...] = ()
    """Addresses that it asks for names; empty: the Pods of the cluster's DNS (k8s-app: kube-dns in
    kube-system), so a node-local cache has to be named here."""
    ca_config_map: str = ""
    """ConfigMap of the namespace whose ca.crt it trusts besides the public authorities; none."""
    providers: tuple[ClusterProviderRule, ...] = ()
    """Model providers inside the cluster that runs may use; none, all that is private is refused.
    Also the only ones that may be reached without TLS."""
    start_seconds: Positive = 180
    """Seconds until it is ready; 180, an image pull included. Beyond it: the run ends with
    GatewayFailed; a full quota is waited for."""
    memory: Annotated[str, AfterValidator(_quantity)] = "1Gi"
    """Memory limit of its container; 1Gi, about 2,000 connections with their buffers."""
    idle_seconds: PositiveFloat = _GATEWAY.idle_seconds
    """Seconds without a byte after which a tunnel or an answer is cut; 600, models think long."""
    connect_seconds: PositiveFloat = _GATEWAY.connect_seconds
    """Seconds for resolving and connecting; 10."""
    connections: Positive = _GATEWAY.connections
    """Connections of one launch, open at once; 64."""
    all_connections: Positive = _GATEWAY.all_connections
    """Connections of one run, open at once; 2,048."""
    connections_per_second: PositiveFloat = _GATEWAY.connections_per_second
    """New connections of one launch, sustained; 50, four times as many in a burst."""
    bytes_per_launch: Positive = _GATEWAY.bytes
    """Bytes of one launch, both ways together; 2 GiB."""
    request_bytes: Positive = _GATEWAY.request_bytes
    """Bytes of the body of one request to a model provider; 16 MiB."""


class LeaseTimes(SettingsPart):
    """The Lease of the namespace's operators, of which one works."""

    lease_seconds: Positive = 15
    """Lease duration, in seconds; 15, as in client-go. After a leader is killed, a standby needs at
    most this and twice retrySeconds to take over."""
    renew_seconds: PositiveFloat = 10.0
    """Seconds without a renewal after which its holder writes nothing until it has renewed it; 10,
    as in client-go. The rest of leaseSeconds is for clocks that go at different rates."""
    retry_seconds: PositiveFloat = 2.0
    """Seconds between two renewals, and between two looks of a standby; 2, as in client-go."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_seconds > self.renew_seconds > 2 * self.retry_seconds:
            raise ValueError(
                "leaseSeconds must be above renewSeconds, and renewSeconds above twice "
                "retrySeconds, so that one renewal may fail"
            )
        return self


class Signing(SettingsPart):
    """The key that signs the statements on results."""

    secret: Annotated[str, Field(max_length=253)] = ""
    """Secret of the namespace with the key, mounted in the operator's Pod alone; none: statements
    are written unsigned."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "key.pem"
    """Key of that Secret whose value is an unencrypted private key (ed25519) in PEM."""
    uri: Annotated[str, Field(pattern=r"^$|^[a-z][-+.a-z0-9]*:.", max_length=1024)] = ""
    """Instead of a Secret: a key that stays in a key management service, named as securesystemslib
    does: awskms:, azurekms:, gcpkms:, hv: (Vault) or hsm:."""
    public_key: Annotated[str, Field(max_length=8192)] = ""
    """Public part of the key of ``uri``, in PEM."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.secret and self.uri:
            raise ValueError("secret and uri name two keys; leave one of them empty")
        if bool(self.uri) != bool(self.public_key):
            raise ValueError("uri and publicKey belong together; set both or none")
        return self


class Retention(SettingsPart):
    """What stays on the results volume."""

    results_ttl_seconds: Positive | None = None
    """Seconds after the end of a run at which its results are removed, with frozen packs that no
    run uses any more; none: they stay. A run that goes on keeps those that it continues."""
