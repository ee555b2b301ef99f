# Every target sets up what it needs: Python and the package registry are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo test test-long lint format bench clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# The stamp is younger than what decides the environment, or the environment is made again.
# A half-made environment has no stamp, so an interrupted install is simply continued.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps fastembed
	touch $@

demo: $(READY)  ## build an encoder on a real backbone, look inside, train a little, score it
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/train.py
	$(BIN)/python examples/evaluate.py

test: $(READY)  ## the test suite (what needs real data skips without S2SENT_DATA)
	$(BIN)/python -m pytest

test-long: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m long

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## what the selector costs: parameters, latency, memory; how fast training is
	$(BIN)/python -m benchmarks.cost
	if [ -n "$$S2SENT_DATA" ]; then $(BIN)/python -m benchmarks.training && $(BIN)/python -m benchmarks.selector_step; fi

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
