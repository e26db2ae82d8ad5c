"""Static checks of packs."""
