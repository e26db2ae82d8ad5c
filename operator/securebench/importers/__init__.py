"""Packs made from the task folders of other benchmarks."""
