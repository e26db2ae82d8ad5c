"""What a run says of itself: how it ended, what it waits for, its Events."""
