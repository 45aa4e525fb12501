# demo, test, lint, bench and docs each set up what they need in .venv first.
PYTHON ?= python3
VENV := .venv
BASE := $(VENV)/.base
READY := $(VENV)/.ready
BENCH := $(VENV)/.bench
DOCS := .venv-docs
INSTALL := .venv-install
HARBOR := .venv-harbor
FRAMEWORKS := .venv-frameworks
HARBOR_PYTHON ?= python3.13
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint format bench docs install harbor frameworks validators clean
.DEFAULT_GOAL := demo

demo: $(BASE)
	$(VENV)/bin/fewsteps demo

test: $(READY)
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal -m "not slow"
	$(VENV)/bin/python -m pytest -m slow
	NUMBA_DISABLE_JIT=1 $(VENV)/bin/python -m pytest -n 2 -m "not slow" tests/occupancy/test_occupancy_*.py

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(READY)
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

# Harbor in a Python of its own, for the tests that run it; without it `make test` skips them.
harbor: $(HARBOR)/.ready

# inspect_ai, verifiers and OpenEnv in environments of their own, likewise.
frameworks: $(FRAMEWORKS)/inspect/.ready $(FRAMEWORKS)/verifiers/.ready

bench: $(BENCH)
	$(VENV)/bin/python -m benchmarks

# The install line of the README, as it is printed, in an environment of its own: games are played, spaCy is not there.
install:
	$(PYTHON) -m venv --clear $(INSTALL)
	. $(INSTALL)/bin/activate && sed -n 's/^    \(pip install.*\)/\1/p' README.md | sh -ex
	! $(INSTALL)/bin/python -c "import spacy" 2>/dev/null
	$(INSTALL)/bin/alfworld-download --help >/dev/null
	$(INSTALL)/bin/fewsteps check alfworld --tasks train:1

# The site of docs/ into site/, every warning an error; its notebook is executed.
docs: $(DOCS)/.ready
	$(DOCS)/bin/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) $(DOCS) $(INSTALL) site $(HARBOR) $(FRAMEWORKS) .venv-validators .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The base install, in the lock's versions: enough for the demo, and for planning.
$(BASE): locks/build.txt locks/dev.txt pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(None if sys.version_info >= (3, 11) else 'fewsteps needs Python >= 3.11: run make PYTHON=python3.11')"
	@echo "Installing fewsteps into $(VENV), once: this takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps -r locks/build.txt
	$(PIP) -c locks/dev.txt --no-build-isolation -e .
	touch $@

# Every extra, without dependencies: the lock lists them all, and leaves out a part of TextWorld's that
# ALFWorld does not use (spacy, 230 MB).
$(READY): $(BASE) locks/torch.txt
	$(PIP) --no-deps -r locks/dev.txt
	$(PIP) -c locks/dev.txt -r locks/torch.txt
	touch $@

# Validators of what fewsteps writes and renders, in an environment of their own; verl's data sets in another,
# which takes torch, pandas and ray from .venv.
validators: locks/validators.txt locks/verl.txt $(READY)
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | grep '^$(HARBOR_PYTHON:python%=%)\.' | tail -1) \
		$(HARBOR_PYTHON) -m venv --clear .venv-validators
	.venv-validators/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r locks/validators.txt
	$(VENV)/bin/python -m venv .venv-validators/verl
	.venv-validators/verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r locks/verl.txt
	$(VENV)/bin/python -c "import site; print(site.getsitepackages()[0])" \
		> "$$(echo .venv-validators/verl/lib/python*/site-packages)/ours.pth"

# What builds the site; the package's dependencies, for the notebook, are those of .venv.
$(DOCS)/.ready: locks/docs.txt $(BASE)
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r locks/docs.txt
	$(VENV)/bin/python -c "import site; print(site.getsitepackages()[0])" \
		> $$($(DOCS)/bin/python -c "import site; print(site.getsitepackages()[0])")/fewsteps.pth
	touch $@

# The libraries that the benchmarks compare with.
$(BENCH): $(READY) locks/bench.txt
	$(PIP) --no-deps -r locks/bench.txt
	touch $@

# Harbor needs Python >= 3.12 (make HARBOR_PYTHON=python3.12 harbor), which pyenv may have without being active.
$(HARBOR)/.ready: locks/harbor.txt
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | grep '^$(HARBOR_PYTHON:python%=%)\.' | tail -1) \
		$(HARBOR_PYTHON) -m venv --clear $(HARBOR)
	$(HARBOR)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r locks/harbor.txt
	touch $@

$(FRAMEWORKS)/%/.ready: locks/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r $<
	touch $@
