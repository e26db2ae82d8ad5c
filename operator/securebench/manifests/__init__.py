"""Pure builders of Pods and policies."""
