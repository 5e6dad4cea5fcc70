# `make` alone lists what there is. Everything happens in .venv; a second run of a target that has nothing new to install is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SERVER := $(VENV)/.server
DEV := $(VENV)/.dev
PYTEST_ARGS ?=
# Of the server's requirements, those that its kernels import: installed first, so that they compile while the rest is installed.
FOR_KERNELS := backports.zstd|grpcio|numba|numpy|orjson|pyarrow|pydantic-settings
# pip would compile every file of every package, half of its time; what is imported is compiled then, and kept unless this is set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo up test check lint format types layers unit test-vllm bench-quick clean

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(SERVER) ## Server, a day of simulated history, live traffic; prints the dashboard's address
	@exec $(BIN)/tailtrace demo $(DEMO_ARGS)

up: $(SERVER) ## The server alone
	@exec $(BIN)/tailtrace up $(UP_ARGS)

test: system-packages $(DEV) check unit ## Everything that CI runs: checks, then all tests

check: lint types layers ## Formatting, lint, strict types, layers

lint: $(DEV) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DEV) ## Rewrite the code as ruff would have it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DEV) ## mypy --strict
	$(BIN)/mypy

layers: $(DEV) ## Data flows one way: import-linter
	$(BIN)/lint-imports

unit: $(DEV) ## The tests alone (PYTEST_ARGS="-k journal")
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

test-vllm: $(DEV) ## A real vLLM under `tailtrace run`: make test-vllm VLLM=DIR (docs/vllm.md)
	TAILTRACE_VLLM_DIR='$(VLLM)' $(BIN)/python -m pytest tests/e2e_vllm $(PYTEST_ARGS)

bench-quick: $(DEV) ## Every benchmark for under a minute, to see that it still works
	@set -e; for bench in $$(grep -l '^if __name__' bench/*.py); do \
		echo "== $$bench"; timeout 300 $(BIN)/python $$bench --quick --seed 1; done

clean: ## Remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info

# The stamps: remade when what is built changed.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name yours: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: apt install python3-venv"; exit 1; }

$(SERVER): pyproject.toml setup.py instrumentation/_fast.c | $(VENV)/bin/python
	@sed -nE '/^server = \[/,/^\]/ s/^ *"(($(FOR_KERNELS))[^a-z-].*)",$$/\1/p' pyproject.toml > $(VENV)/.for-kernels
	$(PIP) install --quiet --no-compile --requirement $(VENV)/.for-kernels
	@$(MAKE) --no-print-directory --jobs=2 packages kernels
	@touch $@

.PHONY: packages kernels
packages:
	$(PIP) install --quiet --no-compile --editable '.[server]'

kernels: # Once, what the first start would wait for
	@$(BIN)/python -m tailtrace.cli.processes.kernels

$(DEV): pyproject.toml $(SERVER)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet --group dev
	@touch $@

# What the tests use beside Python: a browser for the pages, a broker, a compiler. Installed where we may, else those tests say
# that they were left out.
.PHONY: system-packages
system-packages:
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing="$$missing chromium"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	command -v gcc >/dev/null || missing="$$missing gcc"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
			|| echo "could not install:$$missing; their tests are left out"; \
	elif [ -n "$$missing" ]; then echo "missing:$$missing; their tests are left out"; fi
