"""Verdicts that run no code of anybody."""
