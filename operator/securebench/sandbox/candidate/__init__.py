"""Sealing what an agent hands in."""
