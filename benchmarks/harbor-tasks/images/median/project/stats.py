"""Figures about lists of numbers."""


def median(values):
    """Return the middle value; the mean of the middle two of an even number of values."""
    ordered = values
    middle = len(ordered) // 2
    return ordered[middle]
