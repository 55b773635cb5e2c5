# Everything a person or CI runs here. Only python3 (3.11 or newer) and make must be there before.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := uv>=0.9,<1
PYTEST := $(BIN)/pytest
SETUP := $(BIN)/python -m tests.setup

export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export MYPY_CACHE_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/specpilot/mypy
unexport PYTHONDONTWRITEBYTECODE  # the many processes of the tests would each compile all that they import

.DEFAULT_GOAL := help
.PHONY: help venv lint format test test-unit test-engine test-chart test-cluster setup \
  demo cluster-demo bench images cluster-up cluster-down clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 18

venv: $(READY)  ## the virtual environment, from the lock file

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: \
	install it and name it, e.g. make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is missing: \
	run apt-get install python3-venv (as root)" >&2; exit 1; }
	@echo "specpilot: making the virtual environment" >&2
	@mkdir -p $(VENV) && { { test -x $(BIN)/python -a -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); } \
	&& $(BIN)/pip install --quiet '$(UV)' && { kept=$$($(BIN)/uv cache dir); mkdir -p "$$kept" && test -w "$$kept" \
	|| export UV_NO_CACHE=1; $(BIN)/uv sync --frozen --inexact --quiet; }; } >$(VENV)/setup.log 2>&1 \
	|| { echo "The virtual environment could not be filled, see $(VENV)/setup.log: check the network and the space on \
	this disk, and run make venv again" >&2; exit 1; }
	@touch $@

lint: venv  ## formatting, lint, types, import contracts, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy -p tests.setup -p deploy.images -m deploy.console
	MYPYPATH=deploy/localkube $(BIN)/mypy deploy/localkube/__main__.py deploy/localkube/node
	$(BIN)/lint-imports
	$(BIN)/python -m specpilot.api.crd --check

format: venv  ## put every file into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: venv  ## bring what the engine and cluster tests need into the cache
	$(SETUP) engine cluster

test: lint setup  ## everything: lint, then all tests
	$(BIN)/python -m tests.everything

test-unit: venv  ## decisions, plans, the simulated engine: a few minutes
	$(PYTEST) tests/unit

test-chart: venv  ## what the Helm chart renders
	$(PYTEST) tests/chart

test-engine: venv  ## the engine package in a real vLLM on the CPU
	$(SETUP) engine
	$(PYTEST) tests/engine

test-cluster: setup  ## the operator on a real Kubernetes
	$(PYTEST) tests/cluster

demo: venv  ## two simulated replicas on this machine, at most two minutes
	$(BIN)/specpilot demo

cluster-demo: setup  ## the same on a real cluster with a real vLLM
	$(BIN)/python -m deploy.demo

bench: setup  ## overhead of the engine package, latency of a retune, time of a decision
	$(BIN)/python -m benchmarks.engine_overhead
	$(BIN)/python -m benchmarks.retune_latency
	$(BIN)/python -m benchmarks.decision

images: venv  ## build the images, and bring what they and a cluster need, into the cache
	$(SETUP) cluster

cluster-up: venv  ## a one-node Kubernetes: kind where Docker runs, else localkube
	$(SETUP) cluster-up

cluster-down: venv  ## remove that cluster
	$(SETUP) cluster-down

clean:  ## remove the virtual environment and what tools left; the cache stays
	rm -rf $(VENV) .ruff_cache .pytest_cache .import_linter_cache .hypothesis
