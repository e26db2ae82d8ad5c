"""What is written of one run: its binding, journal, metrics, records and end, in order."""
