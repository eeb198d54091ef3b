# Everything that development and continuous integration run.
#   make setup   virtual environment in .venv with the package, its tests and its linters
#   make test    the test suite
#   make thorough  the tests that take long, which `make test` leaves out
#   make check   formatting, lint, types, import arrows; `check-python` and `check-core` are its halves
#   make sanitize  queue, stores, kernels and whole runs under the sanitizers
#   make sanitized  the builds for it alone, which need nothing but a compiler
#   make soak    runs that are killed, stopped and spoilt, and have to come out right
#   make docs    the documentation in build/docs; warnings are errors
#   make wheel  wheels for old systems and both processors in dist/, audited and tested
#   make experiments  the experiments of the papers, their records and pages, committed
#   make demo    a short run that shows the package at work
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BACK_END := $(VENV)/.back-end
NEEDED := $(VENV)/.needed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SANITIZED := build/sanitize/.built
CORE := $(shell find core -type f)
TEMPLATES := src/outgrid/codegen/templates
TEMPLATES_CHECKED := $(wildcard tests/unit/codegen/templates*.cpp)
CXX_SOURCES := $(filter %.cpp %.h,$(CORE)) $(shell find $(TEMPLATES) -name '*.hpp') $(TEMPLATES_CHECKED)
CXX_STRICT := -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror

# One process more than there are cores: many tests wait for the disk.
PYTEST := $(BIN)/python -m pytest -q --numprocesses $$(( $$(nproc) + 1 )) --maxprocesses 8 --dist worksteal

.PHONY: setup test thorough check check-python check-core sanitize sanitized soak format docs wheel experiments demo clean

setup: $(NEEDED) $(STAMP)

$(BIN)/python:
	tools/system-packages.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)

# The build back end is installed first so that the package builds without an isolated environment:
# a change in core/ then recompiles only what it touches. A pip of today takes half the time of the
# one that comes with Python 3.11. None of them compiles modules: Python does so with those that are
# imported.
$(BACK_END): $(BIN)/python
	$(PIP) 'pip>=25' 'scikit-build-core>=0.10' 'nanobind>=2.4' \
	    $$(command -v cmake >/dev/null || echo cmake)
	touch $@

# These come while the core compiles, which needs none of them.
$(NEEDED): $(BACK_END) tools/requirements.py pyproject.toml benchmarks/pyproject.toml
	$(BIN)/python tools/requirements.py test dev docs >$@.txt
	$(PIP) --requirement $@.txt
	touch $@

$(STAMP): $(BACK_END) pyproject.toml benchmarks/pyproject.toml CMakeLists.txt $(CORE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-deps --no-build-isolation \
	    --editable . --editable ./benchmarks
	touch $@

test: setup
	$(PYTEST) -m 'not thorough'

thorough: setup
	$(PYTEST) -m thorough

check: check-python check-core

check-python: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

check-core: setup
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	for source in $(wildcard core/folding/*.cpp core/io/*.cpp core/memory/*.cpp core/packing/*.cpp core/pager/*.cpp core/remote/*.cpp core/team/*.cpp); do \
	    case $$source in */engine_uring.cpp) [ -e /usr/include/liburing.h ] || continue;; esac; \
	    $(CXX) $(CXX_STRICT) -Icore $$source || exit 1; \
	done
	# What is compiled for wide vectors shares no function with what is not.
	[ "$$(uname -m)" != x86_64 ] || for source in $(wildcard core/packing/*_avx*.cpp); do \
	    object=$$(mktemp); \
	    $(CXX) -std=c++20 -O1 -mavx512f -Icore -c $$source -o $$object || exit 1; \
	    shared=$$(nm -C $$object | grep ' W '); rm $$object; \
	    [ -z "$$shared" ] || { echo "$$source shares: $$shared"; exit 1; }; \
	done
	for source in $(TEMPLATES_CHECKED); do for real in float double; do \
	    $(CXX) $(CXX_STRICT) -march=native -Wno-psabi -I$(TEMPLATES) -DREAL=$$real $$source || exit 1; \
	done; done

# These builds have copies of the modules. They go beside `setup`, which keeps one processor busy.
sanitized: $(SANITIZED)

$(SANITIZED): $(BACK_END) tools/sanitize.sh pyproject.toml CMakeLists.txt $(CORE) $(shell find src -type f -not -name '*.pyc')
	nice tools/sanitize.sh build $(BIN)/python
	touch $@

sanitize: setup sanitized
	tools/sanitize.sh test $(BIN)/python

soak: setup
	$(BIN)/python tools/soak.py --minutes $(or $(MINUTES),5)

format: setup
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -j auto -d build/doctrees docs build/docs

wheel:
	$(PYTHON) tools/wheel/build.py

# Up to three hours, goes on where it was interrupted; keeps the records, draws the pages, commits.
experiments: setup
	$(BIN)/outgrid bench all --full --with-swap --resume --scratch $(or $(SCRATCH),build) --results build/experiments
	$(BIN)/python tools/measured.py --take build/experiments
	git add benchmarks/records docs
	git commit -m "Record the experiments of the papers"

demo: setup
	$(BIN)/python examples/tsunami

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
