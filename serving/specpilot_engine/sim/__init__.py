"""A simulated vLLM server: real API, real metric names, made-up time.

It answers OpenAI requests with continuous batching whose step times come from a cost table and whose
accepted tokens come from a survival curve, so that everything around an engine (plan, profiling,
tuning, dashboards) can be run and judged where no GPU is. Schedule file, exports and state document
are the engine package's own code. Run it with `python -m specpilot_engine.sim --help`.
"""
