"""Settings of the operator: one YAML file that the chart writes, and the namespace.

Each attribute's docstring says unit, default and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from securebench.controller.settings.base import Positive, PositiveFloat
from securebench.controller.settings.overlays import ByAgent, Overlay, no_overlays
from securebench.controller.settings.pack_registries import PackRegistries
from securebench.controller.settings.parts import (
    AccessMode,
    Canary,
    Creation,
    Gateway,
    ImagePullPolicy,
    Launch,
    LeaseTimes,
    LogFormat,
    PodTemplateRules,
    Retention,
    Signing,
    UserNamespaces,
)
from securebench.controller.settings.volume_settings import (
    SETTINGS_PATH,
    VolumeSettings,
    settings_text,
)
from securebench.core.errors import ConfigError

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
        path: The settings file.

    Raises:
        ConfigError: A variable is missing, or the file is missing or wrong.
    """
    place = {field: environment.get(variable, "") for field, variable in VARIABLES.items()}
    missing = [VARIABLES[field] for field, value in place.items() if not value]
    if missing:
        raise ConfigError(f"not set in the environment: {', '.join(missing)}")
    return Settings.from_text(settings_text(path), place)
