"""Pure decisions: what was seen, what is known, what to do next."""
