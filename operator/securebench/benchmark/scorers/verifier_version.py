"""The version that binds scores to the algorithms that gave them."""

VERIFIER_VERSION = "3"
"""Changes with every change of a verdict that any candidate could get (contract 15.6, 18)."""
