"""The cluster behind a narrow port, for operator and command line."""
