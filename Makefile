# Every target sets up what it needs: Python and the package registry are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo demo-train test test-long fuzz lint format bench clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# A stamp is younger than what decides the environment, or the environment is made again.
# A half-made environment has no stamp, so an interrupted install is simply continued.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
$(VENV)/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes the first time."
	$(INSTALL) --editable '.[demo]'
	touch $@

$(READY): $(VENV)/.demo
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps fastembed
	touch $@

demo: $(VENV)/.demo  ## adapt an encoder made for something else, in two minutes: demo/report.html
	$(BIN)/python examples/demo.py $(if $(MODEL),--model $(MODEL))

demo-train: $(VENV)/.demo  ## the same with the encoder itself trained, for comparison: slower
	$(BIN)/python examples/demo_train.py $(if $(MODEL),--model $(MODEL))

# Each folder in a process of its own, two at a time: onnxruntime, OpenVINO, Ray and torch in one process for long crash.
TESTS := $(patsubst %/,%,$(filter-out tests/__pycache__/,$(wildcard tests/*/))) $(wildcard tests/test_*.py) src
test: $(READY)  ## the test suite (what needs real data skips without S2SENT_DATA)
	@printf '%s\n' $(TESTS) | xargs -n 1 -P 2 $(BIN)/python -m pytest

test-long: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m long

fuzz: $(READY)  ## 10,000 changed files for every reader: what came of them
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## what the selector costs: parameters, latency, memory; how fast training and encoding are
	$(BIN)/python -m benchmarks.cost
	if [ -n "$$S2SENT_DATA" ]; then \
		for what in adapt training selector_step encoding; do $(BIN)/python -m benchmarks.$$what || exit 1; done; fi

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
