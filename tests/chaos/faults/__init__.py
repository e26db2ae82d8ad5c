"""Importing this registers every injector."""

from chaos.faults import clocks, leavings, operators, pods, requests, volumes, watches

__all__ = ["clocks", "leavings", "operators", "pods", "requests", "volumes", "watches"]
