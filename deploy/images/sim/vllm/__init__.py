"""Stands where vLLM's package does in its own image; only the server's entry point exists."""

__version__ = "0.33.0"
