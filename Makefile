# SecureBench. `make` lists the targets. Everything that is built or downloaded lies in the user's cache folder.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/securebench
VENV := $(CACHE)/venv-$(shell cat tests/requirements.lock images/operator/build.lock | sha256sum | cut -c1-12)
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check
# The work tree that the environment's editable install points to.
SOURCE := $(CURDIR) $(shell sha256sum pyproject.toml | cut -c1-12)
NAMESPACE ?= securebench
TESTER ?= benchmarks/mmlu-abstract-algebra-mini/tester.yaml
GENERATED := crds charts docs/reference operator/securebench/schemas images/supervise/internal/specs/generated.go

# Sources of this work tree come first, whatever the shared environment points to.
export PYTHONPATH := $(CURDIR)/operator
export PATH := $(VENV)/bin:$(PATH)

CLUSTER := tests/cluster/cluster
# Recipes that use the cluster or its tools begin with this: kubeconfig and PATH, and the names of the images.
WITH_TOOLS = eval "$$($(CLUSTER) env)"; export PATH="$(VENV)/bin:$$PATH"
WITH_CLUSTER = $(WITH_TOOLS); set -a; . "$(CACHE)/images/tags.env"; set +a

# Tests that only compute go side by side, one process for each core.
PARALLEL ?= -n auto

# Tests on the node mostly wait: three lanes (tests/support/lanes.py) go side by side.
LANES := -n 3

# Threat cases without a run go in a second process, beside those that wait for the arena's runs.
BESIDE_ARENA := -n 2

# Those write many small files, which is quick in memory.
IN_MEMORY = TMPDIR=$$(tests/scratch.sh)

# $(call tier,FOLDER,OPTIONS,ENVIRONMENT): a tier without tests yet is no failure (pytest's exit code 5).
tier = if [ -d $(1) ]; then $(3) pytest $(1) $(2) || [ $$? -eq 5 ]; else echo "no tests in $(1)"; fi

# Says where the time of tests on the node goes.
SLOWEST := --durations 12 --durations-min 5

STAGES := setup lint type site unit property chaos-short wiring cluster supervise+image-tests golden+contract browser images cluster-tests threats-short e2e

.NOTPARALLEL:
.PHONY: help setup cluster cluster-down images overlays load load-core install run test verify lint type unit property golden contract \
	wiring supervise cluster-tests threats threats-short e2e chaos chaos-short bench bench-parts soak packs audits kills failover fuzz \
	generate clean outside run-agents provider-failures agents-at-once suites gitops kueue kms scale browser site sbom push bundle registry-named image-tests \
	sbom-tests screenshots dashboard harbor harbor-differential

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.complete ## Install the Python environment (locked, with hashes)
	@[ "$$(cat $(VENV)/.source 2>/dev/null)" = "$(SOURCE)" ] || { \
	  $(PIP) --no-deps --no-build-isolation --editable . && echo "$(SOURCE)" > $(VENV)/.source; }
	@ln -sfn $(VENV) $(CACHE)/venv

$(VENV)/.complete:
	@tests/cluster/packages.sh base
	rm -rf $(VENV)
	mkdir -p $(CACHE)
	$(PYTHON) -m venv $(VENV)
	@# The locks are complete. Without --no-deps pip 23 takes the newest release for a requirement with an extra (coverage[toml]).
	$(PIP) --no-deps --require-hashes -r tests/requirements.lock -r images/operator/build.lock
	$(VENV)/bin/pip check --disable-pip-version-check
	@touch $@

cluster: ## Start the local cluster (kind with Docker, otherwise a node built from Go modules)
	@$(CLUSTER) up

cluster-down: ## Stop the local cluster and remove what belongs to it
	@$(CLUSTER) down

images: ## Build the images that are not there yet
	@images/build.sh

# Which images sbom, push and bundle are about: core, the two of the chart, or all, those of packs too.
WHICH ?= core

sbom: ## Write what is in the images (WHICH=core|all, PLATFORMS) as CycloneDX documents, beside their archives
	@images/build.sh $(WHICH)
	@images/sbom.sh $(WHICH)

push: registry-named sbom ## Push the images (WHICH, PLATFORMS, TAG) to REGISTRY=host/path and print the chart's values that name them
	@images/push.sh "$(REGISTRY)" $(WHICH)

bundle: setup sbom ## Pack images (WHICH), chart, CRDs, schemas and command line into one archive, for clusters without a network
	@tests/cluster/build.sh helm
	@$(WITH_TOOLS); PYTHON="$(VENV)/bin/python" images/bundle.sh $(WHICH)

registry-named:
	@[ -n "$(REGISTRY)" ] || { echo "REGISTRY is empty: make push REGISTRY=registry.example.org/team" >&2; exit 1; }

load: cluster images ## Load all images into the local cluster
	@$(CLUSTER) load $$(images/build.sh archives)

overlays: cluster ## Build and load the images of the agents (not published: see images/README.md)
	@images/overlays/build.sh
	@$(CLUSTER) load $$(images/overlays/build.sh archives)

load-core: cluster ## Load the images that every run needs; task images of single packs are left out
	@images/build.sh core
	@$(CLUSTER) load $$(images/build.sh archives core)

# With the images of make overlays, where both have been built.
OVERLAYS = if [ -f "$(CACHE)/images/overlays.yaml" ]; then \
  $(CLUSTER) load $$(images/overlays/build.sh archives); overlays="--values $(CACHE)/images/overlays.yaml"; fi

install: load-core ## Install or upgrade the chart on the local cluster
	@$(WITH_TOOLS); kubectl apply --server-side --force-conflicts -f charts/securebench/crds >/dev/null  # Helm updates none
	@$(WITH_CLUSTER); $(OVERLAYS); helm upgrade --install securebench charts/securebench \
	  --namespace $(NAMESPACE) --create-namespace --wait --timeout 3m --values tests/cluster/values.yaml $${overlays:-} \
	  --set image.operator=$$SECUREBENCH_OPERATOR_IMAGE --set image.pod=$$SECUREBENCH_POD_IMAGE

run: setup install ## Run a real pack on the local cluster, from nothing to candidates.jsonl
	@$(WITH_CLUSTER); securebench run --namespace $(NAMESPACE) --config $(TESTER)
	@echo 'make run is done; what it calls FAIL are wrong answers of the agent. Next, in your shell:'
	@echo '  eval "$$($(CURDIR)/tests/cluster/cluster env)"; export PATH="$(VENV)/bin:$$PATH"'
	@echo '  kubectl config set-context --current --namespace $(NAMESPACE)'
	@echo 'and then the tutorial: docs/tutorial.md'

test: ## Run every tier; the closing lines of all come last
	@.ci/stages $(STAGES)

generate: setup ## Write the CRDs, the chart's copy of them, the JSON Schemas and the reference for pack authors
	@python -m securebench.controller.install.generate
	@python -m securebench.reference.generate

verify: generate lint type ## Generated files are up to date, lint and types hold
	@git diff --exit-code
	@test -z "$$(git status --porcelain -- $(GENERATED))" || { git status --short -- $(GENERATED); exit 1; }

lint: setup ## Format, lint, import contracts, spelling, YAML, shell and Go
	@ruff check --output-format concise .
	@ruff format --check .
	@lint-imports
	@codespell --ignore-words-list notin,caf,comand,abd,ue,te,regraded,ans,nd,testng,onl --skip 'tests/e2e/scenarios/*,tests/unit/docs/schemas/*,tests/fuzz/corpus/*,images/supervise/internal/*/testdata/*,tests/gitops/*/go.sum,tests/kms/service/go.sum,tests/kueue/*/go.sum,benchmarks/*/tasks.jsonl,benchmarks/*/oracle/*,tests/packs/bad-pack/*,tests/unit/agents/providers/measured_requests.json' operator tests docs images charts benchmarks Makefile *.md
	@yamllint --strict .
	@shellcheck -x $$(git ls-files --cached --others --exclude-standard -- '*.sh' ':!benchmarks' ':!tests/e2e/scenarios' ':!tests/packs' tests/cluster/cluster tests/outside/outside .ci/run .ci/stages)
	@test -z "$$(gofmt -l images/supervise tests/gitops)" || { gofmt -d images/supervise tests/gitops; exit 1; }
	@cd images/supervise && CGO_ENABLED=0 go vet ./...

type: setup ## Static types (mypy strict)
	@mypy --cache-dir "$(CACHE)/mypy"

site: setup ## Build the documentation as a site in the cache folder, offline; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict --config-file docs/site/mkdocs.yml --site-dir "$(CACHE)/site"

unit: setup ## Unit tests, those of the fake internet too
	@tests/cluster/packages.sh base
	@$(call tier,tests/unit,tests/outside $(PARALLEL),$(IN_MEMORY))

property: setup ## Property tests and the machine model
	@$(call tier,tests/property,tests/fuzz $(PARALLEL),$(IN_MEMORY))

golden: setup ## Rendered manifests, CRDs and chart against files
	@tests/cluster/packages.sh base monitoring && tests/cluster/build.sh helm
	@$(WITH_TOOLS); $(call tier,tests/golden,,$(IN_MEMORY))

image-tests: setup ## Images pushed to a real registry, packed and restored
	@tests/cluster/packages.sh registry && tests/cluster/build.sh helm
	@$(WITH_TOOLS); $(call tier,tests/images)

sbom-tests: setup sbom ## SBOMs, labels and platforms of the built images (builds syft, some minutes the first time)
	@pytest tests/images -m slow

browser: setup ## Reports in headless Chromium
	@tests/cluster/packages.sh browser
	@$(call tier,tests/browser)

screenshots: setup install ## Run a pack with two agents and draw docs/images: live view, report, comparison
	@tests/cluster/packages.sh browser
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m browser.screenshots --namespace $(NAMESPACE)

# Seconds of metrics that make dashboard draws.
DASHBOARD_SECONDS ?= 900

dashboard: setup cluster ## Draw the panels of the Grafana dashboard from the metrics of runs that go on meanwhile, such as those of make soak
	@tests/cluster/packages.sh monitoring
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m browser.panels --namespace $(NAMESPACE) --seconds $(DASHBOARD_SECONDS)

contract: setup load-core ## The same tests against the fake and the real API server
	@$(WITH_TOOLS); $(call tier,tests/contract)

wiring: setup ## kopf handlers
	@$(call tier,tests/wiring,$(PARALLEL),$(IN_MEMORY))

supervise: ## Tests of the Go program supervise
	@# One package after the other: several take ports of this machine and measure times.
	@cd images/supervise && CGO_ENABLED=0 go test -p 1 ./...

cluster-tests: setup load ## Pods on the local cluster: network, threats, crashes
	@$(WITH_CLUSTER); $(call tier,tests/cluster,-m "cluster and not slow" $(LANES) $(SLOWEST))

threats-short: setup load outside ## Threat cases: each mechanism once
	@tests/cluster/packages.sh browser
	@$(WITH_CLUSTER); $(call tier,tests/threats,-m short $(BESIDE_ARENA) $(SLOWEST))

threats: setup load overlays outside ## Every threat case with its weakened twin; THREATS_REPORT names a file for the table as JSON
	@tests/cluster/packages.sh browser
	@$(WITH_CLUSTER); THREATS_WHOLE=1 pytest tests/threats && pytest tests/e2e/test_scenarios.py -m slow

e2e: setup load ## The chart installed, whole packs run, records compared
	@tests/cluster/packages.sh monitoring
	@$(WITH_CLUSTER); $(call tier,tests/e2e,$(LANES) $(SLOWEST))

chaos-short: setup ## Each kind of fault once, against the fake cluster
	@$(call tier,tests/chaos,$(PARALLEL) -m "not cluster and not slow",$(IN_MEMORY))

chaos: setup load ## An operator that dies at any effect, and more than 500 injected faults on the fake cluster and the node; CHAOS_REPORT names a file for the table as JSON
	@$(IN_MEMORY) pytest tests/property/test_machine_model.py -m slow $(PARALLEL)
	@$(WITH_CLUSTER); pytest tests/chaos -m "slow or not slow"

# What make bench measures: kinds of tasks, IN_FLIGHTxTASKS of each run, and how often the floor and we run in turn.
BENCH_KINDS ?= text,terminal,code,text+egress
BENCH_FLIGHTS ?= 1x4,8x32,24x48
BENCH_ROUNDS ?= 3

bench: setup install ## Measure ratios to the bare floor, and where CPU, requests and time go (BENCH_KINDS, BENCH_FLIGHTS, BENCH_ROUNDS)
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m bench --namespace $(NAMESPACE) \
	  --kinds $(BENCH_KINDS) --flights $(BENCH_FLIGHTS) --rounds $(BENCH_ROUNDS)

bench-parts: setup install ## Measure the gateway, isolation, the parts of a Pod, and the operator's memory beside hostile patches
	@$(WITH_CLUSTER); python tests/bench/isolation.py --namespace $(NAMESPACE)
	@$(WITH_CLUSTER); python tests/bench/hostile.py --namespace $(NAMESPACE)
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m bench.pod_parts --namespace $(NAMESPACE)
	@python tests/bench/gateway.py
	@PYTHONPATH=$(PYTHONPATH):tests python -m bench.provider_calls

# Seconds of make soak.
SOAK_SECONDS ?= 7200

soak: setup install ## Runs one after the other for SOAK_SECONDS: memory and descriptors of the operator over time
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m bench.soak --namespace $(NAMESPACE) --seconds $(SOAK_SECONDS)

house: setup ## Count modules, lines, imports and value classes, and trace the way of a row and of a patch (BEFORE=commit beside it)
	@python tests/house/__main__.py $(if $(BEFORE),--before $(BEFORE))

# What make scale measures. Without a cluster: decisions on a run of SCALE_TASKS tasks, and the export of SCALE_RECORDS records (0: none).
# Against the API server: SCALE_STEPS of ratio, sizes, flights, runs, restart; runs of SCALE_SIZES tasks, SCALE_COMPARED tasks beside the
# bare client for SCALE_ROUNDS rounds, SCALE_FLIGHTS Pods at once, SCALE_RUNS runs at once, SCALE_RESTART finished and live attempts.
SCALE_TASKS ?= 10000
SCALE_RECORDS ?= 10000
SCALE_STEPS ?= ratio,sizes,flights,runs,restart
SCALE_SIZES ?= 100,1000,$(SCALE_TASKS)
SCALE_COMPARED ?= 1000
SCALE_ROUNDS ?= 3
SCALE_PARALLELISM ?= 100
SCALE_SECONDS ?= 1
SCALE_FLIGHTS ?= 1000,5000
SCALE_RUNS ?= 50
SCALE_RESTART ?= 10000,1000

scale: setup ## Measure a run of SCALE_TASKS tasks: decisions and export, then against the API server with simulated nodes (SCALE_PLOT=file.svg)
	@PYTHONPATH=$(PYTHONPATH):tests python -m scale.decisions --tasks $(SCALE_TASKS) --records $(SCALE_RECORDS)
	@PYTHONPATH=$(PYTHONPATH):tests python -m scale.statements --records $(SCALE_RECORDS)
	@tests/cluster/packages.sh browser
	@PYTHONPATH=$(PYTHONPATH):tests python -m scale.report --records $(SCALE_RECORDS)
	@$(WITH_TOOLS); PYTHONPATH=$(PYTHONPATH):tests python -m scale.cluster --steps $(SCALE_STEPS) --sizes $(SCALE_SIZES) \
	  --compared $(SCALE_COMPARED) --rounds $(SCALE_ROUNDS) --parallelism $(SCALE_PARALLELISM) --seconds $(SCALE_SECONDS) \
	  --flights $(SCALE_FLIGHTS) --runs $(SCALE_RUNS) --restart $(SCALE_RESTART) $(if $(SCALE_PLOT),--plot $(SCALE_PLOT))

packs: setup install load ## Every runnable pack with its own answers and with none: 1.0 and 0.0, graded again, and pulled from a registry; those of init
	@tests/cluster/packages.sh registry
	@pytest tests/unit/benchmarks -m slow
	@$(WITH_CLUSTER); pytest tests/cluster/test_init_packs.py -m slow
	@$(WITH_CLUSTER); python tests/packs/packs.py --namespace $(NAMESPACE)
	@$(WITH_CLUSTER); pytest tests/e2e/test_regrades.py tests/e2e/test_pack_images.py -m slow

harbor: setup install load ## The Harbor task folders of this repository with their solutions and with nothing: reward 1.0 and 0.0
	@$(WITH_CLUSTER); python tests/packs/packs.py --namespace $(NAMESPACE) harbor-tasks/tasks

audits: setup install load ## Audit every pack of ours, which must be clean, and a bad one, which must not be
	@images/build.sh bad-pack
	@$(CLUSTER) load $$(images/build.sh archives)
	@$(WITH_CLUSTER); python tests/packs/audits.py --namespace $(NAMESPACE) --images "$(CACHE)/images/archives"

outside: setup cluster ## Start the fake internet of the local node (tests/outside)
	@tests/outside/outside up

run-agents: setup load overlays outside ## Real agents solve tasks of three packs; the provider is a fake
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m outside.run_agents

provider-failures: setup load overlays outside ## A provider that fails in the middle of a run: what each failure becomes
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m outside.provider_failures

# Agents that are on the node at once, and the calls of each; they have to outlast the start of all others.
AGENTS ?= 60
AGENT_CALLS ?= 28

agents-at-once: setup load overlays outside ## AGENTS real agents at once that wait for their model: memory beside each, what the gateway adds to a call
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m outside.agents_at_once --agents $(AGENTS) --calls $(AGENT_CALLS)

suites: setup load overlays outside ## A suite of real agents with a token budget that is too small, and a suite that a look stops: what each says
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m outside.suites

gitops: setup load-core ## A suite in git, applied by Flux and judged by Argo CD (both from Go modules): commit, runs, health
	@tests/gitops/build.sh
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m gitops

kms: setup ## Statements signed by a key management service (AWS's API, from a Go module), which is lost, hangs and has another key
	@tests/kms/build.sh
	@PYTHONPATH=$(PYTHONPATH):$(CACHE)/kms/python pytest tests/kms -m slow

harbor-differential: setup ## Harbor task folders and exported jobs, read by SecureBench and by the classes of the package harbor (HARBOR_PYTHON, RECORD=1)
	@PYTHONPATH=$(PYTHONPATH):tests python -m harbor_folders --python "$$(tests/harbor_folders/environment.sh)" $(if $(RECORD),--record)

kueue: setup load-core ## Runs in a queue of Kueue (its controller from its Go module): waiting, quota, preemption, deletion
	@tests/kueue/build.sh
	@$(WITH_CLUSTER); PYTHONPATH=$(PYTHONPATH):tests python -m kueue

failover: setup load ## Take the operator that works away 10 times in a run with two of them; print the seconds
	@$(WITH_CLUSTER); pytest tests/cluster/test_failover.py -m slow -s

kills: setup load ## Kill the operator 20 times in a 40-task run and compare the records
	@$(WITH_CLUSTER); pytest tests/cluster/test_kills.py -m slow -s

# PACKAGE/TARGET, packages below images/supervise/internal.
FUZZ_TARGETS := specs/FuzzDecodeRun specs/FuzzDecodeEgress specs/FuzzDecodeProbe repository/FuzzDecodeOthers outcome/FuzzMessage \
	staging/FuzzUnpack staging/FuzzUnpackEntries staging/FuzzChangeRoot egress/FuzzPreface egress/FuzzReply \
	courier/FuzzDecodeCourier courier/FuzzStreamText courier/FuzzSeal
FUZZ_SECONDS ?= 600

fuzz: setup ## Fuzz what untrusted bytes reach first, FUZZ_SECONDS each; compare 100,000 scorer cases
	@pytest tests/property/test_scorers_differential.py -m slow
	@FUZZ_SECONDS=$(FUZZ_SECONDS) pytest tests/fuzz
	@cd images/supervise && for each in $(FUZZ_TARGETS); do \
	  CGO_ENABLED=0 go test -run '^$$' -fuzz "^$${each#*/}\$$" -fuzztime $(FUZZ_SECONDS)s "./internal/$${each%/*}"; done

clean: ## Remove what tools left in the work tree (not the cache folder)
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage build dist operator/*.egg-info
