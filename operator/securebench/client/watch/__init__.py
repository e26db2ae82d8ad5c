"""Follow a run and print its progress."""
