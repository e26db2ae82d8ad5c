"""The operator as a process: kopf, probes, settings, one task per run."""
