# `make demo` and `make test` set everything up by themselves; `make help` lists the targets.

PYTHON ?= python3
EXTRAS := control,doom,cluster,report,dev
WORKERS ?= 2
BIN := .venv/bin
INSTALLED := .venv/.installed
RUN := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv and install the pinned versions; instant when nothing has changed

$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) > /dev/null \
		|| { echo "$(PYTHON) was not found: install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit("aql needs Python 3.11 or newer, but $(PYTHON) is %d.%d: name another one, as in make setup PYTHON=python3.11" % v[:2] if v < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]' --constraint constraints.txt
	@touch $@

demo: setup ## train on cartpole-swingup for some minutes, then draw its curve, film it and put both on a page
	$(BIN)/aql train control/cartpole-swingup --preset fast --steps 100000 --seed 1 --out $(RUN)
	$(BIN)/aql plot $(RUN) -o $(RUN)/curve.png
	-$(BIN)/aql watch $(RUN) -o $(RUN)/film.mp4
	$(BIN)/aql report $(RUN) -o $(RUN)/report.html
	@echo "The curve is $(RUN)/curve.png, the film $(RUN)/film.mp4; both are on the page $(RUN)/report.html."

# Each worker has one XLA thread, so that workers do not compete for cores.
test: lint ## lint, then run all tests
	PJRT_NPROC=1 $(BIN)/pytest -n $(WORKERS) --dist loadfile

lint: setup ## ruff, mypy, the links and examples of the documentation
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python docs/check.py

bench: setup ## run the benchmarks of speed, which print ratios
	@for script in $(wildcard benchmarks/*_speed.py); do echo "$$script"; $(BIN)/python "$$script" || exit 1; done
