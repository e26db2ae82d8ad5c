"""Subcommands that start, change and follow runs, and those that manage packs."""
