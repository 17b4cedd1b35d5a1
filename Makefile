# SPDX-License-Identifier: Apache-2.0
# What a user types. CMake does the building; scripts/deps installs Debian packages where allowed.
.PHONY: all deps build demo test test-field sanitize soak bench fuzz docs install clean
BUILD ?= build

all: build

deps:
	@scripts/deps build

build: deps
	@test -f $(BUILD)/build.ninja || cmake --preset release -B $(BUILD) -DHONE_TESTS=OFF >/dev/null
	@cmake --build $(BUILD) -- --quiet

demo:
	@scripts/deps build demo
	@$(MAKE) --no-print-directory build
	@scripts/demo

test:
	@scripts/deps build test
	@cmake --preset release -B $(BUILD) -DHONE_TESTS=ON >/dev/null
	@cmake --build $(BUILD) -- --quiet
	@scripts/checks
	@scripts/peers --again >/dev/null || true
	@ctest --test-dir $(BUILD) --output-on-failure -j2 -LE field

# The same on real models, telemetry and topologies that lie in ../shared; skipped where they do not.
test-field:
	@ctest --test-dir $(BUILD) --output-on-failure -j2 -L field

# Ten minutes of 8 replayed cards at 100 Hz under Debian's Prometheus: no gap, flat memory, pages under 5 ms.
SOAK_SECONDS ?= 600
soak:
	@scripts/deps build test
	@cmake --preset release -B $(BUILD) -DHONE_TESTS=ON >/dev/null
	@cmake --build $(BUILD) -- --quiet
	@python3 tests/fleet/scrape.py $(BUILD)/hone . $(BUILD) $(SOAK_SECONDS) --soak

# The tests again, in builds that look closer: clang with warnings as errors, assertions, address and
# undefined-behaviour sanitizers, thread sanitizer. One after the other; SANITIZE names fewer.
SANITIZE ?= clang debug asan tsan
sanitize:
	@scripts/deps build test fuzz
	@for preset in $(SANITIZE); do \
	    cmake --preset $$preset -DHONE_TESTS=ON >/dev/null && cmake --build build-$$preset -- --quiet && \
	    ctest --test-dir build-$$preset --output-on-failure -j2 -LE field || exit 1; echo "$$preset: nothing found"; done

# Every fuzz target for FUZZ_SECONDS, from the seeds in tests/fuzz/corpus_<name>; stops at the first find.
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/deps build fuzz
	@cmake --preset fuzz >/dev/null
	@cmake --build build-fuzz -- --quiet
	@for target in build-fuzz/fuzz/fuzz_*; do \
	    seeds=tests/fuzz/corpus_$${target##*/fuzz_}; found=build-fuzz/corpus/$${target##*/}; mkdir -p $$found; \
	    test -d $$seeds || seeds=; \
	    $$target -max_total_time=$(FUZZ_SECONDS) -timeout=20 -print_final_stats=0 -verbosity=0 \
	        -artifact_prefix=build-fuzz/ $$found $$seeds || exit 1; echo "$$target: nothing found"; \
	done

# Latency, throughput and memory of MODELS on this machine, with one thread and with all.
MODELS ?= examples/fashion/fashion_resnet.onnx
bench: build
	@for model in $(MODELS); do for threads in 1 0; do \
	    $(BUILD)/hone bench $$model --threads $$threads || exit; done; done

# The reference pages of docs/ from the tables: ops, passes, settings, commands.
docs: build
	@scripts/deps docs
	@scripts/gen-docs $(BUILD)/hone

# Into PREFIX (default /usr/local), below DESTDIR where that is set.
PREFIX ?= /usr/local
install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

clean:
	rm -rf build build-*
