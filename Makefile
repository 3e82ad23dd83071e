# `make` alone lists the targets. A line `target: ## text` is the target's documentation.
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# Directories of this machine stand in messages of panics and of C code. The binary that is shipped has fixed names instead, so
# that the same sources make the same bytes in every directory. Of several that match, the last counts.
FIXED_PATHS := $(CURDIR)=gateway $(abspath $(TARGET_DIR))=target $(abspath $(or $(CARGO_HOME),$(HOME)/.cargo))=cargo
GIVEN_RUSTFLAGS := $(RUSTFLAGS)
GIVEN_CFLAGS := $(CFLAGS)
# The profile of `make pgo` is used if there is one. `make dist` makes a new one, unless PGO_PROFILE is given: a file, or nothing.
PGO_PROFILE = $(TARGET_DIR)/pgo/gateway.profdata
USED_PGO_PROFILE = $(if $(filter command%,$(origin PGO_PROFILE)),$(PGO_PROFILE),$(shell ls $(PGO_PROFILE) 2>/dev/null))
FIXED_RUSTFLAGS := $(strip $(GIVEN_RUSTFLAGS) $(addprefix --remap-path-prefix=,$(FIXED_PATHS)))
pgo: export RUSTFLAGS = $(FIXED_RUSTFLAGS)
# Not for `instructions`: its symbols are another setting of Cargo's profile, with which no name of the PGO profile agrees.
instructions: export RUSTFLAGS = $(FIXED_RUSTFLAGS)
build-dist dist bench soak siege: export RUSTFLAGS = $(strip $(FIXED_RUSTFLAGS) $(addprefix -Cprofile-use=,$(abspath $(USED_PGO_PROFILE))))
pgo build-dist dist bench instructions soak siege: export CFLAGS = $(strip $(GIVEN_CFLAGS) $(addprefix -ffile-prefix-map=,$(FIXED_PATHS)))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build build-dist pgo console docs test fuzz torture lint audit dist bench instructions soak siege mutants clean-services

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

run: build ## Build the binary and serve on 127.0.0.1:8080, data in ./data
	@exec $(TARGET_DIR)/release/gateway serve

build: console docs ## Build the binary with the web console in it, fast to compile
	$(CARGO) build --locked --release -p gateway

build-dist: console docs ## Build the binary that is shipped and measured: link-time optimization, and the PGO profile if there is one
	@echo "build-dist: $(if $(USED_PGO_PROFILE),with the PGO profile $(USED_PGO_PROFILE),without a PGO profile: see make pgo)"
	$(CARGO) build --locked --profile dist -p gateway

console: ## Build the web console; needs Node.js 20, and is left out without it
	@scripts/console build

docs: ## Build the documentation site from docs/; needs Node.js 20, and is left out without it
	@scripts/console docs

test: ## Run every test; brings its own PostgreSQL, Redis, Chromium and Python packages
	@scripts/test

fuzz: ## Mutate the inputs of every parser; FUZZ_SECONDS=600 for each of six groups
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test -p gateway-core --test hostile -- fuzz:: --nocapture
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(CARGO) test -p gateway --test it -- fuzz:: --nocapture

torture: ## Inject faults by seed into disk, databases and clock; TORTURE_SECONDS=3600
	@FAULT_SECONDS=$(or $(TORTURE_SECONDS),3600) scripts/services run -- \
		$(CARGO) test -p gateway --test it -- faults::seeds --nocapture

lint: ## Check formatting, lints and the walls between the crates
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@scripts/check-walls

audit: ## Check dependencies: licences, known vulnerabilities, sources; needs cargo-deny, and says what it cannot check
	@scripts/audit

pgo: console docs ## Make the profile for profile-guided optimization (PGO); needs llvm-profdata, and is left out without it
	@$(if $(filter command%,$(origin PGO_PROFILE)),true,scripts/pgo $(PGO_PROFILE))

dist: pgo build-dist ## Pack the release into dist/: .tar.gz, .deb, wheel, npm package, bill of materials, checksums
	@GATEWAY_BINARY=$(TARGET_DIR)/dist/gateway GATEWAY_PGO_PROFILE=$(USED_PGO_PROFILE) scripts/dist

bench: build-dist ## Measure the shipped binary beside nginx
	$(CARGO) run --profile dist -p gateway-bench -- --gateway $(TARGET_DIR)/dist/gateway

instructions: console docs ## Count the instructions of a request with callgrind; needs valgrind
	$(CARGO) build --locked --profile profiling -p gateway
	$(CARGO) run --profile dist -p gateway-bench -- instructions --gateway $(TARGET_DIR)/profiling/gateway --functions 15

soak: build-dist ## Three nodes under load while things fail around them; SOAK_SECONDS=600
	@GATEWAY_BINARY=$(TARGET_DIR)/dist/gateway scripts/soak

siege: build-dist ## One hostile organization attacks for 60 s; prints what another one notices, on both databases
	@scripts/services run -- sh -c 'exec $(CARGO) run --profile dist -p gateway-bench -- siege \
		--gateway $(TARGET_DIR)/dist/gateway --postgres "$$TEST_POSTGRES_URL"'

mutants: ## Change the core's rules and see that its tests notice; needs cargo-mutants
	@$(CARGO) mutants --version >/dev/null 2>&1 || { \
		echo "make mutants needs cargo-mutants: cargo install cargo-mutants --locked" >&2; exit 1; }
	CARGO_TARGET_DIR=$(abspath $(TARGET_DIR))/mutants $(CARGO) mutants --package gateway-core

clean-services: ## Remove servers and directories that a killed test run left behind
	@scripts/services clean
