"""Packs on the tester's machine: made, checked and shown without a cluster."""
