"""Following a run, and what of it is printed."""
