"""The volume: journal, records and the layout of a run's folder."""
