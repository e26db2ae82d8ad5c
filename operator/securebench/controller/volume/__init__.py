"""The results volume: journal, store, index, published results."""
