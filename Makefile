# The commands of the README. The first two build .venv when it is missing or older than pyproject.toml.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

.PHONY: conformance test faults bench trn2 clean

conformance: .venv/installed
	$(BIN)/trncheck run $(ARGS)

test: .venv/installed
	$(BIN)/pytest tests -n 2 --dist worksteal $(ARGS)

faults: .venv/installed
	$(BIN)/pytest tests/faults -n 2 --dist worksteal $(ARGS)

bench: .venv/installed
	$(BIN)/python benchmarks/bench.py $(ARGS)

# On a Neuron machine, into the environment that is active there; builds no .venv.
trn2:
	$(PYTHON) ci/install_trn2.py

# torch comes first and by version: with any other already-satisfied order pip may take a CUDA build of a later one.
.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("trncheck needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet "torch==2.13.0"
	$(BIN)/pip install --quiet --editable ".[cpu,report,test]"
	@touch $@

clean:
	rm -rf .venv results
