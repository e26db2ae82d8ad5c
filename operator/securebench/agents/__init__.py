"""Harness types and agent CLIs: configuration, command line, time limits, extraction."""
