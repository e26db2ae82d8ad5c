"""Turn a tester YAML into a BenchmarkRun."""
