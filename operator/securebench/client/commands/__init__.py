"""Implementations of the ``securebench`` subcommands."""
