"""Names of packs in a registry: ``host/repository[:tag]@sha256:…``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from securebench.core.digests import PATTERN
from securebench.core.errors import InvalidInputError

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

HOST_PATTERN = rf"{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?"
"""A registry: DNS name or IPv4 address, in lower case, with its port unless that is 443."""

REPOSITORY_PATTERN = rf"{_PART}(/{_PART})*"
TAG_PATTERN = "[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}"

PINNED_PATTERN = f"{HOST_PATTERN}/{REPOSITORY_PATTERN}(:{TAG_PATTERN})?@{PATTERN}"
"""A reference that always names the same content: one by digest (RE2 and Python)."""

_REFERENCE = re.compile(
    rf"(?P<host>{HOST_PATTERN})/(?P<repository>{REPOSITORY_PATTERN})"
    rf"(:(?P<tag>{TAG_PATTERN}))?(@(?P<digest>{PATTERN}))?"
)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A pack in a registry.

    Attributes:
        host: The registry, with its port if one is named.
        repository: Path of the pack in the registry.
        tag: For people where there is a digest too; may be empty.
        digest: ``sha256:…`` of the image's manifest; may be empty.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """Return the reference as it was written."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.repository}{tag}{digest}"


def image_reference(text: str) -> ImageReference:
    """Return what a text names.

    Raises:
        InvalidInputError: It is no reference.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{text!r} names no image; write registry/repository:tag or"
            " registry/repository@sha256:…, in lower case and without a scheme"
        )
    return ImageReference(
        found["host"], found["repository"], found["tag"] or "", found["digest"] or ""
    )
