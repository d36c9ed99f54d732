# Tidewire: everything a developer runs. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
DATA    ?= data

GOLANGCI_LINT_VERSION := v2.15.0

TOOLS := $(CURDIR)/.cache/bin
LINT  := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)

# The work tree's state is not stamped into binaries: a build needs no git.
# Static and without paths of this machine, as a release is.
GOBUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-X tidewire/internal/buildinfo.Version=$(VERSION)'

# Whose clock tests may set; never released.
FAULTINJECT := faultinject

.PHONY: help preflight run cluster build ui ui-dev ui-check ui-browser ui-measure generate generate-check fmt-check vet lint archtest unit check e2e test sim faults soak bench scale bench-go release image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preflight: ## name in one line what this machine lacks
	@scripts/preflight

run: build ## build a node and start it for development, with its data in ./data
	@exec bin/tidewire serve --dev --data-dir $(DATA)

cluster: build ## build a node and start three of them as one cluster, with their data in ./data/cluster; see scripts/cluster
	@exec scripts/cluster bin/tidewire $(DATA)/cluster

build: preflight ui ## build bin/tidewire, with the console in it
	@mkdir -p bin
	$(GOBUILD) -o bin/tidewire ./cmd/tidewire

# The console is built again only when one of its files has changed.
UI_SOURCES := $(shell find ui/src ui/build ui/public -type f -not -name '*.test.*') ui/index.html ui/vite.config.ts ui/tsconfig.json

ui: ui/dist/index.html ## build the console into ui/dist, which the binary embeds

ui/node_modules/.package-lock.json: ui/package-lock.json ui/package.json ui/.npmrc
	cd ui && npm ci --no-progress
	@touch $@

ui/dist/index.html: ui/node_modules/.package-lock.json $(UI_SOURCES)
	cd ui && npm run --silent build -- --logLevel warn
	@touch $@

ui-dev: ui/node_modules/.package-lock.json ## serve the console from its sources, on a node at TIDEWIRE_SERVER
	cd ui && npm run --silent dev

ui-check: ui ## check the console: lint, types, unit tests, sizes
	cd ui && npm run --silent lint && npm run --silent typecheck && npm test --silent && npm run --silent budget

ui-browser: build ## drive the console in Chromium, on a node of its own
	@scripts/install-test-packages
	cd ui && TIDEWIRE_BIN=$(CURDIR)/bin/tidewire npm run --silent browser

ui-measure: build ## measure the console in Chromium, as in docs/performance.md
	@scripts/install-test-packages
	cd ui && TIDEWIRE_BIN=$(CURDIR)/bin/tidewire npm run --silent measure

generate: preflight ui/node_modules/.package-lock.json ## write the OpenAPI document from the annotated handlers, and the console's types from it
	go generate ./openapi
	cd ui && npm run --silent types

generate-check: generate ## fail when generating changes what is committed
	@scripts/clean-after-generate openapi ui/src/api

fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "run gofmt -w on:"; echo "$$out"; exit 1; fi

vet:
	go vet ./...
	go vet -tags $(FAULTINJECT) ./internal/config ./internal/node

$(LINT):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install -buildvcs=false github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(TOOLS)/golangci-lint $(LINT)

lint: $(LINT) ## run golangci-lint, pinned
	$(LINT) run ./...

archtest: ## check imports, sizes, banned calls and words
	go test ./internal/archtest

# What needs a built node, or the machine as it is, runs in e2e.
# The simulation is here too: it runs one seed after another on all processors.
E2E := ./test/e2e ./test/genclient ./test/tsclient ./test/scripts ./test/tour ./test/sim

# Under the race detector run the packages whole, but for tests that do one thing after
# another for long and skip themselves (internal/testkit/racing), and those of the API, which
# are many whole nodes: of them the ones where things happen at once. These packages run
# without it too.
RACE_API := Poll|Stream|Ends|Ended|AtOnce|OneOfMany|Fifty|Follow|Socket|Stops|Member|Flood|Cancelled|Quotas|Lines|Client|Meanwhile|Repeat|Keys

unit: ## run the unit and API tests, with the race detector where things happen at once
	go test -race -timeout 40m $$(go list ./... | grep -vxF "$$(go list $(E2E) ./test/api)")
	go test -race -timeout 40m -tags $(FAULTINJECT) -run 'Offset|Injected' ./internal/config ./internal/node
	go test -race -timeout 40m -parallel 4 -run '$(RACE_API)' ./test/api
	go test -timeout 40m -parallel 4 ./test/api $$(grep -rl --include='*_test.go' testkit/racing . | xargs -n1 dirname | sort -u | grep -v test/api)

check: preflight fmt-check vet archtest lint unit ui-check generate-check ## all that a change must pass before it is committed

e2e: build ## run what needs a real node: the README's tour, the generated clients
	@scripts/install-test-packages
	TEST_TIDEWIRE_BINARY=$(CURDIR)/bin/tidewire TIDEWIRE_BIN=$(CURDIR)/bin/tidewire go test -count=1 -timeout 40m $(E2E)

test: check e2e ui-browser ## everything

SEEDS  ?= 5000
FIRST  ?= 1
PLACES ?= 100
sim: preflight ## simulate the log engine with SEEDS seeds from FIRST on, power cuts too, damage each kind of file at PLACES places, and simulate consumer groups and replication with four times the seeds
	go test -count=1 -timeout 4h ./test/sim -seeds $(SEEDS) -first-seed $(FIRST) -places $(PLACES)
	go test -count=1 -timeout 4h ./test/sim/groups -seeds $$(($(SEEDS) * 4)) -first-seed $(FIRST)
	go test -count=1 -timeout 4h ./test/sim/replicas -seeds $$(($(SEEDS) * 4)) -first-seed $(FIRST)

# Faults of a cluster of real processes, as root: each kind alone for FAULTS_ALONE seconds, then
# all mixed for FAULTS_SECONDS.
FAULT_KINDS    := kill kill-all power pause rolling move full clock isolate pair deaf mute lossy slow
FAULTS_NODES   ?= 3
FAULTS_ALONE   ?= 120
FAULTS_SECONDS ?= 1800
FAULTS_SEED    ?= $(shell date +%Y%m%d%H%M%S)
FAULTS := TIDEWIRE_BIN=$(CURDIR)/bin/tidewire-$(FAULTINJECT) FAULTS_SEED=$(FAULTS_SEED) go test -count=1 -timeout 2h -v -run TestAClusterUnderFaultsKeepsItsPromises ./test/e2e

faults: build ## run a cluster of FAULTS_NODES real processes under faults, and judge what its clients saw; needs root, ip and iptables
	@scripts/install-test-packages
	$(GOBUILD) -tags $(FAULTINJECT) -o bin/tidewire-$(FAULTINJECT) ./cmd/tidewire
	for kind in $(FAULT_KINDS); do FAULTS_NODES=$(FAULTS_NODES) FAULTS_SECONDS=$(FAULTS_ALONE) FAULTS_ONLY=$$kind $(FAULTS); done
	FAULTS_NODES=$(FAULTS_NODES) FAULTS_SECONDS=$(FAULTS_SECONDS) $(FAULTS)

soak: build ## simulate ten times as much, from a seed of today's on, kill a real node, break clusters of three and five, run every API test with the race detector
	$(MAKE) sim SEEDS=$$(($(SEEDS) * 10)) FIRST=$$(date +%Y%m%d000000)
	TEST_TIDEWIRE_BINARY=$(CURDIR)/bin/tidewire go test -count=5 -timeout 1h -run 'LostByKills|KillOfANode' ./test/e2e
	$(MAKE) faults FAULTS_NODES=3
	$(MAKE) faults FAULTS_NODES=5
	go test -race -count=1 -timeout 1h ./test/api

RUNS ?= 5
bench: build ## measure a node over HTTP, medians of RUNS, as in docs/performance.md
	go build -buildvcs=false -o bin/bench ./test/bench
	bin/bench -binary bin/tidewire -runs $(RUNS)

scale: build ## measure a node with 10,000 partitions, as in docs/performance.md
	go build -buildvcs=false -o bin/scale ./test/scale
	bin/scale -binary bin/tidewire

bench-go: preflight ## run the Go benchmarks of the hot paths
	go test -run '^$$' -bench . -benchmem ./...

release: preflight ui ## build the released archives and their checksums into dist/
	VERSION=$(VERSION) scripts/release

image: ## build the container image
	docker build -f docker/Dockerfile --build-arg VERSION=$(VERSION) -t tidewire:$(VERSION) .

clean: ## remove what was built; data stays
	rm -rf bin dist .cache ui/dist ui/node_modules
