"""Importing this registers every injector."""

from chaos.faults import clocks, leavings, operators, pods, requests, suites, volumes, watches

__all__ = ["clocks", "leavings", "operators", "pods", "requests", "suites", "volumes", "watches"]
