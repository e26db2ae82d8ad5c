"""What a tester writes and runs: configuration, env file, progress, one whole run."""
