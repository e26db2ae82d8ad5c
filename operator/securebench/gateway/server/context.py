"""What the routes of a gateway share."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import certifi

from securebench.core.clock import Clock, SystemClock
from securebench.core.errors import ConfigError
from securebench.gateway.net.dial import Dialer
from securebench.gateway.net.streams import Stream
from securebench.gateway.provider.provider_memory import BodyMemory
from securebench.gateway.proxy.authority import HTTPS_PORT
from securebench.gateway.proxy.domains import is_listed
from securebench.gateway.server.launch import ServedLaunch
from securebench.protocol.gateway import GatewayConfig

KEY_BYTES = 4096
"""Most that a provider's key has."""


@dataclass
class RunGateway:
    """The gateway of a run.

    Attributes:
        config: What the operator said.
        dialer: Resolves names that agents ask for, checks addresses, connects.
        provider_dialer: The same for the provider's name, with a resolver of its own.
        clock: Time of the log.
        monotonic: Seconds of a clock that never goes back, for durations.
        bodies: Room for what agents send to the provider.
    """

    config: GatewayConfig
    dialer: Dialer
    provider_dialer: Dialer
    clock: Clock = field(default_factory=SystemClock)
    monotonic: Callable[[], float] = time.monotonic
    bodies: BodyMemory = field(default_factory=BodyMemory)

    def is_listed(self, host: str) -> bool:
        """Tell whether the tester lists a canonical host or a parent of it."""
        return is_listed(host, self.config.domains)

    async def dial(self, launch: ServedLaunch, host: str, port: int) -> Stream:
        """Resolve a name once, check all its addresses and connect to one of them.

        Args:
            launch: Who asks; look-ups are shared fairly among launches.
            host: Canonical name; whether it is listed was decided before.
            port: Of the target.

        Raises:
            RefusedError: 403, an address of the name is not public.
            UnreachableError: 502, no address or no connection.
        """
        return await self.dialer.dial(launch.lookups, host, port, None)

    async def dial_provider(self, launch: ServedLaunch, host: str) -> Stream:
        """Connect to the provider over TLS, with a certificate of its host.

        Args:
            launch: Who asks; what it looks up elsewhere does not count.
            host: Of the provider.

        Raises:
            RefusedError: 403, an address of the name is not public.
            UnreachableError: 502, no address, no connection or no valid certificate.
            OSError: As of ``provider_tls``.
        """
        return await self.provider_dialer.dial(
            launch.provider_lookups, host, HTTPS_PORT, self.provider_tls
        )

    def provider_key(self) -> str:
        """Return the provider's key as it is on the disk now: a Secret can be renewed.

        Raises:
            ConfigError: There is no provider, or no usable key in its file.
        """
        provider = self.config.provider
        if provider is None:
            raise ConfigError("the run has no model provider")
        try:
            with Path(provider.key_file).open("rb") as file:
                key = file.read(KEY_BYTES + 1).decode("ascii").strip()
        except (OSError, ValueError):
            key = ""
        if not key or len(key) > KEY_BYTES or not key.isprintable():
            raise ConfigError(
                f"the file with the key of provider {provider.name} has no usable key"
            )
        return key

    @cached_property
    def provider_tls(self) -> ssl.SSLContext:
        """TLS towards the provider: the public authorities and those of the configuration.

        Raises:
            OSError: The file of the authorities is missing or holds no certificate.
        """
        context = ssl.create_default_context(cafile=certifi.where())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.config.authorities:
            context.load_verify_locations(cafile=self.config.authorities)
        return context
