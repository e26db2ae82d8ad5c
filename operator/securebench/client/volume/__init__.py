"""Access to the results volume by exec protocol, and local copies of its files."""
