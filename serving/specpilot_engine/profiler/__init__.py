"""Measures what a step costs on this engine: `python -m specpilot_engine.profiler`, beside it in the pod."""
