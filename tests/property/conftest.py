"""Settings of Hypothesis: a busy machine is no defect of a strategy."""

from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
