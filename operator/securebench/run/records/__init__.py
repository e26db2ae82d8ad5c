"""Records and summary of a run."""
