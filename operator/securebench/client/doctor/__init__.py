"""``securebench doctor``: checks everything that a run needs, and says what to do."""
