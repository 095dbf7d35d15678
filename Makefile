# Every target makes the virtual environment it needs. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_BIN := $(VENV)-bench/bin
CONSTRAINTS ?= constraints.txt
SETUP := pyproject.toml $(CONSTRAINTS)
RUFF_PATHS := src tests benchmarks paper examples docs

.PHONY: demo check test test-fast coverage test-readme test-gpu attack lint leaderboard docs docs-serve screenshots bench bench-check soak chromium explorers paper-quick clean clean-kernels help

export NO_MKDOCS_2_WARNING := 1  # the theme announces its successor where warnings would be

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/ready  ## set up and run the main job
	$(BIN)/secret-rl demo

check: lint test-fast  ## lint and run the fast tests: two minutes on two cores

test-fast: $(VENV)/ready  ## every test that is not marked slow
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

test: lint chromium  ## set up, lint and run every test
	$(BIN)/pytest -n 2 --dist loadgroup

chromium:  ## the browser that tests of pages run in, installed if there is none
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
	  if [ "$$(id -u)" = 0 ]; then root=; elif command -v sudo >/dev/null; then root=sudo; \
	  else echo "tests need chromium, and installing it needs root: apt-get install chromium" >&2; exit 1; fi; \
	  $$root apt-get update -q && $$root apt-get install -q -y --no-install-recommends chromium; }

coverage: chromium $(VENV)/ready  ## every test, and the share of lines in src that they reach
	$(BIN)/pytest -n 2 --dist loadgroup --cov=secret_rl --cov-report=term

test-gpu: $(VENV)/ready  ## what only a GPU can show: a fit that is resumed there ends with the same weights
	@$(BIN)/python -c 'import sys, torch; torch.cuda.is_available() or sys.exit("test-gpu needs a GPU with CUDA")'
	$(BIN)/pytest tests/credit/secret/test_training.py

explorers: $(VENV)/ready  ## credit explorer pages of Triggers, MiniGrid, keys and doors, and a garden, in runs/explorers
	$(BIN)/python docs/explorers.py

test-readme:  ## follow the README, word for word, on a fresh clone with an environment of its own
	$(PYTHON) tests/follow_readme.py

docs: $(VENV)/ready  ## build the documentation into build/site
	$(BIN)/mkdocs build --strict

docs-serve: $(VENV)/ready  ## show the documentation while you write it
	$(BIN)/mkdocs serve

screenshots: docs chromium  ## the main pages on a desktop, on a phone and in the dark, in runs/screenshots
	$(BIN)/python docs/screenshots.py

lint: $(VENV)/ready  ## formatting, style, types and who imports whom
	$(BIN)/ruff format --check $(RUFF_PATHS)
	$(BIN)/ruff check $(RUFF_PATHS)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)-bench/ready  ## measure speed and memory beside peers; writes benchmarks/results
	$(BENCH_BIN)/python -m benchmarks

bench-check: $(VENV)/ready  ## measure ratios again; an error where one is more than 20 % worse than the committed one
	$(BIN)/python -m benchmarks check

soak: $(VENV)/ready  ## 10,000 episodes of the 3D world: memory stays level and nothing is left
	$(BIN)/python -m benchmarks soak

attack: $(VENV)/ready  ## kills, damaged files, concurrent writers, full disks: nothing is lost or misread
	$(BIN)/python -m tests.attack

leaderboard: $(VENV)/ready  ## compare all credit methods on all tasks, for docs/leaderboard: hours on two cores
	$(BIN)/secret-rl benchmark --explorers --out runs/benchmark
	cp runs/benchmark/*.md runs/benchmark/*.html runs/benchmark/*.csv runs/benchmark/*.json runs/benchmark/*.png docs/leaderboard

paper-quick: $(VENV)/ready  ## the paper's results at a small size
	$(BIN)/python -m paper --quick --jobs 2

$(VENV)/ready: $(SETUP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

$(VENV)-bench/ready: pyproject.toml benchmarks/constraints.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(BENCH_BIN)/pip install -q -c benchmarks/constraints.txt -e '.[bench]'
	touch $@

clean-kernels:  ## remove the compiled kernels, for after a change to the rules that others inline
	find src -name '*.nb[ci]' -delete

clean: clean-kernels  ## remove environments and caches
	rm -rf $(VENV) $(VENV)-bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
