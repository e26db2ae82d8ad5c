"""A run as data: API, plan, state, decisions, Pods and records."""
