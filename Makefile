# Two commands are enough: `make demo` and `make test`. Each first installs into .venv what it needs.

PYTHON ?= python3
VENV ?= .venv
# Test processes. Each holds its arithmetic to one thread, see `test`.
JOBS ?= 2
# Anything else for pip (another build of torch, say), and for the command a target runs.
PIP_FLAGS ?=
ARGS ?=
# Experiments in order of value, and the longest time that `make sweeps` spends on each before it goes on to the next.
SWEEPS ?= table1-cifar10-mid hardening seeds-mnist hardening-ablation table1-mnist-laptop table1-mnist figure1a figure1b selection training table1-cifar10-laptop
BUDGET ?= 2h
# Other results that have cells of an experiment.
SHARED := selection:table1-mnist-laptop training:table1-mnist-laptop training:table1-mnist table1-mnist-laptop:hardening
# --force: packed results may lose finished runs of settings that have changed since.
PACK_FLAGS ?=

BIN := $(VENV)/bin
MADE := $(VENV)/.made
SIM := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PINS := pyproject.toml constraints.txt src/mabrfl/_version.py

# The simulator and the slices of vectors.py bring their own processes and threads; more below them only
# fight for the cores. Pictures in tests need no screen.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg

ifdef MABRFL_DATA
export MABRFL_DATA
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-busy test-flower-versions test-nvflare fuzz soak bench bench-peers results sweeps docs lint format wheel clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  Settings: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) PIP_FLAGS= ARGS= BUDGET=$(BUDGET) PACK_FLAGS= MABRFL_DATA=$(MABRFL_DATA)"

demo: $(SIM) ## MAB-RFL against FedAvg under attack, on digits, in about a minute (no network once set up)
	$(BIN)/mabrfl demo $(ARGS)

test: $(DEV) ## All tests but the slow ones
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(DEV) ## The slow tests: whole runs on MNIST (set MABRFL_DATA, or have them fetched) and of Flower
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m slow $(ARGS)

# Each loop ends with the shell that has started it.
test-busy: $(DEV) ## The same tests while every core is kept busy by something else
	@for core in $$(seq $$(getconf _NPROCESSORS_ONLN)); do \
		sh -c 'while kill -0 $$PPID 2>/dev/null; do :; done' & \
	done; \
	$(MAKE) --no-print-directory test

test-flower-versions: ## The Flower strategy with every release in tests/flower_versions.py, each in build/flower (needs the network)
	$(ONE_THREAD) $(PYTHON) tests/flower_versions.py build/flower

test-nvflare: ## The NVFlare aggregator in NVFlare's simulator, with an environment of its own in build/nvflare (needs the network)
	[ -x build/nvflare/bin/python ] || $(PYTHON) -m venv build/nvflare
	build/nvflare/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -e '.[nvflare]' scikit-learn pytest hypothesis
	$(ONE_THREAD) build/nvflare/bin/python -m pytest -q tests/nvflare $(ARGS)

fuzz: $(DEV) ## 2,000 mutations of each kind of file: each is read, or refused with an error of ours (ARGS='--seed N' repeats one)
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python tests/fuzzing.py $(ARGS)

soak: $(DEV) ## A Flower deployment for 100 rounds, killed, lied to and watched; about an hour (needs Debian's prometheus)
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python tests/soak.py $(ARGS)

bench: $(DEV) ## Speed of starting, of a round, of the server step and of the Flower strategy, each as a ratio
	$(BIN)/python benchmarks/run.py $(ARGS)

# Each by itself: one that cannot be installed is named and left out. krum asks for Python 3.12 and runs on 3.11, byzpy for an older torch.
bench-peers: ## Flower's simulation, fluke, FedLab, PyTorch loops; ByzFL, krum: beside ours, in build/peers (needs the network)
	[ -x build/peers/bin/python ] || $(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) -e '.[sim]'
	for peer in torchvision fluke-fl fedlab byzfl 'flwr[simulation]' '--ignore-requires-python krum' '--no-deps byzpy'; do \
		build/peers/bin/python -m pip install -q --disable-pip-version-check $(PIP_FLAGS) $$peer || echo "!! cannot install $$peer"; \
	done
	$(ONE_THREAD) build/peers/bin/python benchmarks/peers.py $(ARGS)

results: $(SIM) ## The tables and figures in results/ and the leaderboard, made anew from the committed records
	$(BIN)/mabrfl render $(or $(wildcard results/*.json.gz),$(error there are no results/*.json.gz))
	$(BIN)/mabrfl arena --render docs

# Code 9: some cells failed, which the packed results say as well. After anything else there may be nothing to pack.
sweeps: $(SIM) ## Go on with the experiments from results/ and put what is done there; at most BUDGET for each
	@left=; for name in $(SWEEPS); do \
		packed=results/$$name.json.gz; from=; \
		for one in $$name:$$name $(SHARED); do \
			other=results/$${one#*:}.json.gz; \
			[ $${one%:*} != $$name ] || [ ! -e $$other ] || from="$$from --from $$other"; \
		done; \
		$(BIN)/mabrfl sweep experiments/$$name.toml $$from --time-budget $(BUDGET) $(ARGS); \
		code=$$?; [ $$code -eq 0 ] || [ $$code -eq 9 ] || exit $$code; \
		$(BIN)/mabrfl pack $(PACK_FLAGS) runs/$$name $$packed && $(BIN)/mabrfl render $$packed || left="$$left $$name"; \
	done; \
	[ -z "$$left" ] || { echo "Not packed or rendered, see above:$$left. What ran is in runs/." >&2; exit 1; }

# Material says on every start that it ends in 2027; Zensical, which follows it, reads the same mkdocs.yml.
docs: $(DEV) ## Build the site into build/site: tutorial, how-tos, explanations, results, reference (no network)
	NO_MKDOCS_2_WARNING=1 PYTHONWARNINGS=ignore::DeprecationWarning $(BIN)/mkdocs build --quiet --strict $(ARGS)
	@echo 'Read it with search: $(BIN)/python -m http.server -b 127.0.0.1 -d build/site 8000, then http://127.0.0.1:8000'

lint: $(DEV) ## Style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(DEV) ## Rewrite the code in the house's format, and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel: $(DEV) ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean: ## Remove caches and builds (neither .venv nor your runs)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "mabrfl needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
		echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments: its modules venv and ensurepip are missing." >&2; \
		echo "On Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo 'Setting up $(VENV) in the versions of constraints.txt: a few minutes, once.'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Order-only: the environment is made once, whatever its age; the packages in it follow the pins.
# mabrfl[sim] is the simulator with its pictures; mabrfl[dev] has all extras and the tools.
$(SIM): $(PINS) | $(MADE)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[sim]'
	@touch $@

$(DEV): $(PINS) | $(MADE)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e '.[dev]'
	@touch $(SIM) $@
