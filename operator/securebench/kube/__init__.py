"""The cluster behind a narrow port."""
