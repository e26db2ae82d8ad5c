"""What launches left is read, within bounds, into the record."""
