"""Pure builders of Pods and network policies."""
