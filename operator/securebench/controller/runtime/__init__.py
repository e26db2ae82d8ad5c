"""What all parts of one run share, for as long as it is worked on."""
