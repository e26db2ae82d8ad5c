"""Checks of a pack before anyone trusts it."""
