"""The API object BenchmarkRun: models, rules, conditions, status, CRD."""
