"""The two resources of specpilot.io/v1alpha1 as pydantic models: the CRDs are generated from them."""
