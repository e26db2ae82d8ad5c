"""Subcommands that read a run: its results, its logs, and why it waits or has failed."""
