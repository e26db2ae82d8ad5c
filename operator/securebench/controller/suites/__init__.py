"""BenchmarkSuites: one loop for each, which creates the runs of its cells."""
