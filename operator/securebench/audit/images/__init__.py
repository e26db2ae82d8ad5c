"""Images as archives: their layers, and the repositories inside."""
