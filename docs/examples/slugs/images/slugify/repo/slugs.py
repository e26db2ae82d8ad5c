def slug(title):
    """Return a title as it stands in an address."""
    return "-".join(title.lower().split())
