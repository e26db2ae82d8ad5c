"""``securebench doctor``: looks at everything that a run needs, and says what to do."""
