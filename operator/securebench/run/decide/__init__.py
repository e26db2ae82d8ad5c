"""Pure decisions: from observed state and history to the next actions."""
