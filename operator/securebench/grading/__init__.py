"""What judges inside verifier Pods: standard library only."""
