"""From parsed rows to tasks with lanes."""
