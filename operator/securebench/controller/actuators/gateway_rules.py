"""Converts the operator's settings into the policy of gateway Pods."""

from __future__ import annotations

from securebench.controller.settings import Settings
from securebench.protocol.gateway import GatewayLimits
from securebench.run.pods.gateway_pod import GatewayPolicy


def gateway_rules(settings: Settings) -> GatewayPolicy:
    """Return what the settings say of every gateway."""
    gateway = settings.gateway
    return GatewayPolicy(
        image=settings.gateway_image,
        memory=gateway.memory,
        limits=GatewayLimits(
            idle_seconds=gateway.idle_seconds,
            connect_seconds=gateway.connect_seconds,
            connections=gateway.connections,
            all_connections=gateway.all_connections,
            connections_per_second=gateway.connections_per_second,
            bytes=gateway.bytes_per_launch,
            request_bytes=gateway.request_bytes,
        ),
        nameservers=gateway.nameservers,
        ca_config_map=gateway.ca_config_map,
    )
