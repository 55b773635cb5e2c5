"""Documents that tests of the command line begin with."""

GOOD = """
apiVersion: specpilot.io/v1alpha1
kind: SpeculativeDeployment
metadata: {name: flash}
spec:
  model: {name: demo}
  engine: {image: "vllm/vllm-openai:v0.33.0"}
  speculation: {method: MTP, maxTokens: 3}
"""
