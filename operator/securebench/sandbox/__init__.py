"""What runs in harness and verifier Pods beside untrusted code: standard library only."""
