"""Figures about lists of numbers."""


def median(values):
    """Return the middle value; the mean of the middle two of an even number of values."""
    if not values:
        raise ValueError("there are no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
