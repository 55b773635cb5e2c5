"""A real one-node Kubernetes on this Linux machine, without Docker and without a VM."""
