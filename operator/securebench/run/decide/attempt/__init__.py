"""Decisions about single attempts, and the cache that keeps them."""
