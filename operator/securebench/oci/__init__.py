"""Packs as OCI artifacts: their format, and the registries that keep them."""
