"""What is wrong with what grades a task, as far as it shows without running it."""
