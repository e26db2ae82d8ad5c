"""How a run is reported: end verdict, wait reason, Events."""
