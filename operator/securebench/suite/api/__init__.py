"""The API object BenchmarkSuite: models, rules, status, CRD."""
