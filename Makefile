# make: set-up, then the demo experiment.  make test: set-up, then the tests.  make help: other targets.
# No target changes the system's Python: all packages go to .venv, .venv-sandbox and .venv-uv (the installer). A Python
# 3.11 that uv fetches goes to .python.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH ?= auto
RUN := .venv/bin/snakemake
INSTALL := "$(PYTHON)" envs/install.py
# Bubblewrap is required only if it is the backend of the sandboxes.
BWRAP := $(shell sed -n 's/^backend: *bubblewrap *$$/bwrap/p' configs/config.yaml)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_DISABLE_TELEMETRY := 1
# The user's settings for other programs, which would change the results here.
unexport PYTHONHOME PYTHONPATH PYTHONSAFEPATH PYTHONOPTIMIZE PYTHONWARNINGS PYTHONDONTWRITEBYTECODE SNAKEMAKE_PROFILE

.PHONY: all real rl rl-seeds debugger help setup test test-full test-verl ci ci-here check peer sb-cli modal verl swe-agent clean

all: setup
	$(RUN)

# A pretrained model learns to repair real packages.
real: setup
	$(RUN) --config experiment=real

# A model learns from the results of its own attempts; with three seeds, as a table.
rl: setup
	$(RUN) --config experiment=demo-rl

rl-seeds: setup
	$(RUN) --config experiment=demo-rl-seeds
	.venv/bin/python -m scripts.compare results/scores/start/drill-heldout-rl.json \
	    results/scores/rl/drill-heldout-rl.json results/scores/rl-seed1/drill-heldout-rl.json \
	    results/scores/rl-seed2/drill-heldout-rl.json

# A model learns to repair programs with Python's debugger; the same without pdb, on the same tasks.
debugger: setup
	$(RUN) --config experiment=demo-debugger
	.venv/bin/python -m scripts.compare results/scores/debugger-start/debug-heldout.json \
	    results/scores/debugger-rl/debug-heldout.json results/scores/rewrite-start/debug-heldout.json \
	    results/scores/rewrite-rl/debug-heldout.json

help:
	@./envs/help.sh

# Missing programs are reported before gigabytes are downloaded. Compiling all 32,000 modules of .venv takes 2 minutes,
# those that the check imports some seconds. Sandboxes cannot write bytecode, so theirs is compiled here.
setup:
	@./envs/system.sh "$(PYTHON)" venv git patch $(BWRAP)
	@$(INSTALL) .venv --torch "$(TORCH)" --no-compile envs/cpu.txt
	@$(INSTALL) .venv-sandbox --path /testbed/.swelab/site-packages envs/sandbox.txt

# The checks of a change; CONTRIBUTING.md explains the difference of these three.
test: setup
	@./envs/system.sh "$(PYTHON)" bwrap git patch docker-registry dockerd mmdebstrap
	.venv/bin/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

test-full: setup peer sb-cli verl
	@./envs/system.sh "$(PYTHON)" bwrap git patch chromium docker-registry dockerd faketime mmdebstrap munged slurmctld
	.venv/bin/python -m tests.full

# The tests of `make test-full` that train on verl.
test-verl: setup verl
	@./envs/system.sh "$(PYTHON)" bwrap git patch munged slurmctld
	.venv/bin/python -m pytest -m full tests/contract/test_verl*.py

# The gate on a minimal Debian machine, and on this one.
ci:
	@./envs/system.sh "$(PYTHON)" mmdebstrap
	@./.ci/clone

ci-here:
	@./.ci/clone --here

check: setup
	.venv/bin/python -m tests.luck
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/snakefmt --check Snakefile rules
	$(RUN) --lint

# Other programs, each in its own environment: a peer and SWE-bench's client, for tests; Modal's client.
peer sb-cli modal:
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-$@ --no-compile envs/$@.txt

# The distributed engine of reinforcement learning (docs/rl-scale.md), with torch for the same machine as .venv.
verl:
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-verl --torch "$(TORCH)" --no-compile envs/verl.txt

# No package index has SWE-agent. SWE_AGENT is a checkout of its source (docs/swe-agent.md).
swe-agent:
	@test -f "$(SWE_AGENT)/sweagent/__init__.py" || \
	    { echo "error: SWE_AGENT=$(SWE_AGENT) is no checkout of SWE-agent; expected one of version 1.1.0"; exit 2; }
	@./envs/system.sh "$(PYTHON)" venv
	@$(INSTALL) .venv-swe-agent --no-compile --editable "$(SWE_AGENT)" envs/swe-agent.txt

clean:
	rm -rf .snakemake
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
