# make demo   the airfoil case on this machine: fields for ParaView, a picture, a residual curve
# make test   everything the project checks about itself: ruff, mypy, pytest, docs
# make test-all  that, with the tests that take minutes: the whole products of strategies, layouts, orderings and back ends
# make test-ranks  every case on 1 to 4 ranks of MPI, on three back ends, for an hour; goes on where it was stopped
# make docs   the documentation as a site in site/
# make bench  Meshloom beside hand-written C++, numba and NumPy; the result goes to bench/results/
# make clean  removes what the above made, the virtual environment included

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEMO_OUT ?= runs/demo
WHICH := not slow

# Test processes share the cores: waiting threads must sleep, not spin.
export OMP_WAIT_POLICY ?= passive
# Tests start Python hundreds of times; without bytecode each start would take twice as long.
export PYTHONDONTWRITEBYTECODE :=
# The docs stay on the major version that pyproject.toml names.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-all test-ranks pytest pairs-of-ranks site lint docs bench clean
.DEFAULT_GOAL := demo

# Stamps: each is made once, and again when pyproject.toml changes.
$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[io,plot]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.base
	$(PIP) --editable ".[dev]"
	@touch $(VENV)/.base $@

# The trap lets the last line come also after Ctrl-C; the run itself still gets the signal.
demo: $(VENV)/.base
	@echo "$(BIN)/meshloom run airfoil --out $(DEMO_OUT) --overwrite"; \
	trap : INT; \
	$(BIN)/meshloom run airfoil --out $(DEMO_OUT) --overwrite; code=$$?; \
	echo "To use meshloom as above, put it on the PATH first: source $(BIN)/activate"; \
	exit $$code

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

site: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

# The three side by side: the types and the site each take one core a minute.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 3 lint pytest site

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "$(WHICH)"

# The design of `make test-ranks` that every `make test` runs, by itself: every two of case, back end, number of ranks,
# and fused or not meet.
pairs-of-ranks: export MESHLOOM_CXXFLAGS ?= -O0
pairs-of-ranks: $(VENV)/.dev
	$(BIN)/python -m tests.dist.pairs

test-ranks: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses 2 -m ranks tests/dist
	$(BIN)/python -m tests.dist.matrix

# Every test there is, compiled as for users, but the whole products of ranks; those for a GPU where there is one.
test-all: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 3 WHICH="slow or not slow" lint pytest site

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# Alone on the machine, and spinning: this one is about speed.
bench: export OMP_WAIT_POLICY := active
bench: $(VENV)/.dev
	$(BIN)/python -m bench.cpu_airfoil

clean:
	rm -rf $(VENV) build dist site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
