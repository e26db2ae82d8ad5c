"""What a run's results rest on, as a statement that others check without the cluster."""
