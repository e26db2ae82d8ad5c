"""Packs on disk: loaded, bundled, digested, written as lanes."""
