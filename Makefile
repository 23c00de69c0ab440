# Tools are pinned in tools/go.mod and built on first use.
TOOL := go tool -modfile=tools/go.mod
BENCH ?= .
COUNT ?= 6
SEEDS ?= 10000
FROM ?= 0
# What is carried to a machine with a GPU should be small.
STRIPPED := -ldflags="-s -w"

.PHONY: help test race lint fmt generate model bench simulate gpu-build gpu-open gpu-test release ci

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

test: ## run the tests
	go test ./...

race: ## run the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -shuffle=on ./...

lint: ## vet and lint
	go vet ./...
	$(TOOL) golangci-lint run ./...

fmt: ## format all Go files
	$(TOOL) gofumpt -l -w .

generate: ## rewrite the generated assembly
	go generate ./internal/kernel

model: ## check the models of how ranks agree and of the control channel; needs spin and a C compiler
	sh internal/agree/model/check.sh
	sh internal/overlay/model/check.sh

bench: ## run benchmarks and summarise them: make bench BENCH=AllReduce COUNT=10
	mkdir -p out
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... >out/bench.txt || (cat out/bench.txt; false)
	$(TOOL) benchstat out/bench.txt

# It stops at the first seed that fails, and says how to repeat it.
simulate: ## run SEEDS simulated jobs with faults, from seed FROM on; adds to the table out/simulate.md
	mkdir -p out
	GOGC=400 go test -p 1 ./internal/sim ./tuttitest -run 'Seeds$$' -timeout 0 -seeds $(SEEDS) -from $(FROM) -record $(CURDIR)/out/simulate.md
	cat out/simulate.md

gpu-build: ## build what tests a machine with a GPU, which needs no Go: out/gpu
	mkdir -p out/gpu
	CGO_ENABLED=0 go build $(STRIPPED) -o out/gpu/gputest ./bench/gputest
	CGO_ENABLED=0 go build $(STRIPPED) -o out/gpu/tutti ./cmd/tutti
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/gpu/cuda.test ./cuda
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/gpu/nccl.test ./nccl
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/gpu/engine.test ./internal/engine/gpu
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/gpu/gpu.test ./gpu
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/gpu/torch.test ./torch
	CGO_ENABLED=0 go build $(STRIPPED) -o out/gpu/weightsync ./examples/weightsync
	cp examples/weightsync/weights.py out/gpu/

# OLD=commit adds that commit's gputest, to be measured beside this one.
gpu-open: ## build what is still to be shown on a GPU: out/open, see bench/gputest/open.sh
	rm -rf out/open
	mkdir -p out/open
	CGO_ENABLED=0 go build $(STRIPPED) -o out/open/ ./bench/gputest ./bench/faults ./cmd/tutti
	CGO_ENABLED=0 go test $(STRIPPED) -c -o out/open/engine.test ./internal/engine/gpu
	cp bench/gputest/open.sh out/open/
	if [ -n '$(OLD)' ]; then \
		mkdir out/open/old && git archive '$(OLD)' | tar x -C out/open/old && \
		(cd out/open/old && CGO_ENABLED=0 go build -buildvcs=false $(STRIPPED) -o ../gputest.old ./bench/gputest) && \
		rm -rf out/open/old; \
	fi

gpu-test: gpu-build ## test and measure on this machine's GPU; NCCL=/path/libnccl.so.2,/other chooses libraries
	out/gpu/gputest -dir out/gpu -nccl '$(NCCL)' -out out/gpu/summary.md

# The full binary needs glibc, because it can load the libraries of GPUs; the
# static one needs nothing, and there are no such GPUs in a Mac. The commit is in all
# of them, whatever GOFLAGS says: tutti version shows it.
RELEASE := CGO_ENABLED=0 go build -buildvcs=true -trimpath -ldflags=-s
release: ## build tutti for each platform: out/release, with checksums (docs/guide/deploying.md)
	rm -rf out/release
	mkdir -p out/release
	for arch in amd64 arm64; do \
		GOOS=linux GOARCH=$$arch $(RELEASE) -o out/release/tutti-linux-$$arch ./cmd/tutti && \
		GOOS=linux GOARCH=$$arch $(RELEASE) -tags nogpu -o out/release/tutti-linux-$$arch-static ./cmd/tutti && \
		GOOS=darwin GOARCH=$$arch $(RELEASE) -tags nogpu -o out/release/tutti-darwin-$$arch ./cmd/tutti || exit 1; \
	done
	cd out/release && sha256sum tutti-* >SHA256SUMS
	for f in out/release/tutti-*; do go version -m $$f | grep -q 'vcs.revision=' || { echo "$$f has no commit in it"; exit 1; }; done

ci: ## all that a change must pass
	bash .ci/run
