# `make` builds; `make help` lists the other targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build setup check run conformance test lint fmt beside fuzz bench prove cross modules release clean help

GO       ?= go
FUZZTIME ?= 10s
# More flags for go test: make test TESTFLAGS='-run TestDetect -v'
TESTFLAGS ?=

PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# Go needs a home for its caches. The leading dot keeps the folder out of ./...
ifeq ($(strip $(HOME)),)
export HOME := $(CURDIR)/.home
endif

# Tests run in the folders of their packages, so the path must be absolute.
ifneq ($(strip $(CORPORA)),)
override CORPORA := $(abspath $(CORPORA))
export CORPORA
endif

# ambit needs no C. Only the race detector does, and RACE turns it on.
export CGO_ENABLED := 0

# The version comes from git, or is "devel" without git. Go's own stamp is off because it fails the build
# where git refuses to read the folder. Only make release trims paths: here, the programs that tests build
# share Go's cache with make build.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILD   = -buildvcs=false -ldflags "-X github.com/ambit-run/ambit/internal/cli.version=$(VERSION)"

# The compiler and the linters collect garbage four times as rarely while they stay below 3 GiB, which saves
# a fifth of their time. The programs under test keep Go's defaults, because some tests count memory.
HASTE  = GOGC=400 GOMEMLIMIT=3GiB
NORMAL = env -u GOGC -u GOMEMLIMIT

# Tests run under the race detector where there is a C compiler. The detector skips dependencies that only
# compute on their input, which would take most of its time. It does not skip packages with a sync.Map, such as
# encoding/json: the linker may share one copy of the map's generic code, and the detector would then miss
# the ordering that the map provides.
# The test binaries have no tables for debuggers. Without GORACE each program under the detector sleeps for a
# second before it exits. The linters get the same flags, so that packages are compiled once.
COMPUTES = modernc.org/... golang.org/x/crypto/scrypt compress/flate regexp github.com/santhosh-tekuri/jsonschema/v6 \
	github.com/go-json-experiment/json/jsontext github.com/go-json-experiment/json/internal/...
SPARED   = $(COMPUTES:%='-gcflags=%=-race=false -dwarf=false') '-gcflags=zombiezen.com/...=-d=checkptr=0 -dwarf=false'
WATCHED  = $(if $(shell command -v gcc),-race -gcflags=all=-dwarf=false $(SPARED))
RACE     = $(if $(WATCHED),CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 )$(HASTE) $(GO) test -exec '$(NORMAL)' $(WATCHED)
# Under CI nothing comes from the test cache, and tests run in random order.
CI_TESTS = $(if $(filter true,$(CI)),-count=1 -shuffle=on)
# Tests spend half of their time waiting for servers, sandboxes and stores, so three packages run on each core.
WIDE     = -p $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
RUN      = -vet=off $(WIDE) $(CI_TESTS) $(TESTFLAGS)
GOTEST   = $(RACE) $(RUN)
# The tests of whole commands and of whole sandboxes run under the race detector only in make prove: there it takes
# three quarters of their time, because every process that they start has it, and the packages that they use have
# their own tests.
PLAIN    = $(HASTE) $(GO) test -exec '$(NORMAL)' $(RUN)
WHOLE    = ./internal/cli ./internal/test/... ./internal/exec/sandbox
# The slowest packages start first, so that none of them runs alone at the end.
SLOW     = ./internal/store/journal ./internal/gateway ./internal/supply/pack
TESTED   = $(WHOLE) $(SLOW) ./...

# make check leaves out every package whose tests link a store, a sandbox, a tool server or a package manager.
HEAVY    = zombiezen\.com/go/sqlite|jackc/pgx|go-sdk/mcp|internal/([a-z]+/)?(sandbox|pack)
UNIT     = $(GO) list -test -f '{{.ImportPath}}{{range .Deps}} {{.}}{{end}}' ./... | \
	awk '$$1 ~ /\.test$$/ && !/($(subst /,\/,$(HEAVY)))( |$$)/ { sub(/\.test$$/, "", $$1); print $$1 }'

# A separate module, because gitleaks has forty dependencies.
GITLEAKS = bench/gitleaks

# Lint tools are built once for each version of Go and of tools/go.mod.
TOOLS := bin/tools
BUILT := $(TOOLS)/.built-$(shell $(GO) env GOVERSION 2>/dev/null)

build: ## build bin/ambit and its links mcl-tools and findagent-mcp
	@mkdir -p bin
	$(HASTE) $(GO) build $(BUILD) -o bin/ambit ./cmd/ambit
	@ln -sf ambit bin/mcl-tools
	@ln -sf ambit bin/findagent-mcp

setup: ## install missing packages, or name them
	@scripts/setup

check: build ## build, vet, and run the unit tests that need no store, sandbox or server
	$(HASTE) $(GO) vet ./...
	$(HASTE) $(GO) test -exec '$(NORMAL)' -vet=off $(TESTFLAGS) $$($(UNIT))

run: setup build ## serve the agents that ship, on this machine
	@scripts/run

conformance: setup build ## run the official MCP conformance suite, directly and through ambit
	$(GO) test -vet=off -count=1 -v -run TestConformance ./internal/test/conformance

test: setup build lint ## set up, build, lint, and run every test
	$(GOTEST) -timeout 15m $(SLOW) $$($(GO) list ./... | grep -v -E '/internal/(cli$$|test/|exec/sandbox$$)')
	$(PLAIN) -timeout 15m $(WHOLE)
	cd bench && $(GOTEST) -timeout 5m ./...
	cd tools && $(GOTEST) -timeout 5m ./...

lint: setup $(BUILT) ## gofumpt, go vet, staticcheck, and govulncheck if its database is reachable
	@$(if $(WATCHED),CGO_ENABLED=1 GOFLAGS="$(strip $(GOFLAGS) $(WATCHED))") $(HASTE) scripts/lint $(TOOLS)

fmt: setup $(BUILT) ## format every Go file
	@git ls-files -z --cached --others --exclude-standard -- '*.go' ':!**/testdata/**' | xargs -0 $(TOOLS)/gofumpt -l -w

$(BUILT): tools/go.mod tools/go.sum | setup
	@rm -rf $(TOOLS)
	@echo "building the lint tools; on two cores with an empty cache this takes about a minute" >&2
	@$(HASTE) $(GO) build -C tools -buildvcs=false -ldflags '-s -w' -o ../$(TOOLS)/ tool
	@touch $@

beside: setup ## compare the findings of the secret scan with gitleaks
	$(GO) vet -C $(GITLEAKS) -tags prove ./...
	$(GO) test -C $(GITLEAKS) -vet=off $(CI_TESTS) $(TESTFLAGS) ./...

fuzz: setup ## run every fuzz target for FUZZTIME (10s); a failing input is kept in its package's testdata/fuzz
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

bench: setup build ## run the benchmarks in bench/, some of them side by side with other programs
	$(GO) test -C bench -vet=off -run '^$$' -bench . -benchmem ./...
	bench/run

prove: setup modules lint cross fuzz ## checks too slow for every run: all platforms, fuzzing, long tests, benchmarks
	$(GOTEST) -tags prove -timeout 90m $(TESTED)
	cd bench && $(GOTEST) -tags prove -timeout 5m ./...
	cd tools && $(GOTEST) -tags prove -timeout 60m ./...
	@$(MAKE) --no-print-directory beside TESTFLAGS='-tags prove -timeout 30m'
	@$(MAKE) --no-print-directory bench

cross:
	@for p in $(PLATFORMS); do \
		echo "cross: $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -buildvcs=false ./... || exit 1; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./... || exit 1; \
	done

# make release uses only modules that are in Go's cache.
modules:
	$(GO) mod download
	$(GO) mod download -C $(GITLEAKS)

release: setup modules ## build what is published into dist/: binaries, npm, Debian and OCI packages, digests, SBOM, licences
	@$(GO) build -C tools -buildvcs=false -o ../$(TOOLS)/ ./release
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
		$(TOOLS)/release -version $(VERSION) -o dist $(PLATFORMS)

clean: ## remove everything that was built; Go's caches stay
	@if [ -e .home ]; then chmod -R u+w .home; fi
	rm -rf bin dist .home

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
