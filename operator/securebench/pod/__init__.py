"""Entry points inside Pods: standard library, candidates and verifiers only."""
