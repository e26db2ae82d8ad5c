"""Connections and HTTP/1.1 messages of both directions."""
