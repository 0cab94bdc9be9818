# Everything a user or developer runs. Needs only Python >= 3.11 and make; the rest goes into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
# Nothing is compiled at once: that takes two minutes for all modules, and most of them are never imported. What is
# imported is compiled once, then: machines whose environment forbids Python to keep that would compile all of torch and
# TensorFlow again in every process.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile -c constraints.txt
# The versions are pinned, so a stamp is out of date only when these change.
PINS := pyproject.toml constraints.txt
# Two cores: two processes, one thread each. `make test WORKERS=0` runs in one process.
WORKERS ?= 2
export OMP_NUM_THREADS ?= 1
# Compiling is most of what the fast tests do on JAX, and takes less than half the time if XLA optimizes little. The slow
# tests and those of learning run what users run.
XLA_QUICK := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

.PHONY: help train test lint style types doctest fast slow learning checks mutants bench browser clean

help:  ## Lists the commands.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

train: $(VENV)/.installed-train  ## Trains PPO on CartPole-v1 on JAX, with pictures and metrics in runs/.
	OMP_NUM_THREADS=$$(getconf _NPROCESSORS_ONLN) $(BIN)/rlweave train ppo --env CartPole-v1 --backend jax

test:  ## Everything that CI checks.
	$(MAKE) --jobs=2 style doctest
	$(MAKE) fast
	$(MAKE) --jobs=2 slow types  # slow tests wait for processes now and then

lint: style types  ## Style, types, layers, size of files.

style: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_structure.py

types: $(VENV)/.installed-dev
	$(BIN)/mypy

doctest: $(VENV)/.installed-dev  ## The examples in docstrings.
	$(BIN)/pytest -q --doctest-modules rlweave

fast: $(VENV)/.installed-dev  ## The tests that take a few seconds each at most.
	XLA_FLAGS="$(XLA_QUICK) $${XLA_FLAGS:-}" \
	  $(BIN)/pytest -q -n $(WORKERS) --maxschedchunk 16 -m "not slow and not learning"

slow: $(VENV)/.installed-dev  ## Long tests, and learning with one seed.
	$(BIN)/pytest -q -n $(WORKERS) --maxschedchunk 2 -m "slow or learning" --durations=10

learning: $(VENV)/.installed-bench  ## Learning with all seeds; writes curves and numbers into docs/.
	$(BIN)/python benchmarks/learning.py --output docs
	$(BIN)/python benchmarks/learning.py --output docs --engines ray --seeds 0 1 2 --jobs 1 --until-clear
	$(BIN)/python benchmarks/learning_mujoco.py

checks: $(VENV)/.installed-dev  ## Everything that is registered on all backends; the whole zoo of spaces; the table in docs/checks.md.
	$(BIN)/rlweave check --all --backend all
	$(BIN)/pytest -q -n $(WORKERS) -m thorough --thorough
	$(BIN)/python -m tools.checks_table

mutants: $(VENV)/.installed-dev  ## Slips in components and graphs that no test notices, into docs/; goes on where it was cut.
	XLA_FLAGS="$(XLA_QUICK) $${XLA_FLAGS:-}" nice -n 10 $(BIN)/python -m tools.mutation --resume

bench: $(VENV)/.installed-bench  ## Speed against hand-written code and peers; a table each.
	for script in graph_update graph_act act_throughput graph_build graph_scaling train_fused train_ppo_cartpole \
	    cold_start act_latency serve_latency train_ppo_pong train_dqn_pong train_dqn_cartpole train_sac \
	    flow_items flow_apex flow_impala flow_memory flow_recovery multi_learner single_learner_fine \
	    parameter_server replicas simulate; do \
	  $(BIN)/python benchmarks/$$script.py; \
	done

browser:  ## What the page in docs/browser needs, by npm; as root on Debian also Chromium, in which its test runs.
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=""; \
	  for program in chromium npm; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	  [ -z "$$missing" ] || { apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null; }; \
	fi
	cd docs/browser && npm install --silent

clean:  ## Removes the environment and caches; runs/ stays.
	rm -rf $(VENV) docs/browser/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------ environment

# The first Python that is new enough and can make environments; PYTHON=... overrides.
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$($$python --version)"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "rlweave needs Python >= 3.11 with the venv module (on Debian: apt install python3-venv); " \
	  "say which with make PYTHON=/path/to/python3" >&2; exit 1

$(VENV)/.installed-train: $(PINS) | $(BIN)/python
	$(PIP) -e '.[jax,plot,tensorboard]'
	@touch $@

$(VENV)/.installed-dev: $(PINS) | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed-train

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(PIP) -e '.[dev,bench]'
	@touch $@
