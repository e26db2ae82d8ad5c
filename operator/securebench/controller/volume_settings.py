"""The settings of the processes that work on the results volume alone, and the base of all parts.

It imports little on purpose: every call of a tester is a process of its own in the operator's Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from securebench.errors import ConfigError
from securebench.protocol.candidate import RECORD_BYTES, CandidateBounds
from securebench.sizes import GIB

Positive = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
PositiveFloat = Annotated[float, Field(gt=0)]


class SettingsPart(BaseModel):
    """What every part of the settings is: read by its names in the chart's values, and closed."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


DATA_ROOT = Path("/var/lib/securebench")
"""Where Pods of ours mount the results volume."""

SETTINGS_PATH = Path("/etc/securebench/settings.yaml")
"""Where the chart mounts the file."""

_CAPTURE = CandidateBounds()


class Bounds(SettingsPart):
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


class VolumeSettings(SettingsPart, extra="ignore"):
    """What such a process reads; the operator itself has checked the whole file."""

    data_root: Path = DATA_ROOT
    """Mount point of the results volume in the operator."""
    bounds: Bounds = Bounds()
    """Contract 15.7."""

    @classmethod
    def from_text(cls, text: str, place: Mapping[str, str]) -> Self:
        """Read settings from YAML.

        Args:
            text: The file's content.
            place: Fields that the Pod's environment sets, whatever the file says of them.

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


def load_volume_settings(path: Path = SETTINGS_PATH) -> VolumeSettings:
    """Read the part of the operator's settings that is about the volume.

    Raises:
        ConfigError: The file is missing or wrong.
    """
    return VolumeSettings.from_text(settings_text(path), {})


def settings_text(path: Path) -> str:
    """Return the content of the settings file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from None


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
