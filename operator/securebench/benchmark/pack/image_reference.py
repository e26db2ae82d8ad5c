"""What can be the name of a container image.

Source: the grammar of github.com/distribution/reference, which the kubelet's runtimes use.
"""

from __future__ import annotations

import re
from typing import Final

MAX_NAME: Final = 255
"""Characters of host and repository together."""

_HOST = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
)
_HOST += r"|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_NAME: Final = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*", re.ASCII)
_TAGGED: Final = re.compile(
    r"(?P<name>[^@]+?)(?::(?P<tag>[^:/@]*))?(?:@(?P<digest>.*))?", re.DOTALL
)
_TAG_FORM: Final = re.compile(_TAG, re.ASCII)
_DIGEST_FORM: Final = re.compile(_DIGEST, re.ASCII)


def image_problem(image: str) -> str | None:
    """Return why a text cannot be the name of an image, or None.

    Args:
        image: ``[host/]repository[:tag][@digest]``.
    """
    if any(each.isspace() for each in image):
        return f"{image!r} is no image reference: it holds a blank"
    parts = _TAGGED.fullmatch(image)
    name, tag, digest = parts.group("name", "tag", "digest") if parts else (image, None, None)
    if digest is not None and _DIGEST_FORM.fullmatch(digest) is None:
        return f"{image!r} is no image reference: {digest!r} is no digest (sha256:<64 hex digits>)"
    if tag is not None and _TAG_FORM.fullmatch(tag) is None:
        return f"{image!r} is no image reference: {tag!r} is no tag"
    if _NAME.fullmatch(name) is None:
        is_large = _NAME.fullmatch(name.lower()) is not None
        why = "small letters only" if is_large else f"{name!r} is no name of a repository"
        return f"{image!r} is no image reference: {why}"
    if len(name) > MAX_NAME:
        return f"an image name has more than {MAX_NAME} characters"
    return None
