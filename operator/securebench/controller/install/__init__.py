"""What `make generate` writes: CRDs and the chart's generated parts."""
