"""What both the models and the rules of the CRD tell a user."""

from __future__ import annotations

ONE_SOURCE = "exactly one of volume, configMap and secret is needed"
ENV_HAS_VALUES = "env needs secretRef: the values come from a Secret"
EXISTS_HAS_NO_VALUE = "operator Exists takes no value"
EQUAL_HAS_KEY = "operator Equal needs a key"
