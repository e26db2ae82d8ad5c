"""The run's status."""
