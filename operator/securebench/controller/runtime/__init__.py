"""What the loops of runs and suites share: limits, retries, wake-ups, dependencies."""
