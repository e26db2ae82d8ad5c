"""Which launches the limits of run and operator allow."""
