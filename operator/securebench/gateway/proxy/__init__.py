"""The proxy route: names, authorities, tunnels."""
