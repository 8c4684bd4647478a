# Tests, checks, demo, install: what one does with a build. Included by the Makefile.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
# mpirun of Open MPI refuses more ranks than cores unless told; MPICH's does not know the flag
MPIRUN_FLAGS ?= $(if $(shell $(MPIRUN) --version 2>/dev/null | grep -i 'open mpi\|openrte'),--oversubscribe --bind-to none)

# MPI is not instrumented: only what our own code does to memory. Nor is gcc's OpenMP: one thread a
# team; clang's tells the sanitizer of its barriers (libarcher)
ifeq ($(SAN),thread)
ifneq ($(CLANG),)
export KMP_BLOCKTIME ?= 0
else
export OMP_NUM_THREADS ?= 1
export OMP_THREAD_LIMIT ?= 1# of teams that tests make larger
endif
export TSAN_OPTIONS ?= suppressions=$(CURDIR)/scripts/tsan.supp ignore_noninstrumented_modules=1
endif

R := $(B)/results
RUN := scripts/run_test.sh $(R)

# ---- what a user runs: first what is missing gets installed, then make reads pkg-config anew
.PHONY: demo test test-long
demo test test-long:
	$(Q)MPICC=$(MPICC) MPIRUN=$(MPIRUN) scripts/setup.sh
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory do-$@

.PHONY: do-demo do-test do-test-long
do-demo:
	$(Q)CORTADO=$(CURDIR)/$(B)/cortado MPIRUN="$(MPIRUN)" MPIRUN_FLAGS="$(MPIRUN_FLAGS)" scripts/demo.sh

# what scripts look at in the sources and the docs, each by a script of that name
CHECKS := includes names sizes exchange layers codecs collectives update_rules verbs json format docs

# all test programs are built before the first runs
do-test: $(UNIT_BIN) $(MPI_BIN) $(CLI_BIN)
	$(Q)rm -rf $(R)
	$(Q)if command -v smpicc >/dev/null; then \
	    $(MAKE) --no-print-directory SIMGRID=1 MPICC=smpicc B=build/smpicc SAN= CUDA=0 all; fi
	$(Q)for c in $(CHECKS); do $(RUN) check/$$c scripts/check_$$c.sh || exit 1; done
	$(Q)$(RUN) check/headers scripts/check_headers.sh $(CC) $(CPPFLAGS) -std=c11 -fopenmp
	$(Q)$(MAKE) --no-print-directory STRICT=0 test-unit
	$(Q)$(MAKE) --no-print-directory STRICT=0 test-mpi
	$(Q)$(MAKE) --no-print-directory STRICT=0 test-cli
	$(Q)$(MAKE) --no-print-directory STRICT=0 test-slurm
	$(Q)scripts/test_summary.sh $(R)

do-test-long: $(B)/cortado $(LONG_BIN) $(B)/tests/mpi/test_drawn_sums $(B)/tests/mpi/test_sparse_allreduce $(B)/tests/bench/http_load
	$(Q)rm -rf $(R)
	$(Q)for t in $(sort $(wildcard tests/long/*.sh)); do $(TEST_ENV) $(RUN) $$t sh $$t; done
	$(Q)scripts/test_summary.sh $(R)

# ---- parts of it; STRICT=1 (the default) stops at the first failure
# make test-unit T=conv runs only tests/unit/test_conv*
# Unit tests run two at a time: most use one core. Scripts run four at a time, since they wait a third
# of their time: for jobs that begin and end, for servers and watchdogs. Threads that wait leave the core
# to another program (gcc's OpenMP), and so do ranks (Open MPI). Scripts with a line "# alone: WHY" run
# one by one; those with "# long: WHY" begin first, so that none is left over at the end. Tests of ranks
# run two at a time up to two ranks; more of them are never idle. Jobs start in half the time where Open
# MPI looks at no network's library, PMIx keeps its table in memory that is not shared, and hwloc loads
# none of its plugins (for screens): on one host they would not use them. hwloc leaves out devices on PCI,
# too: in a virtual machine reading about them was a quarter of what a job of two ranks takes to start.
STRICT ?= 1
QUIET := OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1
AT_ONCE = $(QUIET) xargs -P $(1) -I{} sh -c
TEST_ENV = CORTADO=$(CURDIR)/$(B)/cortado MPIRUN="$(MPIRUN)" MPIRUN_FLAGS="$(MPIRUN_FLAGS)" ROOT=$(CURDIR) FORGE=$(CURDIR)/$(B)/tests/cli/forge
do-test test-unit test-mpi test-cli test-slurm: export OMPI_MCA_pml ?= ob1
do-test test-unit test-mpi test-cli test-slurm: export PMIX_MCA_gds ?= hash
do-test test-unit test-mpi test-cli test-slurm: export HWLOC_PLUGINS_PATH ?= /
do-test test-unit test-mpi test-cli test-slurm: export HWLOC_COMPONENTS ?= -linux:pci
# Python keeps what it compiles: packages of build/venv are imported by hundreds of short programs
do-test test-unit test-mpi test-cli test-slurm: export PYTHONDONTWRITEBYTECODE :=
.PHONY: test-unit test-mpi test-cli check check-werror bench fuzz docs format clean distclean install
test-unit: $(or $(filter $(B)/tests/unit/test_$(T)%,$(UNIT_BIN)),no-such-test) | $(MODELS)
	$(Q)printf '%s\n' $(^:$(B)/tests/%=%) | STRICT=$(STRICT) $(call AT_ONCE,2) '$(RUN) {} $(B)/tests/{} || exit 255'

# a line for each job: how many ranks, and the name
MPI_JOBS = for t in $(^:$(B)/tests/%=%); do for n in 1 2 3 4 $$(case $$t in */test_coll) echo 5 6 7 8 ;; */test_parts) echo 7 8 ;; \
    */test_split) echo 5 7 ;; */test_code*) echo 5 ;; */test_sparse_allreduce) echo 5 6 7 8 9 ;; esac); do echo "$$n $$t"; done; done
MPI_RUN = STRICT=$(STRICT) LSAN_OPTIONS=exitcode=0 $(call AT_ONCE,$(1)) 'set -- {}; $(RUN) "$$2 -np $$1" $(MPIRUN) $(MPIRUN_FLAGS) -np $$1 $(B)/tests/$$2 || exit 255'
test-mpi: $(or $(filter $(B)/tests/mpi/test_$(T)%,$(MPI_BIN)),no-such-test)
	$(Q)$(MPI_JOBS) | grep '^[12] ' | $(call MPI_RUN,2)
	$(Q)$(MPI_JOBS) | grep -v '^[12] ' | $(call MPI_RUN,1)

# a name that is none must not look like a success
.PHONY: no-such-test
no-such-test:
	@echo "no test of this kind begins with test_$(T)" >&2; exit 2

CLI := $(sort $(wildcard tests/cli/test_$(T)*.sh))
CLI_ALONE = $(shell grep -l '^. alone: ' $(CLI) /dev/null)
CLI_LONG = $(shell grep -l '^. long: ' $(CLI) /dev/null)
CLI_BESIDE = $(filter-out $(CLI_ALONE),$(CLI_LONG) $(filter-out $(CLI_LONG),$(CLI)))
CLI_ENV = STRICT=$(STRICT) $(TEST_ENV) ASAN_OPTIONS=detect_leaks=0
test-cli: $(B)/cortado $(CLI_BIN) $(if $(CLI),,no-such-test)
	$(Q)printf '%s\n' $(patsubst tests/%,%,$(CLI_BESIDE)) | \
	    $(CLI_ENV) $(call AT_ONCE,4) 'test -z "{}" || $(RUN) {} sh tests/{} || exit 255'
	$(Q)for t in $(CLI_ALONE); do $(CLI_ENV) $(RUN) $${t#tests/} sh $$t || exit 1; done

# a real Slurm cluster on this machine, where slurmctld and slurmd are there and we are root
.PHONY: test-slurm
test-slurm: $(B)/cortado
	$(Q)STRICT=$(STRICT) $(TEST_ENV) ASAN_OPTIONS=detect_leaks=0 $(RUN) slurm/test_slurm bash tests/slurm/test_slurm.sh

# ---- on a GPU: each builds with CUDA=1 and says "no GPU: nothing run" where none works, exit code 77
GPU_BUILD := build/cuda
# what scripts/gpu/test.sh names; the first needs the stand-ins, whose algorithms fail when told to
GPU_TESTS := cuda_algorithm $(shell sed -n -e 's/^layers=.*:-\(.*\)}$$/\1/p' -e 's/^.*tests\/unit\/test_\([a-z_]*\)".*$$/\1/p' scripts/gpu/test.sh)
GPU_BENCH := bench_gpu bench_gpu_cells bench_gpu_products
.PHONY: test-gpu bench-gpu gpu-bundle gpu-programs test-emulated
gpu-programs:
	$(Q)$(MAKE) --no-print-directory CUDA=1 B=$(GPU_BUILD) $(GPU_BUILD)/cortado \
	    $(GPU_BENCH:%=$(GPU_BUILD)/tests/bench/%) $(GPU_TESTS:%=$(GPU_BUILD)/tests/unit/test_%)
test-gpu: gpu-programs
	$(Q)scripts/gpu/test.sh $(GPU_BUILD)
bench-gpu: gpu-programs
	$(Q)scripts/gpu/bench.sh $(GPU_BUILD)
# one folder for nodes on which nothing can be built: scripts/gpu/test.sh build/gpu-bundle there
gpu-bundle: gpu-programs
	$(Q)scripts/gpu/bundle.sh $(GPU_BUILD) build/gpu-bundle

# the same tests without a GPU, kernels as loops on the host: tests/emulated_cuda; benches are linked, not run
EMULATED := $(filter $(T)%,solver state_storage update_place $(GPU_TESTS))
EMULATED_MPI := auto_device device_codec
test-emulated:
	$(Q)$(MAKE) --no-print-directory CUDA=emulated do-test-emulated
.PHONY: do-test-emulated
do-test-emulated: $(EMULATED:%=$(B)/tests/unit/test_%) $(EMULATED_MPI:%=$(B)/tests/mpi/test_%) $(B)/cortado $(GPU_BENCH:%=$(B)/tests/bench/%)
	$(Q)for t in $(filter $(B)/tests/unit/%,$^); do STRICT=$(STRICT) CORTADO_TEST_DEVICE=cuda $(RUN) emulated/$$(basename $$t) $$t || exit 1; done
	$(Q)for t in $(filter %/test_cuda %/test_cuda_cell %/test_cuda_cell_net %/test_cuda_last %/test_cuda_narrow %/test_cuda_norm %/test_cuda_plan,$^); do STRICT=$(STRICT) \
	    CORTADO_EMULATED_CUDNN=1 $(RUN) emulated/$$(basename $$t)_cudnn $$t || exit 1; done
	$(Q)for t in $(EMULATED_MPI); do for n in 1 2 3 4; do STRICT=$(STRICT) $(RUN) "emulated/test_$$t -np $$n" \
	    $(MPIRUN) $(MPIRUN_FLAGS) -np $$n $(B)/tests/mpi/test_$$t || exit 1; done; done
	$(Q)STRICT=$(STRICT) $(TEST_ENV) $(RUN) emulated/gpu sh tests/cli/test_gpu.sh
	$(Q)STRICT=$(STRICT) $(TEST_ENV) $(RUN) emulated/gpu_sums sh tests/cli/test_gpu_sums.sh
	$(Q)STRICT=$(STRICT) $(TEST_ENV) $(RUN) emulated/gpu_divided sh tests/cli/test_gpu_divided.sh

# ---- make check: nothing runs, everything is looked at
check: $(PB).h $(ONNX_PB).h $(B)/build_info.h
	$(Q)for c in $(CHECKS); do scripts/check_$$c.sh || exit 1; done
	$(Q)scripts/check_headers.sh $(CC) $(CPPFLAGS) -std=c11 -fopenmp
	$(Q)$(MAKE) --no-print-directory WERROR=1 B=$(B)-werror $(B)-werror/cortado \
	    $(patsubst %.c,$(B)-werror/%.o,$(UNIT) $(MPI)) $(patsubst $(B)/%,$(B)-werror/%.o,$(CLI_BIN) $(BENCH_BIN) $(LONG_BIN))
	$(Q)if command -v smpicc >/dev/null; then \
	    $(MAKE) --no-print-directory SIMGRID=1 MPICC=smpicc B=build/smpicc all && \
	    $(MAKE) --no-print-directory SIMGRID=1 MPICC=smpicc SIM_REAL=1 B=build/smpicc-real build/smpicc-real/tests/bench/bench_exchange; \
	    else echo "check: no smpicc: the simulator was not linked"; fi
	$(Q)if [ "$(HAVE_DNNL)" = 1 ]; then $(MAKE) --no-print-directory ONEDNN=1 WERROR=1 B=$(B)-onednn-werror \
	    $(B)-onednn-werror/layers/engine/conv/conv_onednn.o; fi
	$(Q)if command -v clang >/dev/null; then OMPI_CC=clang MPICH_CC=clang CFLAGS=-O0 \
	    $(MAKE) --no-print-directory WERROR=1 B=$(B)-clang-werror $(TEST_LIB:$(B)/%=$(B)-clang-werror/%) \
	        $(patsubst %.c,$(B)-clang-werror/%.o,$(UNIT) $(MPI)) $(patsubst $(B)/%,$(B)-clang-werror/%.o,$(CLI_BIN) $(BENCH_BIN) $(LONG_BIN)); \
	    else echo "check: no clang: not compiled with it"; fi
	@echo "check: good"

BENCH_RANKS ?= 2 4
bench: $(B)/cortado $(BENCH_BIN)
	$(Q)for t in $(filter-out $(addprefix %/,$(GPU_BENCH)),$(BENCH_BIN)); do echo "BENCH $$t"; $$t || exit 1; done
	$(Q)echo "BENCH nets"; CORTADO=$(B)/cortado tests/bench/nets.sh
	$(Q)for n in $(BENCH_RANKS); do echo "BENCH comm, $$n ranks"; OMP_NUM_THREADS=1 \
	    $(MPIRUN) $(MPIRUN_FLAGS) -np $$n $(B)/cortado bench comm || exit 1; done

# libFuzzer where clang is there: each target runs FUZZ_SECONDS; T=hdf5 runs only fuzz_hdf5*. What it finds in
# undefined behaviour ends a process, as the rest does.
FUZZ := $(sort $(wildcard tests/fuzz/fuzz_$(T)*.c))
FUZZ_SECONDS ?= 60
FUZZ_MAKE = $(MAKE) --no-print-directory HARDEN=0 CC="env OMPI_CC=clang MPICH_CC=clang $(MPICC)" SAN= LDFLAGS="-Wl,--no-as-needed -lgomp"
# What reads no file and is no layer is compiled for them as it comes: with what sanitizers ask and fuzzers count
# the tiles of convolutions alone took a quarter of an hour.
ifneq ($(FUZZING),)
  $(foreach f,$(filter-out %/engine_plan.c,$(shell find layers/engine comm runtime serve/net serve/http serve/ranks serve/schedule \
      framework/math framework/solver framework/exchange framework/report -name '*.c')),\
      $(eval FLAGS_$(f:.c=) += -O0 -g0 $(if $(filter cover,$(FUZZING)),-fno-profile-instr-generate -fno-coverage-mapping,-fno-sanitize=all)))
endif
.PHONY: fuzz-programs
fuzz-programs:
	+$(Q)command -v clang >/dev/null || { echo "skip fuzz: needs clang"; exit 0; }; $(FUZZ_MAKE) FUZZING=1 B=build/fuzz/obj \
	    CFLAGS="-std=c11 -O1 -g -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow" \
	    $(FUZZ:tests/fuzz/%.c=build/fuzz/obj/%)
fuzz: fuzz-programs
	$(Q)command -v clang >/dev/null || exit 0; rm -f build/fuzz/last.jsonl; \
	    python3 tests/fuzz/campaign.py build/fuzz/last.jsonl --seconds=$(FUZZ_SECONDS) $(FUZZ:tests/fuzz/fuzz_%.c=%)
# the lines of reading code that all inputs reach, without sanitizers
.PHONY: fuzz-coverage
fuzz-coverage:
	+$(Q)command -v llvm-cov >/dev/null || { echo "skip fuzz: needs clang, llvm-cov"; exit 0; }; $(FUZZ_MAKE) FUZZING=cover \
	    B=build/fuzz/cover CFLAGS="-std=c11 -O0 -fprofile-instr-generate -fcoverage-mapping" $(FUZZ:tests/fuzz/%.c=build/fuzz/cover/%) && \
	    python3 tests/fuzz/coverage.py
$(FUZZ:tests/fuzz/%.c=$(B)/%): $(B)/%: $(B)/tests/fuzz/%.o $(TEST_LIB)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) -o $@
$(B)/fuzz_request $(B)/fuzz_http: $(B)/tests/served_fake.o

# analyzers of sources, for minutes: nothing new may come out of them; T=framework/data for a part,
# ANALYZE=cppcheck for one of them
.PHONY: analyze
MPI_FLAGS = $(shell $(MPICC) --showme:compile 2>/dev/null || $(MPICC) -compile_info 2>/dev/null | tr ' ' '\n' | grep '^-[ID]')
analyze: $(PB).h $(ONNX_PB).h $(B)/build_info.h $(READY).c $(B)/serve/api/page_html.h
	$(Q)scripts/analyze/analyze.py --cc="$(CC)" --flags="$(CPPFLAGS) -std=c11 $(MPI_FLAGS)" $(ANALYZE:%=--tools=%) $(or $(filter $(T)%,$(SRC)),no-such-source)

docs: $(B)/cortado
	$(Q)$(B)/cortado info --config-reference > docs/config-reference.md

format:
	clang-format -i $$(find framework layers comm topology planner serve runtime library include cli tests -name '*.[ch]')

# dist/cortado-VERSION-*.whl, for pip
.PHONY: wheel
wheel: library
	$(Q)scripts/wheel.sh $(B)

# dist/site: the pages as a site, which a web server hands out, by mkdocs in the tests' environment
.PHONY: site
site:
	$(Q)python3 packaging/site/pages.py build/site/pages
	$(Q)"$$(scripts/test_venv.sh mkdocs==1.6.1 | sed 's/python$$/mkdocs/')" build -q --strict -f packaging/site/mkdocs.yml
	@echo "dist/site/index.html"

# dist/cortado-VERSION.tar.gz: what the commit has, with its time; the same bytes wherever it is made
RELEASE = $(shell cat VERSION)
.PHONY: dist
dist:
	$(Q)[ "$$(git rev-parse --show-prefix 2>/dev/null || echo none)" = "" ] || { echo "dist: this is no checkout of git" >&2; exit 2; }
	$(Q)git diff --quiet HEAD || { echo "dist: the checkout has changes that no commit has" >&2; exit 2; }
	$(Q)mkdir -p dist
	$(Q)git archive --format=tar --prefix=cortado-$(RELEASE)/ HEAD | gzip -9n >dist/cortado-$(RELEASE).tar.gz
	$(Q)echo dist/cortado-$(RELEASE).tar.gz

# which files: scripts/install.sh. Folders have GNU's names: make install prefix=/usr libdir=/usr/lib64
folders = $(foreach f,bindir libdir includedir datadir mandir,$(if $($(f)),$(f)="$($(f))"))
install-strip: export STRIP ?= strip
.PHONY: install-strip uninstall
install install-strip: $(B)/cortado library
	$(Q)$(folders) scripts/install.sh install $(B)/cortado "$(PREFIX)" "$(DESTDIR)"
uninstall:
	$(Q)$(folders) scripts/install.sh uninstall "$(PREFIX)" "$(DESTDIR)"

clean:
	rm -rf build cortado
distclean: clean
	rm -f $(MODEL_FILES) $(MODELS)
