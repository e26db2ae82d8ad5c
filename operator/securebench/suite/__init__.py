"""A BenchmarkSuite as data: API, cells, rounds, schedule, gates. Pure."""
