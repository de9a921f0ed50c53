# `make test` and `make demo` need only Python 3.11+ and make: each makes .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := ogbench,plots,emd,data,viewer,docs,dev
INSTALLED := $(VENV)/.installed

.PHONY: help install demo test test-slow docs lint format clean

help:            ## Show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED)  ## Make .venv with everything in it; .venv/bin/jumpy is the command

# Remade when the dependencies change, and not otherwise. The stamp comes last, so that an
# installation that broke off is taken up again.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jumpyworld needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

demo: install    ## The story so far, on a CPU
	$(BIN)/jumpy demo

test: install    ## Prove correctness (what CI runs)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-slow: install  ## The long proofs: many kills, 100,000 mutations, longer trainings
	$(BIN)/python -m pytest -m slow

docs: install    ## Build the documentation strictly, into build/site (a test does too)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: install    ## Style and types
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/pyright --pythonpath $(BIN)/python

format: install  ## Rewrite in the house style
	$(BIN)/ruff check --fix-only --quiet src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

clean:           ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
