"""Settings of the operator: one YAML file that the chart writes, and the namespace.

Each attribute's docstring says unit, default and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.agents.harness_config import LATEST
from securebench.agents.registry import cli_agents
from securebench.core.errors import ConfigError
from securebench.core.rates import BACKOFF_LIMIT_SECONDS, BACKOFF_SECONDS, MAX_UNSCHEDULABLE
from securebench.protocol.bounds import GIB, RECORD_BYTES
from securebench.protocol.bounds import CandidateBounds as CaptureBounds
from securebench.protocol.gateway import GatewayLimits
from securebench.run.api.field_types import TaintEffect, TolerationOperator, quantity

DATA_ROOT = Path("/var/lib/securebench")
"""Where Pods of ours mount the results volume."""

SETTINGS_PATH = Path("/etc/securebench/settings.yaml")
"""Where the chart mounts the file."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "namespace": "SECUREBENCH_NAMESPACE",
        "node_name": "SECUREBENCH_NODE_NAME",
        "node_address": "SECUREBENCH_NODE_ADDRESS",
    }
)
"""Settings that describe the operator's own Pod; the downward API sets their variables."""

_CAPTURE = CaptureBounds()
_GATEWAY = GatewayLimits()


def _address(value: str) -> str:
    ip_address(value)
    return value


def _quantity(value: str) -> str:
    if quantity(value) <= 0:
        raise ValueError("must be above zero")
    return value


Positive = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


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


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class Bounds(_Part):
    """Contract 15.7: what a task may leave behind, and what a record keeps."""

    text_bytes: Positive = _CAPTURE.text_bytes
    """Bytes of a candidate text or code; 1 MiB. Beyond it: candidate_too_large."""
    patch_bytes: Positive = _CAPTURE.patch_bytes
    """Bytes of a candidate patch; 10 MiB. Beyond it: candidate_too_large."""
    workspace_bytes: Positive = _CAPTURE.workspace_bytes
    """Bytes of a captured workspace; 1 GiB. Beyond it: candidate_too_large."""
    workspace_files: Positive = _CAPTURE.workspace_files
    """Entries of a captured workspace; 100,000. Beyond it: candidate_too_large."""
    stream_bytes: Positive = _CAPTURE.stream_bytes
    """Bytes kept of each stdout and stderr; 1 MiB. The middle is left out beyond it."""
    record_bytes: Positive = RECORD_BYTES
    """Bytes of one line of candidates.jsonl; 16 MiB. Beyond it the record is cut."""
    pack_bytes: Positive = GIB
    """Bytes of a pack, uploaded or copied for a run; 1 GiB, so that none can fill the volume."""
    pack_files: Positive = 100_000
    """Files of a pack, uploaded or copied for a run; 100,000, so that none uses up the inodes."""


class Creation(_Part):
    """How fast Pods are created."""

    per_second: PositiveFloat = 5.0
    """Pods a second of one operator, sustained; 5. One node starts 3 to 4 a second."""
    burst: Positive = 10
    """Pods at once before the rate counts; 10, about one wave of a small run."""
    max_unschedulable: Positive = MAX_UNSCHEDULABLE
    """Unschedulable Pods of one run at which creation stops; 8, more only load the scheduler."""


class TolerationRule(_Part):
    """A toleration that a BenchmarkRun may ask for; an absent part matches anything."""

    key: str | None = None
    """Key of the taint."""
    operator: TolerationOperator | None = None
    """How it compares."""
    value: str | None = None
    """Value of the taint."""
    effect: TaintEffect | None = None
    """Effect of the taint."""


class PodTemplateRules(_Part):
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


class Canary(_Part):
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


class Launch(_Part):
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
    process_limit: Positive = 256
    """Processes of a task container; 256 (contract 10)."""


class Gateway(_Part):
    """The one Pod of a run that has egress, and what a launch may do through it."""

    nameservers: tuple[Annotated[str, AfterValidator(_address)], ...] = ()
    """Addresses that it asks for names; empty: the Pods of the cluster's DNS (k8s-app: kube-dns in
    kube-system), so a node-local cache has to be named here."""
    ca_config_map: str = ""
    """ConfigMap of the namespace whose ca.crt it trusts besides the public authorities; none."""
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


class Retention(_Part):
    """What stays on the results volume."""

    results_ttl_seconds: Positive | None = None
    """Seconds after the end of a run at which its results are removed, with frozen packs that no
    run uses any more; none: they stay. A run that goes on keeps those that it continues."""


class Overlay(_Part):
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


def _no_overlays() -> dict[str, Overlay]:
    return {name: Overlay() for name, _ in cli_agents()}


class _ByAgent:
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
        return _no_overlays() | given

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


class Settings(_Part):
    """All settings of one operator."""

    namespace: Annotated[str, Field(min_length=1)]
    """Namespace that the operator serves, its own; from the Pod, never in the file."""
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
    data_root: Path = DATA_ROOT
    """Mount point of the results volume in the operator."""
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
    """Age of the last list at which the operator counts as dead; 90, several lists missed."""
    max_active_runs: Positive = 50
    """Runs that are worked on at the same time; 50, each holds its tasks in memory and a watch.
    Further ones wait as Queued; suspended ones with nothing under way do not count."""
    input_wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Seconds that a new run waits for its ConfigMap, Secrets and pack folder; 60, for those who
    apply all of them together."""
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9090
    """Port of the metrics endpoint; 0 turns it off."""
    bounds: Bounds = Bounds()
    """Contract 15.7."""
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
    retention: Retention = Retention()
    """What stays on the results volume."""
    overlays: Annotated[Mapping[str, Overlay], _ByAgent()] = Field(default_factory=_no_overlays)
    """Images of the command line tools of agents, by harness type."""

    @classmethod
    def from_text(cls, text: str, place: Mapping[str, str]) -> Self:
        """Read settings from YAML.

        Args:
            text: The file's content.
            place: The keys of ``VARIABLES`` with what the Pod's environment says.

        Raises:
            ConfigError: With one line for each problem.
        """
        try:
            raw = TypeAdapter(dict[str, object]).validate_python(yaml.safe_load(text))
            return cls.model_validate({**raw, **place})
        except yaml.YAMLError as error:
            raise ConfigError(f"settings: not YAML: {error}") from None
        except ValidationError as error:
            lines = [f"settings.{_place(item['loc'])}: {item['msg']}" for item in error.errors()]
            raise ConfigError("\n".join(lines)) from None


def load_settings(environment: Mapping[str, str], path: Path = SETTINGS_PATH) -> Settings:
    """Read the operator's settings.

    Args:
        environment: Variables of the process; hold what ``VARIABLES`` names.
        path: The settings file.

    Raises:
        ConfigError: A variable is missing, or the file is missing or wrong.
    """
    place = {field: environment.get(variable, "") for field, variable in VARIABLES.items()}
    missing = [VARIABLES[field] for field, value in place.items() if not value]
    if missing:
        raise ConfigError(f"not set in the environment: {', '.join(missing)}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from None
    return Settings.from_text(text, place)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
