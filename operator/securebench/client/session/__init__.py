"""A tester's run from start to summary."""
