from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from securebench.errors import ConfigError
from securebench.settings import (
    VARIABLES,
    AccessMode,
    PodTemplateRules,
    Settings,
    load_settings,
)

TEXT = "podImage: pod:1\nvolumeClaim: results\nrunsAccount: runs\n"
PLACE = {"namespace": "bench", "node_name": "n1", "node_address": "10.0.0.1"}
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
    assert (settings.pod_image, settings.node_name) == ("pod:1", "n1")


def test_a_sandboxed_class_must_be_allowed() -> None:
    rules = PodTemplateRules(
        runtime_class_names=("a", "gvisor"), sandboxed_runtime_class_names=("gvisor",)
    )
    assert rules.sandboxed_runtime_class_names == ("gvisor",)
    with pytest.raises(ValidationError, match="gviser is not in runtimeClassNames"):
        PodTemplateRules(
            runtime_class_names=("gvisor",), sandboxed_runtime_class_names=("gviser", "gvisor")
        )


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SECUREBENCH_NAMESPACE, SECUREBENCH_NODE_NAME"):
        load_settings({"SECUREBENCH_NODE_ADDRESS": "10.0.0.1"}, tmp_path / "none")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load_settings(ENVIRONMENT, tmp_path / "none")
