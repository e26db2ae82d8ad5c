"""Packs: manifest and rows, compiled into tasks with lanes."""
