"""State shared by the routes of a gateway."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import certifi

from securebench.agents.allowed_domains import is_listed
from securebench.clock import Clock, SystemClock
from securebench.errors import ConfigError
from securebench.gateway.net.addresses import is_inside, is_public
from securebench.gateway.net.dial import Dialer
from securebench.gateway.net.streams import Stream
from securebench.gateway.server.body_memory import BodyMemory
from securebench.gateway.server.launch import ServedLaunch
from securebench.gateway.server.run_budget import RunBudget
from securebench.protocol.gateway import GatewayConfig, ProviderConfig

KEY_BYTES = 4096
"""Maximum size of a provider's key."""


@dataclass
class RunGateway:
    """The gateway of a run.

    Attributes:
        config: Written by the operator.
        dialer: Connects to hosts that agents ask for.
        provider_dialer: Connects to the provider, with a resolver of its own.
        clock: Wall clock, for the log.
        monotonic: Monotonic clock in seconds, for durations.
        bodies: Memory budget for request bodies to the provider.
        run_budget: Token budget of the run, or None.
        answered_models: Models that the provider answered in any launch of the run.
    """

    config: GatewayConfig
    dialer: Dialer
    provider_dialer: Dialer
    clock: Clock = field(default_factory=SystemClock)
    monotonic: Callable[[], float] = time.monotonic
    bodies: BodyMemory = field(default_factory=BodyMemory)
    run_budget: RunBudget | None = None
    answered_models: set[str] = field(default_factory=set)

    def is_listed(self, host: str) -> bool:
        """Return whether a canonical host or a parent domain is on the allow-list."""
        return is_listed(host, self.config.domains)

    async def dial(self, launch: ServedLaunch, host: str, port: int) -> Stream:
        """Resolve a name once, check all its addresses and connect to one of them.

        Args:
            launch: Its limit on concurrent look-ups applies, so that launches share them fairly.
            host: Canonical name; the caller has checked the allow-list.
            port: Port of the target.

        Raises:
            RefusedError: 403, an address of the name is not public.
            UnreachableError: 502, no address or no connection.
        """
        return await self.dialer.dial(launch.lookups, host, port, None)

    async def dial_provider(self, launch: ServedLaunch, provider: ProviderConfig) -> Stream:
        """Connect to the provider; with TLS, require a valid certificate for its host.

        The launch's look-ups for other hosts do not count here.

        Raises:
            RefusedError: 403, an address of the name is not public, and it is not one of a cluster
                where the administrator allows that.
            UnreachableError: 502, no address, no connection or no valid certificate.
            OSError: See ``provider_tls``.
        """
        return await self.provider_dialer.dial(
            launch.provider_lookups,
            provider.host,
            provider.port,
            None if provider.is_plain else self.provider_tls,
            is_inside if provider.is_inside else is_public,
        )

    def provider_key(self) -> str:
        """Read the provider's key from its file each time, because a Secret can be renewed.

        Raises:
            ConfigError: There is no provider, or no usable key in its file.

        Returns:
            Empty for a provider that needs none.
        """
        provider = self.config.provider
        if provider is None:
            raise ConfigError("the run has no model provider")
        if not provider.key_file:
            return ""
        try:
            with Path(provider.key_file).open("rb") as file:
                key = file.read(KEY_BYTES + 1).decode("ascii").strip()
        except (OSError, ValueError):
            key = ""
        if not key or len(key) > KEY_BYTES or not key.isprintable():
            raise ConfigError(f"the key file of provider {provider.name} has no usable key")
        return key

    @cached_property
    def provider_tls(self) -> ssl.SSLContext:
        """TLS context for the provider: its own CAs, or else the public ones and the gateway's.

        Raises:
            OSError: The CA file is missing or contains no certificate.
        """
        own = "" if self.config.provider is None else self.config.provider.ca
        if own:
            context = ssl.create_default_context(cadata=own)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            return context
        context = ssl.create_default_context(cafile=certifi.where())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.config.authorities:
            context.load_verify_locations(cafile=self.config.authorities)
        return context
