"""The provider route: one request to the model provider."""
