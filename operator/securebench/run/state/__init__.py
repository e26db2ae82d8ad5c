"""The state of a run: attempts, journal entries and the fold of entries into state."""
