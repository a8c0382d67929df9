# `make help` lists the targets. Each does the set-up that it needs by itself.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
# Two concurrent steps that install packages would collide at dpkg's lock; within a step, cargo and make use every CPU.
.NOTPARALLEL:
# Where scripts/setup.sh installs what the distribution has only in an older version.
export PATH := $(CURDIR)/target/tools/bin:$(PATH)

PAGE_SOURCES := $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -path web/test -prune -o -type f -print) docs/glossary.md
PAGE := web/dist/index.html

.PHONY: run build dist packages licences clients test test-deploy test-packages test-kafka test-clickhouse test-collectors test-parquet test-kubernetes test-kernels test-isolate test-lab test-lab-kernels lab-pages lint bench bench-check bench-tank bench-dissect bench-hunt bench-host bench-agent soak-cases demo-faults bench-isolate bench-clickhouse bench-fleet bench-page story-a story-b story-c hunt-a hunt-b hunt-c setup clean help

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build, then run the meter with a pair of programs to measure, until Ctrl-C
	@exec target/release/spangap demo

build: ## Build target/release/spangap, the page inside it (default): soon done, and fast where it matters
	@scripts/setup.sh build
	@$(MAKE) --no-print-directory $(PAGE)
	cargo build --release --locked --package spangap

dist: ## Build target/dist/spangap as fast as it gets; stripped, with its symbols beside it, in target/package
	@scripts/setup.sh build
	@$(MAKE) --no-print-directory $(PAGE)
	cargo build --profile dist --locked --package spangap
	@scripts/strip.sh

clients: ## Build the programs of the other stacks, C++ and Go, into target/clients
	@scripts/setup.sh clients
	@scripts/clients.sh

test: ## Run every test; says at the end what could not run here, and why
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory $(PAGE)
	@scripts/clients.sh
	@scripts/test.mjs

test-kernels: ## Run every verb of `host` and `sockets` on other kernels, in virtual machines (about 6 minutes)
	@scripts/setup.sh kernels
	@$(MAKE) --no-print-directory $(PAGE)
	@scripts/kernels.sh

test-isolate: build ## Run `isolate` on virtual machines with many CPUs and a NIC with queues; as root (about 10 minutes)
	@scripts/setup.sh kernels
	@SPANGAP=target/release/spangap scripts/isolate_machine.sh

test-lab: build ## Make every fault of the lab and its near miss REPEATS times (20; two hours): do they act? As root
	@scripts/lab.mjs repeat $(or $(REPEATS),20) $(SCENARIOS)

test-lab-kernels: build ## Make runs of the lab on kernels with netem and control groups v2, in virtual machines (about 12 minutes)
	@scripts/setup.sh kernels
	@SPANGAP=target/release/spangap scripts/lab_machine.sh

test-deploy: ## Check what is below deploy/ by the programs that read it: Helm, Kubernetes' schemas, dpkg in a Debian of its own
	@scripts/setup.sh deploy
	@$(MAKE) --no-print-directory $(PAGE)
	cargo test --locked --package spangap --test deploy --test pages -- --show-output
	@scripts/deb_root.sh
	@scripts/collector.sh

test-kafka: build ## Run the meter on Kafka itself: kills of meters and of the broker, rebalances, every compression, TLS, SASL (about 5 minutes)
	@scripts/setup.sh kafka
	@scripts/kafka.sh $(PARTS)

test-collectors: build ## Run meters behind a Collector that distributes by trace id, one added and one killed under load; as root (about 3 minutes)
	@scripts/collectors.sh

test-parquet: build ## Read exported spans with DuckDB, pyarrow and the engine of ClickHouse (half a gigabyte to fetch, once)
	@scripts/setup.sh parquet
	@scripts/parquet.sh

test-clickhouse: ## Run the stores of minutes and the meter on ClickHouse's engine, a Python package of 0.5 GB
	@scripts/setup.sh clickhouse
	@$(MAKE) --no-print-directory $(PAGE)
	cargo test --locked --package spangap-meter --test stores -- --show-output
	cargo test --locked --package spangap --test meter -- --show-output clickhouse

bench-clickhouse: build ## Measure questions over 14 days of 10,000 pairs on ClickHouse's engine
	@scripts/setup.sh clickhouse
	@PYTHONPATH=target/tools/chdb python3 scripts/clickhouse/bench.py target/release/spangap $(BENCH_ARGS)

bench-fleet: build ## Measure a day of 10,000 services and 1,000,000 pair-minutes on one meter, by way of Kafka (about 10 minutes)
	@scripts/setup.sh kafka
	@scripts/kafka.sh fleet

test-kubernetes: build ## Install the chart on a Kubernetes of one node, made for it, with a fault among its pods; as root (20 CPU minutes once)
	@scripts/setup.sh kubernetes
	@scripts/kubernetes.sh

licences: ## Check the licences of all Rust packages that are linked in, and list these: target/package/spangap.cdx.json
	@scripts/setup.sh licences
	@scripts/licences.sh

packages: ## Make Debian packages and a container image in target/package, of a binary as fast as `make dist` that starts with glibc 2.28
	@scripts/setup.sh build
	@scripts/setup.sh packages
	@$(MAKE) --no-print-directory $(PAGE)
	@scripts/portable.sh
	@scripts/deb.sh
	@scripts/image.sh

test-packages: packages ## Install, use, upgrade and purge the packages in bare file systems of Debian 11 to 13; as root
	@scripts/setup.sh deploy
	@scripts/deb_root.sh bullseye bookworm trixie

lab-pages: build ## Make docs/lab anew from real runs; as root
	@scripts/lab.mjs pages $(SCENARIOS)

lint: ## Check format, clippy, the house rules, the page's types, the shell scripts
	@scripts/setup.sh lint
	@$(MAKE) --no-print-directory $(PAGE)
	@scripts/lint.sh

bench: dist ## Measure CPU per span, memory, truth and overload against the goals
	@scripts/setup.sh bench
	cargo build --profile dist --locked --package spangap-meter-bench
	target/dist/spangap-meter-bench $(BENCH_ARGS)

bench-check: build ## Tell what became slower than the committed figures say; BENCH_ARGS=--update writes them
	@scripts/setup.sh bench
	@scripts/baseline.sh
	cargo build --release --locked --package spangap-bench-check --package spangap-wire-bench --package spangap-meter-bench --package spangap-tank-bench --package spangap-host-bench
	target/release/spangap-bench-check $(BENCH_ARGS)

bench-tank: dist clients ## Measure tank against the plainest programs that do the same, and against its peers
	@scripts/setup.sh bench
	@scripts/baseline.sh
	cargo build --profile dist --locked --package spangap-tank-bench
	target/dist/spangap-tank-bench $(BENCH_ARGS)

bench-dissect: dist ## Measure dissect on captures with known truth, beside reading the bytes alone and beside tshark
	@scripts/setup.sh bench
	cargo build --profile dist --locked --package spangap-wire-bench
	target/dist/spangap-wire-bench bench $(BENCH_ARGS)

bench-hunt: dist ## Measure hunt on 100 MB that the lab records now, beside walking the packets alone; as root
	@scripts/setup.sh bench
	cargo build --profile dist --locked --package spangap-wire-bench
	target/dist/spangap-wire-bench hunt $(BENCH_ARGS)

story-a: build ## Replay: interrupts on the application's CPU
	@scripts/story.sh a

bench-host: dist ## Measure what the host probes cost those who are looked at, beside the distribution's tools; as root
	@scripts/setup.sh bench
	cargo build --profile dist --locked --package spangap-host-bench
	target/dist/spangap-host-bench $(BENCH_ARGS)

bench-agent: build ## Measure what an agent costs its host: the same load with and without one, by turns; as root
	cargo build --release --locked --package spangap-host-bench
	@scripts/bench_agent.mjs $(BENCH_ARGS)

soak-cases: build ## An hour of cases: whether the meter's and the agents' memory and descriptors stay level; as root
	@scripts/soak_cases.mjs $(SOAK_ARGS)

demo-faults: build ## Each fault of the demonstration: right verdict, by itself, after how long; some 20 minutes, as root
	@scripts/demo_faults.mjs $(FAULTS)

bench-isolate: dist ## Measure what isolate wins under a flood, and how long it takes on a large machine; as root
	@scripts/setup.sh bench
	cargo build --profile dist --locked --package spangap-isolate-bench
	target/dist/spangap-isolate-bench $(BENCH_ARGS)

bench-page: dist ## Measure the page over 10,000 pairs, and over 500 pairs of a day, in a real Chromium
	@scripts/setup.sh bench
	@scripts/setup.sh test
	cargo build --profile dist --locked --package spangap-meter-bench
	cd web && SPANGAP_BIN=../target/dist/spangap npm run --silent bench -- $(BENCH_ARGS)

story-b: build ## Replay: less load, more delay
	@scripts/story.sh b

story-c: build clients ## Replay: the client is the bottleneck
	@scripts/story.sh c

hunt-a: build ## Story A hunted: recorded, named by hunt, cured as it runs, undone
	@scripts/hunted.sh a

hunt-b: build ## Story B hunted: the same
	@scripts/hunted.sh b

hunt-c: build clients ## Story C hunted: the same
	@scripts/hunted.sh c

setup: ## Install what `make test`, `make lint` and `make bench` need
	@for stage in build clients test lint bench; do scripts/setup.sh $$stage; done

clean: ## Remove everything that was built
	cargo clean
	rm -rf web/dist web/node_modules

$(PAGE): $(PAGE_SOURCES)
	cd web && npm run --silent build
