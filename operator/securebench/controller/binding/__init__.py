"""Binds a BenchmarkRun to what its results depend on, once; at later starts restores that."""
