"""The provider route: requests of agents to the model provider."""
