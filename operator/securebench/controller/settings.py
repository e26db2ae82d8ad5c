"""The operator's settings: what an administrator decides, as the chart writes it down.

They are one YAML file that the chart writes, and the namespace. Each attribute's docstring says
unit, default and reason; the chart's table of values and its schema are generated from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.agents.harness import LATEST
from securebench.agents.providers.endpoint import domain_problem, normalize_domain
from securebench.agents.registry import cli_agents
from securebench.clock import BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS, MAX_UNSCHEDULABLE
from securebench.controller.volume_settings import (
    SETTINGS_PATH,
    Port,
    Positive,
    PositiveFloat,
    SettingsPart,
    VolumeSettings,
    settings_text,
)
from securebench.errors import ConfigError
from securebench.names import HOST_PATTERN, REPOSITORY_PATTERN
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


Host = Annotated[str, Field(pattern=f"^({HOST_PATTERN})$", max_length=253)]


class PackRegistry(SettingsPart):
    """A registry that spec.pack.image of runs may name."""

    host: Host
    """The registry as references name it: DNS name, with the port unless that is 443."""
    repositories: tuple[
        Annotated[str, Field(pattern=f"^({REPOSITORY_PATTERN})$", max_length=255)], ...
    ] = ()
    """Repositories that runs may name, with all below them; empty: all of the registry."""
    plain_http: bool = False
    """Ask it without TLS: whoever is on the way sees hidden data and credentials. False."""
    certificate_authority: str = ""
    """Certificate authority in PEM that is trusted besides the public ones; none."""
    other_hosts: tuple[Host, ...] = ()
    """Hosts where it may send the operator for tokens and content, such as its token service; none,
    so that no registry makes the operator ask an address of its choice."""


class PackRegistries(SettingsPart):
    """From where, how and how long packs are pulled; by the operator alone."""

    registries: tuple[PackRegistry, ...] = ()
    """Registries that runs may name; none, spec.pack.image is refused."""
    secret: Annotated[str, Field(max_length=253)] = ""
    """Secret of the namespace, of type kubernetes.io/dockerconfigjson, with credentials for them;
    none: they are asked anonymously."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3000)] = 600
    """Seconds that one pull may take; 600, a full pack over a slow link. Then it is tried again."""


class Overlay(SettingsPart):
    """The images of one command line tool, by its version; images/overlays builds them."""

    images: Mapping[str, str] = Field(default_factory=dict)
    """Image by version; none: runs with this harness are refused."""
    latest: str = ""
    """The version that stands for ``latest``; none."""

    @model_validator(mode="after")
    def _latest_is_there(self) -> Self:
        if self.latest and self.latest not in self.images:
            raise ValueError(
                f"latest: {self.latest} is not among the versions of images; "
                "add its image or correct the version"
            )
        return self

    def version(self, asked: str) -> str:
        """Return the version that a run gets, or nothing where there is no image of it.

        Args:
            asked: A version, or ``latest``.
        """
        found = self.latest if asked == LATEST else asked
        return found if found in self.images else ""


def no_overlays() -> dict[str, Overlay]:
    """Return no image at all for each agent with a CLI."""
    return {name: Overlay() for name, _ in cli_agents()}


class ByAgent:
    """Keys are agents with a CLI, by their names or as the chart's values write them."""

    @staticmethod
    def _named(value: object) -> object:
        names = {written: name for name, _ in cli_agents() for written in (name, to_camel(name))}
        if not isinstance(value, Mapping):
            return value
        unknown = sorted(str(key) for key in value if key not in names)
        if unknown:
            known = ", ".join(to_camel(name) for name, _ in cli_agents())
            raise ValueError(f"no agent has the name {unknown[0]!r}; there is {known}")
        given = {names[key]: overlay for key, overlay in value.items()}
        return no_overlays() | given

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._named, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        overlay = handler(schema)["additionalProperties"]
        properties = {
            to_camel(name): {**overlay, "description": f"Of harness type {name}."}
            for name, _ in cli_agents()
        }
        return {"type": "object", "additionalProperties": False, "properties": properties}


SIGNING_ROOT = Path("/var/run/securebench/signing")
"""Where the chart mounts the Secret with the signing key."""

QUEUE_NAME = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
"""Names of Kueue's LocalQueues, as a label can hold them; or none."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "namespace": "SECUREBENCH_NAMESPACE",
        "pod_name": "SECUREBENCH_POD_NAME",
        "pod_uid": "SECUREBENCH_POD_UID",
        "node_name": "SECUREBENCH_NODE_NAME",
        "node_address": "SECUREBENCH_NODE_ADDRESS",
    }
)
"""Settings that describe the operator's own Pod; the downward API sets their variables."""


class Settings(VolumeSettings, extra="forbid"):
    """All settings of one operator."""

    namespace: Annotated[str, Field(min_length=1)]
    """Namespace that the operator serves, its own; from the Pod, never in the file."""
    pod_name: Annotated[str, Field(min_length=1)]
    """Name of the operator's Pod; from the Pod."""
    pod_uid: Annotated[str, Field(min_length=1)]
    """Uid of the operator's Pod, which tells it from an earlier one of its name; from the Pod."""
    node_name: Annotated[str, Field(min_length=1)]
    """Node of the operator, where launch Pods go with ReadWriteOnce; from the Pod."""
    node_address: Annotated[str, Field(min_length=1)]
    """Address of that node, a target of the canary (its kubelet); from the Pod."""
    pod_image: Annotated[str, Field(min_length=1)]
    """Image of courier, verifiers and canary; no default, the chart sets it."""
    gateway_image: Annotated[str, Field(min_length=1)]
    """Image of gateways, the operator's own; no default, the chart sets it."""
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    """For our containers in Pods of runs; those of task images have IfNotPresent."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets of the namespace for pulling images, of all Pods of runs; none."""
    signing_root: Path = SIGNING_ROOT
    """Mount point of the signing key's Secret in the operator."""
    volume_claim: Annotated[str, Field(min_length=1)]
    """Claim of the results volume; no default, the chart sets it."""
    runs_account: Annotated[str, Field(min_length=1)]
    """Service account of all Pods of runs, without rights and token; the chart makes it."""
    access_mode: AccessMode = AccessMode.READ_WRITE_MANY
    """Of the claim; with ReadWriteOnce launch Pods are kept on the operator's node."""
    user_namespaces: UserNamespaces = UserNamespaces.AUTO
    """Auto uses them where the canary's Pod starts with them; Require fails closed."""
    status_interval_seconds: PositiveFloat = 2.0
    """Seconds between two status writes of one run; 2, conditions are written at once."""
    relist_seconds: PositiveFloat = 300.0
    """Seconds between two full lists of a run's Pods; 300, a watch may lose events."""
    health_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    """Port where the kubelet's probes are answered; 0 turns it off."""
    health_max_age_seconds: PositiveFloat = 90.0
    """Age of the event loop's last turn at which the operator counts as dead, and of the API
    server's last answer at which it is not ready; 90, several of them missed."""
    max_active_runs: Positive = 50
    """Runs that are worked on at the same time; 50, each holds its tasks in memory and a watch.
    Further ones wait as Queued; suspended ones with nothing under way do not count."""
    turn_seconds: Annotated[float, Field(ge=300)] = 1800.0
    """Seconds for which an active run keeps its slot while others are Queued; 1800, so that its
    network is not proven anew too often; at least 300, enough for gateway and canary to start.
    It ends what is under way and queues again."""
    queue_name: Annotated[str, Field(max_length=63, pattern=QUEUE_NAME)] = ""
    """Queue of Kueue for Pods of runs that have no label kueue.x-k8s.io/queue-name; none."""
    input_wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Seconds that a new run waits for its ConfigMap, Secrets and pack (folder or image); 60, for
    those who apply all of them together."""
    trusts_requesters: bool = False
    """Whether admission policies keep the annotation securebench.dev/requested-by true; False."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9090
    """Port of the metrics endpoint; 0 turns it off."""
    log_format: LogFormat = LogFormat.TEXT
    """Text, or Json for a log store: one object a line with time, level, logger, message and, in
    what is about a run, run and run_uid."""
    creation: Creation = Creation()
    """How fast Pods are created."""
    pod_template: PodTemplateRules = PodTemplateRules()
    """What a BenchmarkRun's podTemplate may name."""
    canary: Canary = Canary()
    """The network check."""
    launch: Launch = Launch()
    """Limits of launch Pods."""
    gateway: Gateway = Gateway()
    """The egress of runs that ask for it."""
    pack_registries: PackRegistries = PackRegistries()
    """Registries of packs, which only the operator asks."""
    leadership: LeaseTimes = LeaseTimes()
    """Which of several operators works."""
    retention: Retention = Retention()
    """What stays on the results volume."""
    signing: Signing = Signing()
    """The key that signs the statements on results."""
    overlays: Annotated[Mapping[str, Overlay], ByAgent()] = Field(default_factory=no_overlays)
    """Images of the command line tools of agents, by harness type."""


def load_settings(environment: Mapping[str, str], path: Path = SETTINGS_PATH) -> Settings:
    """Read the operator's settings.

    Args:
        environment: Variables of the process; hold what ``VARIABLES`` names.

    Raises:
        ConfigError: A variable is missing, or the file is missing or wrong.
    """
    place = {field: environment.get(variable, "") for field, variable in VARIABLES.items()}
    missing = [VARIABLES[field] for field, value in place.items() if not value]
    if missing:
        raise ConfigError(f"not set in the environment: {', '.join(missing)}")
    return Settings.from_text(settings_text(path), place)
