"""What processes say to each other: types and codecs only."""
