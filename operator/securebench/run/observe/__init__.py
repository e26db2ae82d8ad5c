"""What the cluster shows of a run's Pods."""
