# Needs only Python >= 3.11. Everything is installed into .venv, with versions pinned by constraints.txt.
PYTHON ?= python3
STACK  ?= inf2-llama3
TIER   ?= test
TIMES  ?= 5

# Tests start hundreds of interpreters; without bytecode files, each of them would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Some tests only wait, so three processes keep two cores busy. Neighbouring tests share fixtures, so each process gets a contiguous
# part of the list and takes tests from other processes at the end.
WORKERS := -n 3 --dist worksteal
# Says on one line that no package index answers, and otherwise what pip says. Arguments: folder of the environment, what to install.
# Compiling all modules would take half of the time, and hardly one in six is ever imported.
define install
@$(1)/bin/python -m pip --disable-pip-version-check install --no-compile $(2) >$(1)/setup.log 2>&1 || { \
  if grep -qE 'Retrying|from versions: none' $(1)/setup.log; \
  then echo "setting up $(1) needs a network once, and no package index answers; pip says more in $(1)/setup.log" >&2; \
  else cat $(1)/setup.log >&2; fi; exit 1; }
endef

.PHONY: help preview client environments test thorough cluster-tools cluster lint checkov router envoy engine soak mutants docs format bench golden refresh newer release clean

.DEFAULT_GOAL := preview

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

preview: .venv/.runtime ## What `pulumi up -s STACK` would create
	@$(BIN)/eks-inference preview $(STACK)

client: job := triton-client-$(shell date +%s)
client: ## Run the deployed STACK's client again: its test, then its measurement (gpu-opt350m)
	@kubectl --context $(STACK) -n triton-client create job $(job) --from=cronjob/triton-client
	@echo "kubectl --context $(STACK) -n triton-client logs --follow job/$(job) --all-containers"

environments: ## Set up what all tiers of `.ci/run` need, side by side
	@$(MAKE) --jobs .venv/.dev $(patsubst %,.venv-%/.ready,docs checkov envoy router)

test: .venv/.dev ## Tests that need only Python, in two minutes on two cores
	$(BIN)/python -m pytest $(WORKERS)

thorough: .venv/.dev ## The rest of them: commands as users start them, and all combinations
	$(BIN)/python -m pytest -m thorough $(WORKERS)

cluster-tools: .venv/.runtime ## Build all programs that `simulate` runs, from pinned Go modules, once
	@$(BIN)/python -m eks_inference_tools.simulate.control_plane

cluster: .venv/.dev cluster-tools ## All tests on a real control plane; needs Go, and about 15 minutes the first time
	$(BIN)/python -m pytest -m cluster -n 3 --dist loadfile --no-loadscope-reorder tests/eks_inference_tools/cluster

lint: .venv/.dev ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python --threads

checkov: .venv/.dev .venv-checkov/.ready ## Run checkov's security checks on the manifests of all stacks
	CHECKOV=$(CURDIR)/.venv-checkov/bin/checkov $(BIN)/python -m pytest tests/test_checkov.py

router: .venv/.dev .venv-router/.ready .venv-envoy/.ready ## Run the real vllm-router between stand-ins for disaggregated servers, and behind an endpoint
	VLLM_ROUTER=$(CURDIR)/.venv-router/bin/vllm-router ENVOY=$(CURDIR)/.venv-envoy/bin/envoy $(BIN)/python -m pytest $(WORKERS) tests/test_vllm_router.py tests/test_vllm_router_operation.py tests/test_vllm_router_group.py tests/test_endpoint_router.py

envoy: .venv/.dev .venv-envoy/.ready ## Run the real Envoy, which is the proxy of endpoints, between clients and slow stand-ins for servers and pickers
	ENVOY=$(CURDIR)/.venv-envoy/bin/envoy $(BIN)/python -m pytest $(WORKERS) tests/test_endpoint_proxy.py tests/test_endpoint_body.py tests/test_endpoint_paths.py tests/test_endpoint_picker.py tests/test_endpoint_queues.py

engine: .venv/.dev .venv-engine/libcuda.so.1 ## Ask the start-up code of the real vLLM about COUNT servers drawn by SEED; 6 GB, and a C compiler
	ENGINE=$(CURDIR)/.venv-engine/bin/python SEED=$(SEED) COUNT=$(COUNT) $(BIN)/python -m pytest tests/test_engine_start.py

soak: .venv/.dev ## Repeat a TIER (router, cluster, …) TIMES over, with LOAD=1 on a busy machine, and tell what did not always pass
	@$(BIN)/python tests/support/soak.py $(TIER) $(TIMES) $(LOAD)

docs: .venv-docs/.ready ## Build the documentation site into build/site; a dead link or an unlisted page is an error
	@.venv-docs/bin/python -m sphinx --jobs auto --nitpicky --fail-on-warning --keep-going -q docs build/site
	@echo "build/site/index.html"

format: .venv/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev cluster-tools ## Measure speed and memory of preview, rules, cost and time, search, diff and simulation, as ratios
	$(BIN)/python bench/preview.py
	$(BIN)/python bench/rules.py
	$(BIN)/python bench/cost_and_time.py
	$(BIN)/python bench/search.py
	$(BIN)/python bench/diff.py
	$(BIN)/python bench/simulate.py

mutants: .venv/.dev ## Change one operator or constant in each of COUNT modules drawn by SEED, and name the test that notices
	$(BIN)/python bench/mutants.py --seed $(or $(SEED),1) --count $(or $(COUNT),24)

golden: .venv/.dev ## Regenerate golden files and print what changed
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -m 'not cluster' $(WORKERS)

refresh: .venv/.dev ## Derive a table of shipped data from its source again, by its name in TABLE; without one, list the tables
	@$(BIN)/python -m refresh $(TABLE) $(FROM)

newer: .venv/.dev ## List pins that have a newer release on PyPI or in Go's module proxy
	@$(BIN)/python -m refresh._newer

release: .venv/.dev ## Write the graphs of the version in pyproject.toml, which later changes are compared with (docs/releases.md)
	$(BIN)/python tests/support/released.py

clean: ## Remove what these commands made
	rm -rf .venv .venv-checkov .venv-router .venv-envoy .venv-engine .venv-docs build dist components/*.egg-info

.venv/.runtime: extra := doctor
.venv/.dev: extra := dev
.venv/.runtime .venv/.dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; set PYTHON=…")'
	@echo "setting up .venv (once, about a minute)" >&2
	@$(PYTHON) -m venv .venv
	$(call install,.venv,-c constraints.txt -e '.[$(extra)]')
	@touch .venv/.runtime $@

# The files list every package, dependencies included, so pip resolves nothing.
.venv-checkov/.ready .venv-router/.ready .venv-envoy/.ready .venv-engine/.ready .venv-docs/.ready: .venv-%/.ready: tests/%_requirements.txt
	@echo "setting up .venv-$* (once, about a minute)" >&2
	@$(PYTHON) -m venv --clear .venv-$*
	$(call install,.venv-$*,--no-deps -r $<)
	@touch $@

.venv-engine/libcuda.so.1: refresh/engine/libcuda.c .venv-engine/.ready
	$(CC) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<
