"""Manifest and rows as text, checked value by value."""
