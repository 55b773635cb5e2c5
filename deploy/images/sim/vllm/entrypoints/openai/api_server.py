"""Starts the simulated engine where vLLM's image starts its API server."""

import runpy

if __name__ == "__main__":
    runpy.run_module("specpilot_engine.sim", run_name="__main__", alter_sys=True)
