"""Access to the API server behind a narrow port, for operator and command line."""
