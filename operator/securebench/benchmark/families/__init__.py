"""Benchmark families: row schema, lanes, contract and what their verifier needs."""
