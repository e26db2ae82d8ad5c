"""Classify IP addresses: the gateway connects only to public ones (contract 11.3)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only part of the IPv6 space that is allocated for the public internet."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""RFC 6052: the last 32 bits are the IPv4 address that a translator connects to."""

_REFUSED_V4 = (
    IPv4Network("168.63.129.16/32"),  # the host of Azure's virtual machines
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn
)
_REFUSED_V6 = (
    IPv6Network("2001::/23"),  # protocol assignments: Teredo, benchmarking, ORCHID
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4: an IPv4 address behind a relay
    IPv6Network("3fff::/20"),  # documentation
)

_INSIDE: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # shared address space, of Pods in some clouds
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("fc00::/7"),  # unique local
)
_METADATA = frozenset(map(ip_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Of Alibaba Cloud, AWS and Google Cloud; the usual 169.254.169.254 is link-local."""


def is_public(address: str) -> bool:
    """Return whether a numeric address is public unicast.

    An address that embeds an IPv4 address (mapped, NAT64) counts as that IPv4 address; other
    tunnels, and addresses with a zone, are never public.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return _is_public_v4(parsed)
    inner = _inner(parsed)
    return _is_public_v6(parsed) if inner is None else _is_public_v4(inner)


def is_inside(address: str) -> bool:
    """Return whether a provider inside the cluster may have a numeric address.

    Networks of clusters are private, shared (RFC 6598) or public; the loopback, link-local and
    special addresses never are, nor are the metadata services of clouds.
    """
    if is_public(address):
        return True
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            return False
        parsed = _inner(parsed) or parsed
    return parsed not in _METADATA and any(parsed in network for network in _INSIDE)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address.scope_id is not None:
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _is_public_v4(address: IPv4Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _REFUSED_V4)
    )


def _is_public_v6(address: IPv6Address) -> bool:
    return (
        address.scope_id is None
        and address in _GLOBAL_UNICAST
        and not any(address in network for network in _REFUSED_V6)
    )
