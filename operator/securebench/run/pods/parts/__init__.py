"""What all Pods are made of."""
