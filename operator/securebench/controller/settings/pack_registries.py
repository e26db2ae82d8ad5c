"""Registries from which the operator pulls packs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from securebench.controller.settings.base import SettingsPart
from securebench.core.image_reference import HOST_PATTERN, REPOSITORY_PATTERN

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
