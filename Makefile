# SPDX-License-Identifier: MIT OR Apache-2.0
# The commands of this repository, each one line; the work is cargo's and that of scripts/.
# On a fresh machine `make demo` or `make test` is all there is to do.

# demo: options for `pagewire demo`, as in: make demo ARGS=--stay
ARGS ?=
# fuzz: seconds for each target, and which targets (none named: all of them)
FUZZ_SECONDS ?= 10
FUZZ_TARGETS ?=
# suites: tests of the suite by a filter of cargo-nextest, as in: make test ONLY='test(seek)'
ONLY ?=
# test-attacks: milliseconds within which 99.9 % of the canary's packets arrive
CANARY_MS ?= 25
# soak: minutes that the channels play, and that a browser plays a recording in progress
CHANNEL_MINUTES ?= 10
LIVE_MINUTES ?= 10
export ONLY CANARY_MS CHANNEL_MINUTES LIVE_MINUTES
# engine-fuzz: seconds, and the seed of the random calls
ENGINE_FUZZ_SECONDS ?= 600
ENGINE_FUZZ_SEED ?= 1

# Where scripts/setup.sh puts Rust if there was none.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup web demo build test lint fmt test-clients test-attacks test-time test-kernel \
	test-lab fuzz soak test-all lab-soak lab-cameras engine-fuzz doc install clip deb deb-check \
	uml vectorise clean

help: ## this list
	@echo 'pagewire: streams and serves a folder of media on the cheapest path the kernel has'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo 'Suites of tests, with their minutes on 2 cores:'
	@echo
	@sed -nE 's/^([a-z-]+) +\| ([0-9]+) +\| (.*[^ ]) +\| (.*)/  make \1\t\2\t\3\t(\4)/p' \
		scripts/suites | expand -t 20,24,88
	@echo
	@echo 'demo and the suites set the machine up first and install only what is missing.'

setup: ## install what building and every suite need (only what is missing)
	@scripts/setup.sh suites

# What the page uses of npm; made anew when it changes. Without npm the page does without.
web: web/dist/LICENSES.txt ## bundle hls.js and QR codes for the page, by npm

web/dist/LICENSES.txt: web/package.json web/package-lock.json web/bundle.js
	@scripts/web.sh

demo: ## build it; stream, download and verify a clip on this machine (ARGS=--stay: go on)
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory web
	@echo 'demo: building pagewire; the first time takes a few minutes'
	@cargo build --release --package pagewire
	@echo 'demo: streaming and downloading the built-in clip on loopback'
	@cargo run --quiet --release --package pagewire -- demo $(ARGS)

build: ## the programs: target/release/pagewire and, for measuring, pagewire-lab beside it
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory web
	cargo build --release --package pagewire --package lab

# The suites: scripts/suites says what each is.
test:
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory web
	@scripts/test.sh test

test-clients test-attacks test-time test-kernel test-lab soak:
	@scripts/setup.sh suites
	@$(MAKE) --no-print-directory web
	@scripts/test.sh $@

test-all: ## every suite, one after the other, also after one that failed; ends with a table
	@scripts/setup.sh suites
	@$(MAKE) --no-print-directory web
	@scripts/test.sh test-all

lint: ## the part of test that runs nothing: format, clippy, licences
	@scripts/setup.sh test
	@scripts/test.sh lint

fmt: ## format the Rust code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

# With FUZZ_TARGETS="ts rtsp" only those.
fuzz:
	@scripts/setup.sh suites
	@fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Not of the suites: it is a measurement.
lab-soak: ## half an hour of viewers of every transport at 80 % of capacity; the result is committed
	$(MAKE) build
	target/release/pagewire-lab soak --folder out --json docs/measurements/soak.json

lab-cameras: ## ten minutes of 64 cameras beside ffmpeg (20 GB below out); the result is committed
	$(MAKE) build
	target/release/pagewire-lab cameras --seconds 600 --rounds 1 --folder out \
		--json docs/measurements/cameras.json

engine-fuzz: ## random calls to the in-kernel engine under KASAN, 10 minutes; the log is committed
	@nice kernel/rtp/fuzz.sh $(ENGINE_FUZZ_SECONDS) $(ENGINE_FUZZ_SEED)

doc: ## the documentation of the crates: target/doc
	cargo doc --workspace --no-deps --document-private-items

install: ## both programs into cargo's folder, ~/.cargo/bin, without their line tables
	@$(MAKE) --no-print-directory web
	CARGO_PROFILE_RELEASE_STRIP=debuginfo cargo install --locked --path pagewire
	CARGO_PROFILE_RELEASE_STRIP=debuginfo cargo install --locked --path lab

deb: ## Debian packages of the program and of the in-kernel engine: out/deb
	@scripts/setup.sh demo
	@packaging/build.sh

deb-check: deb ## lintian; installs in a clean chroot, plays a clip, purges (as root; 5 minutes)
	@packaging/check.sh

clip: ## make the demo's clip anew (needs ffmpeg; the result is committed)
	@scripts/make-clip.sh

uml: ## the kernel of the laboratory, User Mode Linux (5 minutes; cached; kernel/README.md)
	@kernel/uml/build.sh plain

vectorise: ## what GCC vectorises in the kernel by itself (8 minutes; the result is committed)
	@nice kernel/vectorise/run.sh

clean: ## remove what was built
	cargo clean
	cargo clean --manifest-path fuzz/Cargo.toml
	rm -rf out web/dist web/node_modules
