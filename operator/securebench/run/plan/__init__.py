"""The frozen plan of a run: spec, pack and policy put together once."""
