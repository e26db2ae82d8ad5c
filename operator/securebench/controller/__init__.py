"""The operator: event handlers, run loops, effects and the exec protocol."""
