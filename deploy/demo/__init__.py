"""The whole product on a real cluster with a real vLLM: `make cluster-demo`."""
