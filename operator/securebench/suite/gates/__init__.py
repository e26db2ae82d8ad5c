"""Whether the results of a round keep to the gates of a suite; what is undecided never passes."""
