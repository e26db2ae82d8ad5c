"""What is known of a run: attempts, journal entries and their fold."""
