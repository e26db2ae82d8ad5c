"""What is wrong with a pack, as far as it shows without running it."""
