"""Runs inside the user's vLLM pod: live draft depth, measurements, the cost profiler."""

__version__ = "0.1.0"
