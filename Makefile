# One way to run things, for people and for CI alike. Each target sets up what it needs, once.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test torture check format evidence evidence-check bench bench-long clean
.DEFAULT_GOAL := help

help:            ## what can be made
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## ?/  make \1\t/'

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "kgem needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: $(STAMP)  ## make .venv and install kgem into it

demo: $(STAMP)   ## fit the embedded graph through all phases, print predictions, write a report
	$(BIN)/kgem demo

test: $(STAMP)   ## run the test suite of the library, in two processes of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

torture: $(STAMP) ## every crash point, flipped bits, generated inputs, shared folders, wrong clocks: about an hour
	PYTHONPATH=tests nice $(BIN)/python -m torture

check: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff put things right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

evidence: $(STAMP) ## write docs/results.md, the pages below it and the README's table, from the JSON files of results/
	$(BIN)/python -m evidence page

evidence-check: $(STAMP) ## test the evidence, and that its pages are what the JSON files give
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/evidence

bench: $(STAMP)  ## speed and memory against peers, the short version
	$(BIN)/python -m bench

bench-long: $(STAMP) ## speed and memory against peers, all of it
	$(BIN)/python -m bench --long

clean:           ## remove everything that was built
	rm -rf $(VENV) .venv-pykeen bench/out .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
