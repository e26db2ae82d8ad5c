"""From a tester YAML to a BenchmarkRun."""
