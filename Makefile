# make: set-up, then the demo experiment.  make test: set-up, then the tests.
# Nothing here touches the system's Python: all goes into .venv and .venv-sandbox.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
RUN := .venv/bin/snakemake
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: all setup test check peer sb-cli clean

all: setup
	$(RUN)

setup: .venv/.installed .venv-sandbox/.installed
	@./envs/system.sh $(PYTHON) bwrap git patch

test: setup sb-cli
	@./envs/system.sh $(PYTHON) bwrap git patch chromium docker-registry dockerd faketime mmdebstrap munged slurmctld
	.venv/bin/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/snakefmt --check Snakefile rules
	$(RUN) --lint

.venv/.installed: envs/torch.txt envs/cpu.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -r envs/torch.txt
	.venv/bin/pip install -q --no-deps -r envs/cpu.txt
	@touch $@

.venv-sandbox/.installed: envs/sandbox.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv-sandbox
	.venv-sandbox/bin/pip install -q -r envs/sandbox.txt
	@touch $@

# Another program's environment, for the tests and benchmarks that run it beside ours; not part of the set-up.
peer: .venv-peer/.installed

.venv-peer/.installed: envs/peer-swesmith.txt
	$(PYTHON) -m venv .venv-peer
	.venv-peer/bin/pip install -q -r envs/peer-swesmith.txt
	@touch $@

# The program that submits predictions to SWE-bench's service, apart from the rest, which needs a newer click.
sb-cli: .venv-sb-cli/.installed

.venv-sb-cli/.installed: envs/sb-cli.txt
	@./envs/system.sh $(PYTHON) venv
	$(PYTHON) -m venv .venv-sb-cli
	.venv-sb-cli/bin/pip install -q --no-deps -r envs/sb-cli.txt
	@touch $@

clean:
	rm -rf results/* .snakemake
