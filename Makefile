# `make` builds; `make help` lists the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build setup run conformance test lint fmt beside fuzz bench prove cross modules release clean help

GO       ?= go
FUZZTIME ?= 10s
# More flags for go test: make test TESTFLAGS='-run TestDetect -v'
TESTFLAGS ?=

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# Go wants a home for its caches. The dot keeps ./... out of it.
ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.home
endif

# Tests run in the folders of their packages.
ifneq ($(strip $(CORPORA)),)
override CORPORA := $(abspath $(CORPORA))
export CORPORA
endif

# ambit needs no C. Only the race detector does, and asks for it below.
export CGO_ENABLED := 0

# The version is stamped from git, or "devel" where git cannot tell. Go's own stamp is off: it stops
# the build where git refuses to read the folder. Paths are trimmed by make release alone: here the
# programs that tests build are to find in Go's cache what make build has compiled.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILD   = -buildvcs=false -ldflags "-X github.com/ambit-run/ambit/internal/cli.version=$(VERSION)"

# Go's compiler and the linters collect their garbage four times as rarely, as long as they stay below 3 GiB, which
# takes a fifth off their time. What the tests start does not: they count memory.
HASTE  = GOGC=400 GOMEMLIMIT=3GiB
NORMAL = env -u GOGC -u GOMEMLIMIT

# Tests run under the race detector where there is a C compiler. Under CI every test really runs, in
# random order; elsewhere go test may answer from its cache. Vet is left to make lint. The detector is
# spared what others wrote that only computes on what it is given, which would take most of its time; not
# what has a sync.Map, such as encoding/json: its copy of the map's code may serve all, and hides from the
# detector what the map orders.
# Nobody debugs these programs, so they go without tables for debuggers. Without GORACE each program with
# the detector sleeps for a second before it ends. The linters read what is compiled for the tests, so
# that it is compiled once.
COMPUTES = modernc.org/... golang.org/x/crypto/scrypt compress/flate regexp github.com/santhosh-tekuri/jsonschema/v6 \
	github.com/go-json-experiment/json/jsontext github.com/go-json-experiment/json/internal/...
SPARED   = $(COMPUTES:%='-gcflags=%=-race=false -dwarf=false') '-gcflags=zombiezen.com/...=-d=checkptr=0 -dwarf=false'
WATCHED  = $(if $(shell command -v gcc),-race -gcflags=all=-dwarf=false $(SPARED))
RACE     = $(if $(WATCHED),CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 )$(HASTE) $(GO) test -exec '$(NORMAL)' $(WATCHED)
CI_TESTS = $(if $(filter true,$(CI)),-count=1 -shuffle=on)
# Tests wait for servers, sandboxes and stores for half of their time: three times as many packages as there
# are cores keep those busy.
WIDE     = -p $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
GOTEST   = $(RACE) -vet=off $(WIDE) $(CI_TESTS) $(TESTFLAGS)
# Those that take longest come first, so that none of them runs alone at the end.
TESTED   = ./internal/cli ./internal/test/... ./internal/journal ./internal/gateway ./internal/pack ./internal/sandbox ./...

GITLEAKS = internal/guard/secret/gitleaks

# Lint tools are built once for each version of Go and of tools/go.mod.
TOOLS := bin/tools
BUILT := $(TOOLS)/.built-$(shell $(GO) env GOVERSION 2>/dev/null)

build: ## build bin/ambit, with its links mcl-tools and findagent-mcp
	@mkdir -p bin
	$(HASTE) $(GO) build $(BUILD) -o bin/ambit ./cmd/ambit
	@ln -sf ambit bin/mcl-tools
	@ln -sf ambit bin/findagent-mcp

setup: ## install what is missing, or say what to install
	@scripts/setup

run: setup build ## serve the agents that ship, on this machine
	@scripts/run

conformance: setup build ## run the official MCP conformance suite, direct and through ambit
	$(GO) test -vet=off -count=1 -v -run TestConformance ./internal/test/conformance

test: setup build lint ## set up, build, lint, and run every test
	$(GOTEST) -timeout 15m $(TESTED)

lint: setup $(BUILT) ## gofumpt, go vet, staticcheck, and govulncheck where its database can be reached
	@$(if $(WATCHED),CGO_ENABLED=1 GOFLAGS="$(strip $(GOFLAGS) $(WATCHED))") $(HASTE) scripts/lint $(TOOLS)

fmt: setup $(BUILT) ## format every Go file as make lint wants it
	@git ls-files -z --cached --others --exclude-standard -- '*.go' ':!**/testdata/**' | xargs -0 $(TOOLS)/gofumpt -l -w

$(BUILT): tools/go.mod tools/go.sum | setup
	@rm -rf $(TOOLS)
	@echo "building the lint tools; on two cores with nothing cached this takes about a minute" >&2
	@$(HASTE) $(GO) build -C tools -buildvcs=false -ldflags '-s -w' -o ../$(TOOLS)/ tool
	@touch $@

# gitleaks has a module of its own: it brings forty others, and ambit needs none of them.
beside: setup ## hold the table of rules to the gitleaks it is from, and what is found to what gitleaks finds
	$(GO) vet -C $(GITLEAKS) -tags prove ./...
	$(GO) test -C $(GITLEAKS) -vet=off $(CI_TESTS) $(TESTFLAGS) ./...

fuzz: setup ## run every fuzz target for FUZZTIME (10s); what breaks one is kept in its testdata/fuzz
	@$(GO) run ./scripts/fuzz -time $(FUZZTIME)

bench: setup build ## run the benchmarks in bench/, side by side with other programs where bench/run does that
	$(GO) test -vet=off -run '^$$' -bench . -benchmem ./bench/...
	bench/run

prove: setup modules lint cross fuzz ## what is too slow for every run: all platforms, fuzzing, long tests, benchmarks
	$(GOTEST) -tags prove -timeout 90m $(TESTED)
	@$(MAKE) --no-print-directory beside TESTFLAGS='-tags prove -timeout 30m'
	@$(MAKE) --no-print-directory bench

cross:
	@for p in $(PLATFORMS); do \
		echo "cross: $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -buildvcs=false ./... || exit 1; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./... || exit 1; \
	done

# A release is made of modules that are here.
modules:
	$(GO) mod download
	$(GO) mod download -C $(GITLEAKS)

release: setup modules ## build what is published, for every platform, into dist/: binaries, digests, SBOM, licences
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(GO) run ./scripts/release -version $(VERSION) -o dist $(PLATFORMS)

clean: ## remove what was built; Go's caches stay
	@if [ -e .home ]; then chmod -R u+w .home; fi
	rm -rf bin dist .home

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
