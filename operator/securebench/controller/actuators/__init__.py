"""What changes the cluster: launches, gateway, network policies, lanes."""
