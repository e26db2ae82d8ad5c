"""Estimates from the verdicts of a run's tasks: shares, pass@k, intervals, paired differences."""
