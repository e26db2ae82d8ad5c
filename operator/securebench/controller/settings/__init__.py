"""The operator's settings: what an administrator decides, as the chart writes it down."""
