# Two commands: `make demo` and `make test`. Both make .venv first, which takes a minute or two once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles the files that it imports, a tenth of those that are installed.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-compile \
	--constraint .ci/constraints.txt
MANIFESTS := pyproject.toml $(wildcard plugins/*/pyproject.toml) .ci/constraints.txt
PLUGINS := $(wildcard plugins/etdev-*/)
# What `make compat` tests beside .ci/constraints.txt: the oldest ExecuTorch supported, also with the
# torch that TensorRT's runtime goes with, and the newer torches. `make compat-torch-2.15.0` makes and
# runs one of them.
COMPAT := executorch-1.4.1 executorch-1.4.1+torch-2.14.1 torch-2.14.1 torch-2.15.0
# Containers often set it, and every process of the tests would compile the whole of torch anew.
unexport PYTHONDONTWRITEBYTECODE
# Only their Python is tested, without what it depends on, and each in a folder of its own.
TORCH_TENSORRT := 2.13.0 2.14.0

.PHONY: demo test wheels matrix corpus plain suites survey decoders fuzz gpu gpu-plan carried arm bench latency \
	compat clean

demo: $(VENV)/demo
	@mkdir -p build
	@PYTHONPATH=tests $(BIN)/python -m support.demo build/minilm.pte

test: $(VENV)/test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest

# A wheel of each distribution, for `pip install dist/etdev-*.whl dist/etdev_cpu-*.whl` anywhere.
wheels: $(VENV)/made
	rm -rf dist
	$(BIN)/python -m pip --disable-pip-version-check -q wheel $(WHEEL_OPTIONS) --no-deps \
		--wheel-dir dist . $(addprefix ./,$(PLUGINS))

# All models of tests/behaviour/test_matrix.py and tests/support/zoo; `make test` runs some of them.
matrix: $(VENV)/test
	$(BIN)/pytest tests/behaviour/test_matrix.py tests/behaviour/test_opdb.py tests/behaviour/test_zoo.py -m ''

# Digests of all that tests/support/corpus lowers. Before a change that should alter no .pte, copy them, and
# afterwards: PYTHONPATH=tests .venv/bin/python -m support.corpus compare BEFORE.json build/corpus.json
corpus: export PYTHONPATH := tests
corpus: $(VENV)/test
	$(BIN)/python -m support.corpus digest build/corpus.json

# The quick slice with and without shortcuts (etdev/upstream/shortcuts): every .pte must be the same.
# Plans may differ in names of nodes where a model writes in place.
plain: export PYTHONPATH := tests
plain: $(VENV)/test
	$(BIN)/python -m support.corpus digest build/quick.json --slice quick
	ETDEV_PLAIN=1 $(BIN)/python -m support.corpus digest build/plain.json --slice quick
	$(BIN)/python -m support.corpus compare build/quick.json build/plain.json --without-texts

# ExecuTorch's own tests that tests/suites runs through etdev, and what else takes long; `make test`
# runs a slice of each. Then all models in all orders, to tests/benchmarks/results/survey.json, with
# their numbers in tests/benchmarks/SURVEY.md: `make survey` goes on where it was left. Parts of them
# are judged on emulated processors, too, where the emulator is: qemu-user of Debian's backports has
# all three of them.
suites: $(VENV)/test
	$(BIN)/pytest -m suite
	$(MAKE) survey decoders

survey: export PYTHONPATH := tests
survey: $(VENV)/test
	$(BIN)/python -m survey

# Decoders of transformers in several orders of plugins, to plugins/etdev-llm/DECODERS.md; those of
# another commit are measured again, and it goes on where it was left.
decoders: export PYTHONPATH := tests
decoders: $(VENV)/test
	$(BIN)/python -m support.decoders
	$(BIN)/python -m support.decoders --page

# Hostile files, many more than `make test` tries; `make fuzz FUZZ=20000` tries that many of each.
FUZZ := 2000
fuzz: export ETDEV_FUZZ := $(FUZZ)
fuzz: $(VENV)/test
	$(BIN)/pytest -m fuzz

# The tests that need an NVIDIA GPU, each in an environment with the runtime that it needs, which is
# made where there is a GPU; their numbers, with its name and all versions, land in build/gpu.json.
# `make gpu-plan` says on any machine which tests would run, and why not the others.
gpu gpu-plan carried: export PYTHONPATH := tests
gpu: $(VENV)/test
	$(BIN)/python -m support.gpu build/gpu.json

gpu-plan: $(VENV)/test
	$(BIN)/python -m support.gpu --plan

# Wheels for a bare machine with a GPU and torch: see tests/support/gpu/__main__.py.
carried: $(VENV)/test
	$(BIN)/python -m support.gpu --carry build/carried

# Programs for aarch64 in an emulator, which `make test` tries a few of where the tools are.
arm: $(VENV)/test
	@which aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null || \
		{ echo "apt install g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }
	$(BIN)/pytest plugins/etdev-cpp/tests plugins/etdev-llm/tests/test_commands.py \
		-k "place or processor" -m ''

# In turn, since they would disturb each other; the numbers land in build/bench.
bench: export PYTHONPATH := tests
bench: $(VENV)/test
	$(BIN)/python -m benchmarks.command
	$(BIN)/python -m benchmarks.loop
	$(BIN)/python -m benchmarks.lowering
	$(BIN)/python -m benchmarks.verifying
	$(BIN)/python -m benchmarks.cache
	$(BIN)/python -m benchmarks.executors
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.tune

# etdev's default plan against ExecuTorch's own path and eager, to tests/benchmarks/LATENCY.md, and
# predicted against measured times, to PREDICTION.md. It goes on where it was left.
latency: export PYTHONPATH := tests
latency: $(VENV)/test
	$(BIN)/python -m benchmarks.latency --missing --page
	$(BIN)/python -m benchmarks.prediction --missing --page

compat: suites $(addprefix compat-,$(COMPAT))

# With ExecuTorch's own tests, which `make test` runs a slice of.
compat-%: $(VENV)-%/made
	$(VENV)-$*/bin/pytest -m 'not matrix or suite'

clean:
	rm -rf $(VENV) $(VENV)-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Environments grow: what the demo needs is a part of what the tests need.
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "etdev needs Python 3.10 to 3.13; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and pinned: a free choice takes a CUDA build of several GB.
$(VENV)/demo: $(VENV)/made $(MANIFESTS)
	@echo "installing into $(VENV) ..."
	$(PIP) torch
	$(PIP) --editable '.[demo]' $(addprefix --editable ./,$(PLUGINS))
	@touch $@

$(VENV)/test: $(VENV)/demo
	$(PIP) --editable '.[demo,test]'
	$(call torch-tensorrt,$(VENV))
	@touch $@

# As above, with other versions of some distributions, such as executorch-1.4.1+torch-2.14.1; with
# another torch goes another triton. Left out are the plugins that need a newer ExecuTorch.
SPACE := $(subst ,, )
VERSIONS = $(subst -,==,$(subst +, ,$*))
NAMES = $(foreach pin,$(VERSIONS),$(firstword $(subst ==, ,$(pin)))) $(if $(filter torch-%,$(subst +, ,$*)),triton)
$(VENV)-executorch-1.4.1%: NEWER := plugins/etdev-llm/
.PRECIOUS: $(VENV)-%/made
$(VENV)-%/made: $(MANIFESTS)
	$(PYTHON) -m venv $(@D)
	@grep -v -E '^($(subst $(SPACE),|,$(strip $(NAMES))))==' .ci/constraints.txt > $(@D)/constraints.txt
	@printf '%s\n' $(VERSIONS) >> $(@D)/constraints.txt
	@echo "installing into $(@D) ..."
	$(@D)/bin/pip -qq install --no-compile --constraint $(@D)/constraints.txt torch
	$(@D)/bin/pip -qq install --no-compile --constraint $(@D)/constraints.txt \
		--editable '.[demo,test]' $(addprefix --editable ./,$(filter-out $(NEWER),$(PLUGINS)))
	$(call torch-tensorrt,$(@D))
	@touch $@

# The plugin's tests skip where there is no wheel, such as beside Linux.
define torch-tensorrt
	@for version in $(TORCH_TENSORRT); do \
		rm -rf $(1)/torch-tensorrt-$$version; \
		$(1)/bin/python -m pip --disable-pip-version-check -qq install --no-compile --no-deps \
			--only-binary :all: --target $(1)/torch-tensorrt-$$version \
			torch-tensorrt==$$version || echo "no torch-tensorrt $$version for this machine"; \
	done
endef
