"""Reading and judging candidate patches (contract 14.5.1 to 14.5.3)."""
