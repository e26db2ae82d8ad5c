"""Which registries may be asked for packs, and with which credentials."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.errors import ConfigError, PackError
from securebench.json_values import object_at, object_in, text_at
from securebench.names import ImageReference


class RegistryLogin(NamedTuple):
    """User and password for a registry."""

    user: str
    password: str

    @property
    def basic(self) -> str:
        """Value of the header Authorization."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class RegistryAdvice(NamedTuple):
    """What to do about a registry, in the words of whoever asks it.

    Args:
        login: When it wants other credentials.
        authority: When its certificate is from an authority that is not trusted.
        plain_http: When it does not speak TLS.
    """

    login: str = ""
    authority: str = ""
    plain_http: str = ""


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a registry is asked.

    Attributes:
        host: As references name it, with the port unless that is 443.
        repositories: Beginnings of the repositories that count, whole path components; empty: all.
        plain_http: Whether it is asked without TLS.
        authority: Certificate authority in PEM that is trusted besides the public ones, or empty.
        other_hosts: Where it may send us for tokens and content; None: anywhere.
        advice: What to do when it cannot be asked, for messages.
    """

    host: str
    repositories: tuple[str, ...] = ()
    plain_http: bool = False
    authority: str = ""
    other_hosts: frozenset[str] | None = frozenset()
    advice: RegistryAdvice = field(default_factory=RegistryAdvice)

    @property
    def scheme(self) -> str:
        """Scheme of its URLs."""
        return "http" if self.plain_http else "https"

    def allows_redirect_to(self, scheme: str, host: str) -> bool:
        """Return whether it may send us to another host.

        Args:
            scheme: Scheme of the URL.
            host: As in the URL, with the port unless that is the default.
        """
        if scheme != "https" and not (self.plain_http and scheme == "http"):
            return False
        return self.other_hosts is None or host in self.other_hosts

    def has(self, repository: str) -> bool:
        """Return whether packs of a repository may be pulled."""
        beginnings = self.repositories or ("",)
        return any(f"{repository}/".startswith(f"{each}/" if each else "") for each in beginnings)


def listed_access(
    reference: ImageReference, registries: Iterable[RegistryAccess]
) -> RegistryAccess:
    """Return how to ask for an image.

    Args:
        reference: From a BenchmarkRun, whose author must not make the operator ask any address.
        registries: As the administrator lists them.

    Raises:
        PackError: Its registry or repository is not listed.
    """
    for registry in registries:
        if registry.host == reference.host and registry.has(reference.repository):
            return registry
    raise PackError(
        f"image {reference}: {reference.host}/{reference.repository} is not among the chart's"
        " settings.packRegistries.registries; ask the administrator to list it, or use"
        " another source of the pack"
    )


def docker_credentials(content: bytes, host: str, shown: str) -> RegistryLogin | None:
    """Return the credentials for a registry, or None where there are none.

    Args:
        content: Docker's config.json, or the key .dockerconfigjson of a Secret.
        host: The registry.
        shown: Where the content is from, for messages.

    Raises:
        ConfigError: It cannot be read; no part of it is repeated.
    """
    try:
        auths = object_at(object_in(json.loads(content)), "auths")
    except (ValueError, RecursionError):
        raise ConfigError(f"{shown} is not JSON; replace it") from None
    for name, entry in auths.items():
        if name.split("://")[-1].split("/")[0] == host:
            return _credentials(object_in(entry), f"{shown}: the entry of {host}")
    return None


def _credentials(entry: Mapping[str, object], shown: str) -> RegistryLogin:
    user, password = text_at(entry, "username"), text_at(entry, "password")
    if not user and text_at(entry, "auth"):
        try:
            decoded = base64.b64decode(text_at(entry, "auth"), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ConfigError(f"{shown} has an auth that is not base64; replace it") from None
        user, _, password = decoded.partition(":")
    if not user or not password:
        raise ConfigError(f"{shown} has no user and password; log in without a credential helper")
    return RegistryLogin(user, password)
