"""Connections, name resolution and HTTP/1.1, towards agents and origins."""
