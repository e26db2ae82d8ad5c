"""Reading and writing files safely, for more than one process; standard library only."""
