"""What an agent hands in: kinds, bounds, sealing."""
