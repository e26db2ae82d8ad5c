"""Programs that task images get as text."""
