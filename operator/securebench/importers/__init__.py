"""Packs from data that people have in other forms."""
