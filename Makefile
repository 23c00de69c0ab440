# Tools are pinned in tools/go.mod and built on first use.
TOOL := go tool -modfile=tools/go.mod
BENCH ?= .
COUNT ?= 6

.PHONY: help test race lint fmt generate model bench gpu-build gpu-test ci

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

model: ## check the model of how ranks agree; needs spin and a C compiler
	sh internal/agree/model/check.sh

bench: ## run benchmarks and summarise them: make bench BENCH=AllReduce COUNT=10
	mkdir -p out
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... >out/bench.txt || (cat out/bench.txt; false)
	$(TOOL) benchstat out/bench.txt

gpu-build: ## build what tests a machine with a GPU, which needs no Go: out/gpu
	mkdir -p out/gpu
	CGO_ENABLED=0 go build -o out/gpu/gputest ./bench/gputest
	CGO_ENABLED=0 go test -c -o out/gpu/cuda.test ./cuda
	CGO_ENABLED=0 go test -c -o out/gpu/nccl.test ./nccl
	CGO_ENABLED=0 go test -c -o out/gpu/engine.test ./internal/engine/gpu
	CGO_ENABLED=0 go test -c -o out/gpu/gpu.test ./gpu

gpu-test: gpu-build ## test and measure on this machine's GPU; NCCL=/path/libnccl.so.2,/other chooses libraries
	out/gpu/gputest -dir out/gpu -nccl '$(NCCL)' -out out/gpu/summary.md

ci: ## all that a change must pass
	bash .ci/run
