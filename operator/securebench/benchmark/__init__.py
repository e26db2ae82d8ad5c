"""Benchmarks: packs, families, scorers and patches."""
