"""Turns titles into slugs: lower case, words joined by single hyphens."""


def slug(title: str) -> str:
    return title.lower().replace(" ", "-")
