"""The one way out of a harness Pod: what the gateway allows, relays, counts and writes down."""
