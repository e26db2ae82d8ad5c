"""The rules of an audit, one concept a module."""
