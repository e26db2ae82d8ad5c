"""What is checked and frozen before a run starts."""
