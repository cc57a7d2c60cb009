# Everything a contributor runs. CI runs the same targets (.ci/run).

# How long each fuzz target runs, what the benchmarks select, how often they
# repeat, which commit they are compared with (the last one unless named), which
# table of docs/benchmarks.md is measured anew; and for make chaos the topology
# (docs/reliability.md), how long faults are injected, and the seed (0: a new one).
FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 6
BASE     ?=
TABLE    ?= list
TOPOLOGY ?= sentinel
TIME     ?= 5m
SEED     ?= 0

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
LINTER   := bin/golangci-lint

# Longest time for the tests of one package; the slowest needs a tenth of it.
TIMEOUT  := 10m

# What is tested on both connection drivers (see --driver). Tests that judge
# nothing of a driver say so (onlyOnce), and are left out the second time.
DRIVEN   := ./internal/sse ./internal/gateway ./test/e2e

# All tests run under the race detector, more packages at a time than there are
# processors: they wait a lot. Without the option of GORACE each program that is
# built with it sleeps for a second before it ends. What go vet finds, lint does.
AT_ONCE  := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
TESTS    := CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -vet=off -p $(AT_ONCE) -timeout $(TIMEOUT)

# What stands in deploy is tested by a module of its own, from whose cache nothing
# may come: it doesn't see files outside of it. It is built as the image is, so
# that both share what they have in common.
CHART    := CGO_ENABLED=0 go -C tools/chart test -trimpath -vet=off -count=1 -timeout $(TIMEOUT) ./...

# The governor's law in many worlds. The same ones each time are for everybody: the one
# in thousands in which a law fails is for who looks for it, not for who has changed
# something else.
LAW      := go test -vet=off ./internal/governor

.DEFAULT_GOAL := help
.PHONY: help run build test lint law race fuzz chaos bench bench-peers hunt hunt-001 hunt-002 hunt-003 docs proto

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build, then serve on 127.0.0.1:8080 with the embedded log
	./downlink serve --listen 127.0.0.1:8080

build: ## build ./downlink, one static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o downlink ./cmd/downlink

test: ## install what the tests need, then run them all under the race detector
	scripts/deps
	$(TESTS) ./...
	DOWNLINK_DRIVER=ordinary $(TESTS) $(DRIVEN)
	$(LAW) -rapid.seed=1 -rapid.checks=170
	$(CHART)

lint: $(LINTER) ## check form and habits (.golangci.yml)
	$(LINTER) run ./...

law: ## try the governor's law in 1,500 new worlds; test has always the same
	$(LAW) -count=1 -rapid.checks=250

race: ## hunt for races: every test twice, in random order, nothing from the cache
	scripts/deps
	$(TESTS) -count=2 -shuffle=on ./...

fuzz: ## run each fuzz target for FUZZTIME (30s)
	scripts/fuzz $(FUZZTIME)

chaos: ## inject faults into TOPOLOGY (sentinel) for TIME (5m), drawn from SEED
	scripts/deps
	CGO_ENABLED=1 go test -race -count=1 -timeout 0 -v -run '^TestLong$$' ./test/chaos \
		-chaos.topology $(TOPOLOGY) -chaos.time $(TIME) -chaos.seed $(SEED) $(CHAOS)

bench: ## compare Go benchmarks (BENCH=regexp, COUNT=6) with the last commit, or BASE=commit
	scripts/bench '$(BENCH)' $(COUNT) $(BASE)

bench-peers: ## measure TABLE beside the peers, and write docs/benchmarks.md anew
	scripts/bench-deps
	go run ./bench $(TABLE)
	go run ./bench report

hunt: ## play the treasure hunt of examples/hunt in a browser
	examples/hunt/play

hunt-001: ## let the hunt die behind a fixed cap, with no governor (5 minutes, 10,000 players)
	examples/hunt/record 001 capped

hunt-002: ## the same with the governor, and no cap: it survives
	examples/hunt/record 002 governed

hunt-003: ## the same with neither: what the cap hid
	examples/hunt/record 003 open

docs: ## write docs/reference and cmd/downlink/deps.txt anew
	go run ./tools/reference
	go test -run '^TestLinkedModules$$' . -update

proto: ## write the Go code of internal/governor/rpc/governor.proto anew
	scripts/proto

# The linter has a module of its own, so that its 200 dependencies stay out of
# the product's go.mod. Its first build takes minutes; later ones are cached.
$(LINTER): tools/lint/go.mod tools/lint/go.sum
	go -C tools/lint build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
