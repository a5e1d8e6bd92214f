# One way to run things, for people and for CI alike. Each target sets up what it needs, once.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test torture check format docs evidence evidence-check bench bench-long dist wheels floors clean
PYTHONS ?= 3.11 3.12 3.13
# Those that touch other packages most. Warnings are no errors there: old packages call what newer ones deprecate.
FLOOR_TESTS := tests/data tests/files tests/model tests/report tests/test_settings.py tests/train/test_search.py \
	tests/runs/test_tensorboard.py tests/runs/test_export.py tests/serve/test_serve_api.py tests/serve/test_serve_safety.py \
	tests/cli/test_console.py tests/cli/test_data.py tests/cli/test_models.py
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

torture: $(STAMP) ## every crash point, flipped bits, generated inputs, shared folders, wrong clocks: about half an hour
	PYTHONPATH=tests nice $(BIN)/python -m torture

check: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff put things right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)   ## build the site into build/site, with its notebooks run; a dead link or an outside request is an error
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --quiet

evidence: $(STAMP) ## write docs/results.md, the pages below it and the README's table, from the JSON files of results/
	$(BIN)/python -m evidence page

evidence-check: $(STAMP) ## test the evidence, and that its pages are what the JSON files give
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/evidence

bench: $(STAMP)  ## speed and memory against peers, the short version
	$(BIN)/python -m bench

bench-long: $(STAMP) ## speed and memory against peers, all of it
	$(BIN)/python -m bench --long

dist: $(STAMP)   ## wheel and sdist into dist/, checked
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

wheels: dist     ## install the wheel into an empty environment of each of PYTHONS, and run the demo there
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tools/try_wheel.py $(PYTHONS)

floors: $(STAMP) ## run a part of the tests with the lowest versions that pyproject.toml allows
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/floors
	$(BIN)/uv pip install --quiet --python build/floors --resolution lowest-direct '.[all]'
	$(BIN)/uv pip freeze --python build/floors --exclude-editable | grep -v ' @ ' > build/floors.txt
	$(BIN)/uv pip install --quiet --python build/floors -c build/floors.txt httpx hypothesis pandas pytest pytest-benchmark pytest-xdist
	OMP_NUM_THREADS=1 build/floors/bin/python -m pytest -p no:cacheprovider -o filterwarnings=default -n 2 --dist worksteal $(FLOOR_TESTS)

clean:           ## remove everything that was built
	rm -rf $(VENV) .venv-pykeen .venv-torchbiggraph bench/out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
