# The commands for operators and developers. `make serve` and `make test` install what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
ARGS ?=
VENV := .venv/bin

.PHONY: help install test-programs python serve stack preview dashboards chart test test-full test-gpu fmt lint type clean prune

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## Create the environment (dependencies once per machine, shared by clones)
	@$(PYTHON) tools/install.py >/dev/null

test-programs: ## Create the environment and install the Debian programs that tests use
	@$(PYTHON) tools/install.py --tests >/dev/null

python: ## Print the path of the environment's interpreter
	@$(PYTHON) tools/install.py

serve: install ## Serve the embedded model, or ARGS="any SGLang flag"
	@exec $(VENV)/jetspec serve $(ARGS)

stack: install ## Serve with Prometheus and, if installed, Grafana; ARGS as in serve
	@exec $(VENV)/python -m deploy.stack $(ARGS)

preview: install ## Draw the dashboards from the stack's Prometheus to PNG, in out/
	@$(VENV)/python dashboards/preview.py $(ARGS)

dashboards: install ## Write dashboards/grafana/*.json from their code
	$(VENV)/python dashboards/generate.py

chart: install ## Write the settings of engine and controller into the chart's schema
	$(VENV)/python -m deploy.helm.schema

test: export OMP_NUM_THREADS = 1
test: export JETSPEC_TEST_LAYERS = 8
test: test-programs ## Unit tests, then a part of the integration tests, on two cores
	$(VENV)/python -m pytest tests -n 2 --dist loadgroup -m "not full and not gpu"

test-full: install ## Every test that needs no GPU (takes hours)
	@$(PYTHON) tools/install.py --full-tests >/dev/null
	OMP_NUM_THREADS=1 $(VENV)/python -m pytest tests/unit -m "not gpu" --hypothesis-profile=thorough
	$(VENV)/python -m pytest tests --ignore=tests/unit -m "not gpu"
	JETSPEC_TEST_DTYPE=bfloat16 $(VENV)/python -m pytest -m "not gpu" \
	  tests/integration/test_lossless.py tests/integration/test_full_matrix.py tests/integration/test_stops.py

test-gpu: install ## Tests that need an NVIDIA GPU; without a GPU they are listed and skipped
	$(VENV)/python -m pytest tests -m gpu -vv -rs

fmt: install ## Format the code
	$(VENV)/python -m ruff format .
	$(VENV)/python -m ruff check --fix-only .

lint: install ## Check format and style
	$(VENV)/python -m ruff format --check .
	$(VENV)/python -m ruff check .

type: install ## Check types
	$(VENV)/python -m mypy
	cd controller && ../$(VENV)/python -m mypy

clean: ## Remove the files that make and the tests created in this clone
	rm -rf .venv build dist *.egg-info */*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

prune: ## Remove cached environments of other versions of this project
	@$(PYTHON) tools/install.py --prune >/dev/null
