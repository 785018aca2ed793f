# Needs only Python >= 3.11. Everything is installed into .venv, with versions pinned by constraints.txt.
PYTHON ?= python3
STACK  ?= inf2-llama3

# Tests start hundreds of interpreters; without bytecode files, each of them would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Some tests only wait, so three processes keep two cores busy. Neighbouring tests share fixtures, so each process gets a contiguous
# part of the list and takes tests from other processes at the end.
WORKERS := -n 3 --dist worksteal
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt

.PHONY: preview client test cluster-tools cluster lint checkov format bench golden release clean

preview: .venv/.runtime ## What `pulumi up -s STACK` would create
	@$(BIN)/eks-inference preview $(STACK)

client: job := triton-client-$(shell date +%s)
client: ## Run the deployed STACK's client again: its test, then its measurement (gpu-opt350m)
	@kubectl --context $(STACK) -n triton-client create job $(job) --from=cronjob/triton-client
	@echo "kubectl --context $(STACK) -n triton-client logs --follow job/$(job) --all-containers"

test: .venv/.dev ## All tests that need only Python
	$(BIN)/python -m pytest $(WORKERS)

cluster-tools: .venv/.runtime ## Build the Kubernetes binaries for `simulate` from pinned Go modules, once
	@$(BIN)/eks-inference cluster-tools

cluster: .venv/.dev cluster-tools ## All tests on a real control plane; needs Go, and about 15 minutes the first time
	$(BIN)/python -m pytest -m cluster -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/.dev ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

checkov: .venv/.dev .venv-checkov/.ready ## Run checkov's security checks on the manifests of all stacks
	CHECKOV=$(CURDIR)/.venv-checkov/bin/checkov $(BIN)/python -m pytest tests/test_checkov.py

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev cluster-tools ## Measure speed and memory of preview, rules, cost and time, diff and simulation, as ratios
	$(BIN)/python bench/preview.py
	$(BIN)/python bench/rules.py
	$(BIN)/python bench/cost_and_time.py
	$(BIN)/python bench/diff.py
	$(BIN)/python bench/simulate.py

golden: .venv/.dev ## Regenerate golden files and print what changed
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest $(WORKERS)
	git diff --stat -- tests/golden stacks/schema.json

release: .venv/.dev ## Write the graphs of the version in pyproject.toml, which later changes are compared with (docs/releases.md)
	$(BIN)/python tests/support/released.py

clean:
	rm -rf .venv .venv-checkov build dist components/*.egg-info

.venv/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; set PYTHON=…")'
	@echo "setting up .venv (once, about a minute)" >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.runtime
	@$(PIP) -e '.[dev]'
	@touch $@

# The file lists every package, dependencies included, so pip resolves nothing.
.venv-checkov/.ready: tests/checkov_requirements.txt | .venv/.runtime
	@echo "setting up .venv-checkov (once, about a minute)" >&2
	@$(PYTHON) -m venv --clear .venv-checkov
	@.venv-checkov/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -r $<
	@touch $@
