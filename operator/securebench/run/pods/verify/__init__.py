"""Verifier Pods, by what decides."""
