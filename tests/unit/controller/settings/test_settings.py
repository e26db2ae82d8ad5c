"""Settings of the operator, and who reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from securebench.controller import settings, volume_settings
from securebench.controller.gateway_keeper import gateway_rules
from securebench.controller.policy_from_settings import cluster_providers
from securebench.controller.settings import (
    VARIABLES,
    AccessMode,
    Overlay,
    PodTemplateRules,
    Settings,
    load_settings,
)
from securebench.controller.volume_settings import load_volume_settings
from securebench.errors import ConfigError
from securebench.protocol.gateway import GatewayLimits
from securebench.run.plan.model import ClusterProvider
from securebench.run.pods.gateway import GatewayPolicy
from support.build import PLACE

TEXT = "podImage: pod:1\ngatewayImage: operator:1\nvolumeClaim: results\nrunsAccount: runs\n"
ENVIRONMENT = {VARIABLES[field]: value for field, value in PLACE.items()}


def test_defaults_are_those_of_the_contract() -> None:
    settings = Settings.from_text(TEXT, PLACE)
    bounds = settings.bounds
    assert bounds.text_bytes == bounds.stream_bytes == 1024**2
    assert bounds.patch_bytes == 10 * 1024**2
    assert (bounds.workspace_bytes, bounds.workspace_files) == (1024**3, 100_000)
    assert bounds.record_bytes == 16 * 1024**2
    assert settings.launch.process_limit == 256
    assert settings.relist_seconds == 300
    assert settings.status_interval_seconds == 2
    assert settings.access_mode is AccessMode.READ_WRITE_MANY
    assert settings.pod_template.runtime_class_names == ()


def test_providers_inside_the_cluster_are_listed() -> None:
    text = (
        "gateway: {providers: [{host: VLLM.models.svc., port: 80, namespace: models,"
        " podPort: 8000}, {host: a.b.svc, port: 8000, namespace: b}]}\n"
    )
    assert cluster_providers(Settings.from_text(TEXT + text, PLACE)) == (
        ClusterProvider("vllm.models.svc", 80, "models", 8000),
        ClusterProvider("a.b.svc", 8000, "b", 8000),
    )


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ("{host: 10.0.0.1, port: 80, namespace: b}", "must not be an IP address"),
        ("{host: a.svc, port: 0, namespace: b}", "port"),
        ("{host: a.svc, port: 80}", "namespace"),
        ("{host: '*.svc', port: 80, namespace: b}", "a wildcard"),
    ],
)
def test_a_wrong_provider_is_named(rule: str, want: str) -> None:
    with pytest.raises(ConfigError, match=rf"settings\.gateway\.providers\.0.*{re.escape(want)}"):
        Settings.from_text(TEXT + f"gateway: {{providers: [{rule}]}}\n", PLACE)


def test_settings_are_frozen() -> None:
    settings = Settings.from_text(TEXT, PLACE)
    with pytest.raises(ValidationError):
        settings.relist_seconds = 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("podImage: [", "settings: not YAML"),
        ("- a", "settings.: Input should be a valid dictionary"),
        ("", "settings.: Input should be a valid dictionary"),
        (TEXT + "typo: 1\n", "settings.typo: Extra inputs are not permitted"),
        (TEXT + "bounds: {textBytes: 0}\n", "settings.bounds.textBytes: "),
        (TEXT + "accessMode: ReadWriteOncePod\n", "settings.accessMode: "),
        ("volumeClaim: results\nrunsAccount: runs\n", "settings.podImage: Field required"),
        ("volumeClaim: results\nrunsAccount: runs\n", "settings.gatewayImage: Field required"),
        (TEXT + "gateway: {nameservers: [dns.test]}\n", "settings.gateway.nameservers.0: "),
        (TEXT + "gateway: {memory: 0Gi}\n", "settings.gateway.memory: "),
        (TEXT + "gateway: {memory: much}\n", "settings.gateway.memory: "),
        (TEXT + "overlays: {codex: {latest: '1'}}\n", "1 is not among the versions of images"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, want: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_text(text, PLACE)
    assert want in caught.value.reason


def test_the_file_cannot_say_where_the_operator_is() -> None:
    settings = Settings.from_text(TEXT + "namespace: other\n", {**PLACE})
    assert settings.namespace == "bench"


def test_load_reads_the_file_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(TEXT, encoding="utf-8")
    settings = load_settings(ENVIRONMENT, path)
    assert (settings.pod_image, settings.node_name) == ("pod:1", PLACE["node_name"])


def test_those_who_need_the_volume_alone_read_no_more(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(TEXT + "dataRoot: /data\nbounds: {packFiles: 7}\n", encoding="utf-8")
    settings = load_volume_settings(path)
    assert (settings.data_root, settings.bounds.pack_files) == (Path("/data"), 7)
    whole = load_settings(ENVIRONMENT, path)
    assert (whole.data_root, whole.bounds) == (settings.data_root, settings.bounds)


def test_what_is_wrong_about_the_volume_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("bounds: {packFiles: 0}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"settings\.bounds\.packFiles: Input should be greater"):
        load_volume_settings(path)
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load_volume_settings(tmp_path / "none")


def test_a_sandboxed_class_must_be_allowed() -> None:
    rules = PodTemplateRules(
        runtime_class_names=("a", "gvisor"), sandboxed_runtime_class_names=("gvisor",)
    )
    assert rules.sandboxed_runtime_class_names == ("gvisor",)
    with pytest.raises(ValidationError, match="gviser is not in runtimeClassNames"):
        PodTemplateRules(
            runtime_class_names=("gvisor",), sandboxed_runtime_class_names=("gviser", "gvisor")
        )


def test_the_gateway_of_the_settings_is_the_gateway_of_a_run() -> None:
    gateway = (
        "gateway: {nameservers: [192.0.2.53], caConfigMap: ca, memory: 2Gi, idleSeconds: 1,"
        " connectSeconds: 2, connections: 3, allConnections: 4, connectionsPerSecond: 5,"
        " bytesPerLaunch: 6, requestBytes: 7}\n"
    )
    rules = gateway_rules(Settings.from_text(TEXT + gateway, PLACE))
    limits = GatewayLimits(
        idle_seconds=1,
        connect_seconds=2,
        connections=3,
        all_connections=4,
        connections_per_second=5,
        bytes=6,
        request_bytes=7,
    )
    assert rules == GatewayPolicy("operator:1", "2Gi", limits, ("192.0.2.53",), "ca")


def test_the_gateway_has_the_limits_of_its_own_by_default() -> None:
    rules = gateway_rules(Settings.from_text(TEXT, PLACE))
    assert rules == GatewayPolicy("operator:1", "1Gi", GatewayLimits())


@pytest.mark.parametrize(
    ("asked", "want"), [("latest", "2.0.0"), ("1.0.0", "1.0.0"), ("3.0.0", "")]
)
def test_a_version_of_a_tool_is_found(asked: str, want: str) -> None:
    overlay = Overlay(images={"1.0.0": "a:1", "2.0.0": "a:2"}, latest="2.0.0")
    assert overlay.version(asked) == want


def test_without_images_there_is_no_version() -> None:
    assert Overlay().version("latest") == ""


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SECUREBENCH_NAMESPACE, SECUREBENCH_POD_NAME"):
        load_settings({"SECUREBENCH_NODE_ADDRESS": "10.0.0.1"}, tmp_path / "none")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load_settings(ENVIRONMENT, tmp_path / "none")


@pytest.mark.parametrize(
    "times", ["leaseSeconds: 10", "renewSeconds: 4", "renewSeconds: 15", "retrySeconds: 5"]
)
def test_times_of_the_lease_that_do_not_hold_together_are_refused(times: str) -> None:
    with pytest.raises(ConfigError, match="leaseSeconds must be above renewSeconds"):
        Settings.from_text(f"{TEXT}leadership: {{{times}}}\n", PLACE)


DEFINED = [Path(each.__file__) for each in (settings, volume_settings)]
SOURCES = DEFINED[0].parents[1]
PARTS = {
    name: item
    for module in (volume_settings, settings)
    for name, item in vars(module).items()
    if isinstance(item, type) and issubclass(item, BaseModel) and item.__module__ == module.__name__
}
HOLDERS = frozenset({"settings", "_settings"})
"""Attributes of other objects that hold the settings."""

Part = type[BaseModel]
Read = tuple[str, str]


def part_of(annotation: object) -> Part | None:
    """Return the part that a field holds, itself or as elements."""
    for found in (annotation, *get_args(annotation)):
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


def leaves(part: Part) -> Iterator[Read]:
    for name, field in part.model_fields.items():
        inner = part_of(field.annotation)
        if inner is None:
            yield part.__name__, name
        else:
            yield from leaves(inner)


class Reader(ast.NodeVisitor):
    """Collects the fields that a module reads of objects known to be settings or parts of them."""

    def __init__(self) -> None:
        self.reads: set[Read] = set()
        self._known: dict[str, Part] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._known = self._known, dict(self._known)
        for argument in (*node.args.args, *node.args.kwonlyargs):
            named = argument.annotation
            if isinstance(named, ast.Name):
                self._bind(ast.Name(argument.arg), PARTS.get(named.id))
        self.generic_visit(node)
        self._known = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for name, value in zip(target.elts, node.value.elts, strict=True):
                    self._bind(name, self._part(value))
            else:
                self._bind(target, self._part(node.value))

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, self._part(node.iter))
        self.generic_visit(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp) -> None:
        for generator in node.generators:
            self._bind(generator.target, self._part(generator.iter))
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp  # noqa: N815

    def visit_Attribute(self, node: ast.Attribute) -> None:
        part = self._part(node.value)
        if part is not None and node.attr in part.model_fields:
            self.reads.add((part.__name__, node.attr))
        self.generic_visit(node)

    def _bind(self, target: ast.expr, part: Part | None) -> None:
        if isinstance(target, ast.Name):
            self._known.pop(target.id, None)
            if part is not None:
                self._known[target.id] = part

    def _part(self, node: ast.expr) -> Part | None:
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Call(func=ast.Name(id="load_settings")):
                return Settings
            case ast.Attribute(value=value, attr=name):
                owner = self._part(value)
                if owner is None:
                    return Settings if name in HOLDERS else None
                field = owner.model_fields.get(name)
                return None if field is None else part_of(field.annotation)
        return None


def reads(source: str) -> set[Read]:
    reader = Reader()
    reader.visit(ast.parse(source))
    return reader.reads


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("def f(s: Settings): return s.launch.seal_seconds", {("Launch", "seal_seconds")}),
        ("def f(s): return s.launch.seal_seconds", set()),
        ("def f(c: Canary): return c.seal_seconds", set()),
        ("x = load_settings(e); b = x.bounds; b.text_bytes", {("Bounds", "text_bytes")}),
        ("a, b = self._settings, 1\na.data_root", {("Settings", "data_root")}),
        ("any(r.key for r in c.settings.pod_template.tolerations)", {("TolerationRule", "key")}),
        ("[r.key for r in c.settings.pod_template.tolerations]", {("TolerationRule", "key")}),
        ("x = load_settings(e)\nx = other()\nx.data_root", set()),
    ],
)
def test_a_read_is_one_of_an_object_known_to_be_settings(source: str, want: set[Read]) -> None:
    found = reads(source)
    assert found & set(leaves(Settings)) == want


def test_every_setting_is_read_outside_the_modules_that_define_it() -> None:
    files = [path for path in SOURCES.rglob("*.py") if path not in DEFINED]
    found = set().union(*(reads(path.read_text(encoding="utf-8")) for path in files))
    assert set(leaves(Settings)) - found == set()
