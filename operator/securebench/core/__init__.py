"""Words and forms that every process shares; pure, imports nothing of ours."""
