# make                  builds build/<configuration>/cortado and links it as ./cortado
# make demo             LeNet on made digits, dense and compressed: table, logs, curves in build/demo
# make test             every check and test that runs in minutes      make test-long   the rest
# make check            format, includes, names, docs, headers that stand alone, warnings as errors
# make bench            benchmarks
# make install PREFIX=/usr/local DESTDIR=         make uninstall, with the same; make install-strip
# make wheel            the Python package as dist/cortado-VERSION-*.whl
# make models           the nets under models/    make clean   what was built; distclean   nets, too
# make SAN=address test also undefined, thread    make CUDA=1   needs nvcc      V=1 prints commands
# make test-gpu         on a GPU; bench-gpu timings  make test-emulated  CUDA's side without one
# make ONEDNN=1         oneDNN's convolutions as one more engine: docs/timing.md
# make SVE=512          on AArch64: vectors of so many bits, 256 or 512, as all nodes have them
# make SIMGRID=1        builds build/smpicc/cortado-sim, the simulator: docs/simulation.md
# Extra flags go in the environment (CFLAGS=... make), not after make: += would be lost.

# All cores, unless -j says otherwise; several goals, such as clean all, one after the other. A make
# within make has its share of them.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS))$(word 2,$(MAKECMDGOALS)),0)
  MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

CUDA   ?= 0
DEBUG  ?= 0
SAN    ?=
V      ?= 0
SIMGRID ?= 0
SVE    ?=
PREFIX ?= $(or $(prefix),/usr/local)

# ---- one build folder per configuration, so that switching never mixes objects
MPICC ?= mpicc
ifeq ($(SIMGRID),1)
  MPICC := smpicc
endif
MPIRUN ?= mpirun
B := build/$(notdir $(MPICC))$(if $(filter 1,$(SIM_REAL)),-real)$(if $(filter-out gcc,$(OMPI_CC)$(MPICH_CC)),-$(OMPI_CC)$(MPICH_CC))$(if $(filter 1,$(CUDA)),-cuda)$(if $(filter emulated,$(CUDA)),-emulated)$(if $(filter 1,$(ONEDNN)),-onednn)$(SVE:%=-sve%)$(if $(filter 1,$(DEBUG)),-debug)$(SAN:%=-%)

CC        := $(MPICC)
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),$(CUDA_HOME)/bin/nvcc)
CUDA_ARCH ?= 80 90 120# machine code of each, and PTX of the last for what comes after

# ---- what is optional: found by pkg-config, or switched off with HAVE_X=0
have = $(shell pkg-config --exists $(1) 2>/dev/null && echo 1 || echo 0)
HAVE_LMDB      ?= $(call have,lmdb)
HAVE_TURBOJPEG ?= $(call have,libturbojpeg)
HAVE_PNG       ?= $(call have,libpng)
HAVE_WEBP      ?= $(call have,libwebp)
HAVE_TIFF      ?= $(call have,'libtiff-4 >= 4.5')
HAVE_HWLOC     ?= $(call have,hwloc)
HAVE_MICROHTTPD ?= $(call have,libmicrohttpd)
HAVE_URING     ?= $(if $(shell grep -s IORING_REGISTER_PROBE /usr/include/linux/io_uring.h),1,0)
HAVE_DNNL      ?= $(if $(wildcard /usr/include/oneapi/dnnl/dnnl.h),1,0)# only to compare with
# each asked for once: as they stand they would run pkg-config again for each file that is compiled
$(foreach h,LMDB TURBOJPEG PNG WEBP TIFF HWLOC MICROHTTPD URING,$(eval HAVE_$(h) := $$(HAVE_$(h))))

PKGS := hdf5 openblas libprotobuf-c jansson $(if $(filter 1,$(HAVE_LMDB)),lmdb) \
        $(if $(filter 1,$(HAVE_TURBOJPEG)),libturbojpeg) $(if $(filter 1,$(HAVE_PNG)),libpng) \
        $(if $(filter 1,$(HAVE_WEBP)),libwebp) $(if $(filter 1,$(HAVE_TIFF)),libtiff-4) \
        $(if $(filter 1,$(HAVE_HWLOC)),hwloc) $(if $(filter 1,$(HAVE_MICROHTTPD)),libmicrohttpd)
# the simulator is a thin program: what is copied for each of a thousand ranks had better be small
ifeq ($(SIMGRID),1)
  PKGS := libprotobuf-c jansson
  HAVE_HWLOC := 0
endif
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

CPPFLAGS += -I. -I$(B) -D_GNU_SOURCE -MMD -MP
CPPFLAGS += $(if $(filter 1,$(HAVE_LMDB)),-DCT_HAVE_LMDB) $(if $(filter 1,$(HAVE_PNG)),-DCT_HAVE_PNG) \
            $(if $(filter 1,$(HAVE_WEBP)),-DCT_HAVE_WEBP) $(if $(filter 1,$(HAVE_TIFF)),-DCT_HAVE_TIFF) \
            $(if $(filter 1,$(HAVE_TURBOJPEG)),-DCT_HAVE_TURBOJPEG) $(if $(filter 1,$(HAVE_HWLOC)),-DCT_HAVE_HWLOC) \
            $(if $(filter 1,$(HAVE_URING)),-DCT_HAVE_URING) $(if $(filter 1,$(HAVE_MICROHTTPD)),-DCT_HAVE_MICROHTTPD)
CPPFLAGS += $(PKG_CFLAGS)
CFLAGS   ?= $(if $(filter 1,$(DEBUG)),-Og,$(if $(SAN),-O1,-O3)) $(if $(filter 1,$(DEBUG))$(SAN),-g,-g1)# sanitized kernels at -O3 compile for minutes; lines without variables a tenth faster
# hidden: only what a header marks is seen from outside; SimGrid has to find main
CFLAGS   += -std=c11 -fPIC $(if $(filter 1,$(SIMGRID)),,-fvisibility=hidden) -fopenmp -fno-common -fno-omit-frame-pointer -ffp-contract=off
CFLAGS   += -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings
CFLAGS   += $(if $(WERROR),-Werror) $(SAN:%=-fsanitize=% -fno-sanitize-recover=all)
# against mistakes that a hostile file may find: canaries, checked lengths, no stack across a guard
# page, marked targets of jumps, tables that are read-only from the start. HARDEN=0 leaves them out.
CC_MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
HARDEN   ?= $(if $(SAN)$(filter 1,$(SIMGRID)),0,1)
ifeq ($(HARDEN),1)
  FORTIFY := $(if $(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)# the caller's stays
  CFLAGS  += -fstack-protector-strong $(FORTIFY)
  CFLAGS  += $(if $(filter x86_64,$(CC_MACHINE)),-fstack-clash-protection -fcf-protection) $(if $(filter aarch64,$(CC_MACHINE)),-mbranch-protection=standard)
  LDFLAGS += -Wl,-z,relro,-z,now -Wl,-z,noexecstack
  PIE     := -pie
endif
LDLIBS   += $(PKG_LIBS) $(if $(filter 1,$(SIMGRID)),,-lz) -lpthread -lm -ldl

# scalable vectors, of a length known while compiling: blocks of channels are registers then. For
# the files whose vectors are written out alone (SVE_FILES): of sums that it vectorises itself for
# such a length, gcc 12 loads the first half twice.
ifneq ($(SVE),)
  ifeq ($(filter 256 512,$(SVE)),)
    $(error SVE=$(SVE): 256 or 512 bits. With 128, and where lengths differ, leave it out: NEON)
  endif
  CPPFLAGS += -DCT_SVE_BITS=$(SVE)
endif

# oneDNN 2 as one more convolution engine, where asked for
ONEDNN ?= 0
ifeq ($(ONEDNN),1)
  CPPFLAGS += -DCT_HAVE_ONEDNN
  LDLIBS   += -ldnnl
endif

# ---- sources: every .c and .cu of the folders that have a module.mk. That may leave some out, take
# X_sim.c for X.c in the simulator, and give files flags of their own (FLAGS_folder/name).
CUFLAGS := -std=c++17 -O3 -I. -I$(B) -MMD -MP
ifneq ($(filter 1 emulated,$(CUDA)),)
  CPPFLAGS += -DCT_HAVE_CUDA
endif
# kernels as loops on the host, for tests where there is no GPU: tests/emulated_cuda
ifeq ($(CUDA),emulated)
  CXX      ?= g++
  CUCC     := $(CXX) -x c++ $(CUFLAGS) -fPIC -g -fopenmp -fno-omit-frame-pointer -Itests/emulated_cuda $(SAN:%=-fsanitize=%)
  LDLIBS   += -lstdc++ -lrt
endif
# cuDNN 9: its header here, its library, if it is there, when the program runs; NCCL likewise
HAVE_CUDNN ?= $(if $(filter emulated,$(CUDA)),1,$(if $(filter 1,$(CUDA)),$(if $(wildcard $(CUDA_HOME)/include/cudnn.h /usr/include/cudnn.h),1,0),0))
HAVE_NCCL ?= $(if $(filter emulated,$(CUDA)),1,$(if $(filter 1,$(CUDA)),$(if $(wildcard $(CUDA_HOME)/include/nccl.h /usr/include/nccl.h),1,0),0))
HAVE_ONEDNN := $(ONEDNN)
CPPFLAGS += $(if $(filter 1,$(HAVE_CUDNN)),-DCT_HAVE_CUDNN) $(if $(filter 1,$(HAVE_NCCL)),-DCT_HAVE_NCCL)
ifeq ($(CUDA),1)
  CPPFLAGS += -I$(CUDA_HOME)/include
  LDLIBS   += -L$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcudart -lstdc++
  CUCC     := $(NVCC) $(CUFLAGS) --extended-lambda -lineinfo -Xcompiler -fopenmp \
              -Xcompiler -fPIC $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
endif

CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
CFLAGS += $(if $(CLANG),-Wno-pass-failed)# clang tells of every simd hint that it does not follow

# What a module.mk says: by default every .c and .cu of its folder is built, and none of them for the
# simulator.
#   $(call sim_twins,X)            X_sim.c takes the place of X.c in the simulator
#   $(call sim_twins_unless_real,X)     … but not with SIM_REAL=1: memory and sums are real then
#   $(call sim_twin_of,X,Y Z)      X_sim.c takes the place of Y.c and Z.c, but not with SIM_REAL=1
#   $(call sim_only,X)             X.c belongs to the simulator
#   $(call needs,LIBRARY,X)        X.c or X.cu is left out without the library
#   $(call needs_else,LIBRARY,X,Y) without the library Y.c takes the place of X.c
#   IN_SIM := all                  or names: what the simulator links
#   FLAGS_$(D)/X := …              flags of X.c, with the reason
#   SVE_FILES += $(D)/X            X.c is compiled for SVE=256 or 512
#   LONGEST += $(D)/X              X.c takes long to compile: it begins first
sim_twins = $(eval OMIT += $(if $(filter 1,$(SIMGRID)),$(1:%=%.c),$(1:%=%_sim.c)))
sim_twins_unless_real = $(eval OMIT += $(if $(filter 10,$(SIMGRID)$(or $(SIM_REAL),0)),$(1:%=%.c),$(1:%=%_sim.c)))
sim_twin_of = $(eval OMIT += $(if $(filter 10,$(SIMGRID)$(or $(SIM_REAL),0)),$(2:%=%.c),$(1)_sim.c))
sim_only = $(if $(filter 1,$(SIMGRID)),,$(eval OMIT += $(1:%=%.c)))
needs = $(if $(filter 1,$(HAVE_$(1))),,$(eval OMIT += $(2:%=%.c) $(2:%=%.cu)))
needs_else = $(eval OMIT += $(if $(filter 1,$(HAVE_$(1))),$(3),$(2)).c)

SRC :=
CU :=
SVE_FILES :=
LONGEST :=
define add_module
D := $(1)
OMIT :=
IN_SIM :=
include $(1)/module.mk
SRC += $$(filter-out $$(OMIT:%=$(1)/%),$$(if $$(filter 1,$$(SIMGRID)),$$(if $$(filter all,$$(IN_SIM)),$$(wildcard $(1)/*.c),$$(IN_SIM:%=$(1)/%.c)),$$(wildcard $(1)/*.c)))
CU += $$(filter-out $$(OMIT:%=$(1)/%),$$(if $$(filter 1 emulated,$$(CUDA)),$$(wildcard $(1)/*.cu)))
endef
MODULES := $(sort $(patsubst %/module.mk,%,$(shell find framework layers comm topology planner serve runtime library cli -name module.mk)))
$(foreach m,$(MODULES),$(eval $(call add_module,$(m))))
ifeq ($(CUDA),emulated)
  CU += $(wildcard tests/emulated_cuda/*.cu)
endif

MAIN  := $(if $(filter 1,$(SIMGRID)),cli/simulate/program/main.c,cli/main.c)
TOOLS := $(filter runtime/% cli/%,$(SRC))
PUBLIC := $(filter library/%,$(SRC))
LIB   := $(filter-out $(TOOLS) $(PUBLIC),$(SRC))
PB    := $(B)/framework/proto/cortado.pb-c
ONNX_PB := $(B)/cli/onnx/onnx.pb-c
READY := $(B)/topology/ready_machines
LIB_OBJ  := $(LIB:%.c=$(B)/%.o) $(CU:%.cu=$(B)/%.cu.o) $(PB).o $(READY).o
TOOL_OBJ := $(TOOLS:%.c=$(B)/%.o) $(if $(filter cli/onnx/%,$(TOOLS)),$(ONNX_PB).o)
PUBLIC_OBJ := $(PUBLIC:%.c=$(B)/%.o)

# tests/unit and tests/mpi mirror the folders of the sources; programs lie side by side, by name
UNIT := $(sort $(shell find tests/unit -name 'test_*.c'))
MPI  := $(sort $(shell find tests/mpi -name 'test_*.c'))
UNIT_BIN := $(addprefix $(B)/tests/unit/,$(notdir $(UNIT:.c=)))
MPI_BIN  := $(addprefix $(B)/tests/mpi/,$(notdir $(MPI:.c=)))
CLI_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/cli/*.c))
BENCH_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/bench/*.c))
ifneq ($(HAVE_DNNL),1)
  BENCH_BIN := $(filter-out %_dnnl,$(BENCH_BIN))
endif
LONG_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/long/*.c))
# the simulator has no HDF5 that it could forge
TEST_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(filter 1,$(SIMGRID)),tests/forge_hdf5.c),$(wildcard tests/*.c)))

ifneq ($(SVE),)
  $(foreach f,$(SVE_FILES),$(eval FLAGS_$(f) += -march=armv8.2-a+sve -msve-vector-bits=$(SVE)))
endif
FLAGS_tests/bench/bench_conv_dnnl := -ffp-contract=fast # as what it is compared with

# gcc 12 for AArch64 breaks down over the largest, by fmax(), of numbers that it widens
ifeq ($(CC_MACHINE)-$(firstword $(subst ., ,$(shell $(CC) -dumpversion 2>/dev/null))),aarch64-12)
$(B)/tests/%.o: CFLAGS += -fno-tree-loop-vectorize
endif

Q := $(if $(filter 1,$(V)),,@)
.PHONY: all
.SECONDARY:
ifeq ($(SIMGRID),1)
all: $(B)/cortado-sim
else
all: $(LONGEST:%=$(B)/%.o) $(B)/cortado library
	$(Q)ln -sfn $(B)/cortado cortado
endif

# what the binary says about itself; rewritten only when it changes
# The commit only where this folder is a checkout itself: sources from a tarball may lie in another's.
VERSION := $(shell cat VERSION)$(shell [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ] && \
             git describe --always --dirty --exclude '*' 2>/dev/null | sed 's/^/-g/')
define BUILD_INFO :=
#define CT_BUILD_VERSION "$(VERSION)"
#define CT_BUILD_CC "$(shell $(CC) --version 2>/dev/null | head -1)"
#define CT_BUILD_CFLAGS "$(strip $(CFLAGS))"
endef
export BUILD_INFO
$(B)/build_info.h: FORCE | needs
	@mkdir -p $(B)
	@printf '%s\n' "$$BUILD_INFO" | cmp -s - $@ || printf '%s\n' "$$BUILD_INFO" > $@
.PHONY: FORCE
FORCE:

# what objects are compiled with, warnings apart: where that changes, all of them are made anew
define COMPILED_WITH :=
$(CC) $(CPPFLAGS) $(filter-out -W%,$(CFLAGS))
endef
export COMPILED_WITH
$(B)/flags: FORCE
	@mkdir -p $(B)
	@printf '%s\n' "$$COMPILED_WITH" | cmp -s - $@ || printf '%s\n' "$$COMPILED_WITH" > $@

# before anything is compiled: one line for what is missing, in place of the first tool's complaint
.PHONY: needs needs-test
needs:
	@MPICC=$(MPICC) scripts/setup.sh --check
needs-test:
	@MPICC=$(MPICC) scripts/setup.sh --check cmocka
$(TEST_OBJ) $(UNIT:%.c=$(B)/%.o) $(MPI:%.c=$(B)/%.o): | needs-test

# protobuf-c puts its own member `base` into every struct, so a field of that name gets an underscore
$(PB).c $(PB).h &: framework/proto/cortado.proto | needs
	@mkdir -p $(B)
	$(Q)protoc-c --c_out=$(B) $<
	$(Q)sed -i 's/^  float base;/  float base_;/' $(PB).h
	$(Q)sed -i 's/offsetof(Ct__\(Exp\|Log\|Rotary\)Parameter, base)/offsetof(Ct__\1Parameter, base_)/' $(PB).c
$(ONNX_PB).c $(ONNX_PB).h &: cli/onnx/onnx.proto | needs
	@mkdir -p $(B)
	$(Q)protoc-c --c_out=$(B) $<
$(PB).o $(ONNX_PB).o: %.o: %.c $(B)/flags
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -w -c $< -o $@

# The nets under models/ that a script describes, written in place for users and tests. models/.made
# lists them: where one is gone, all are written again. Unchanged files keep their time.
MODELS := models/.made
MODEL_FILES := $(addprefix models/,$(filter %.prototxt,$(file < $(MODELS))))
$(MODELS): scripts/make_models.py $(wildcard scripts/nets/*.py) \
        $(if $(filter-out $(wildcard $(MODEL_FILES)),$(MODEL_FILES)),FORCE) | needs
	$(if $(Q),@echo "NETS models")
	$(Q)python3 scripts/make_models.py --nets
.PHONY: models
models: $(MODELS)

# the ready machines' files, as text inside the program: found by name wherever it runs
$(READY).c: scripts/ready_machines.sh $(wildcard topology/machines/*.prototxt) | needs
	@mkdir -p $(@D)
	$(Q)scripts/ready_machines.sh $(wordlist 2,$(words $^),$^) > $@.tmp && mv $@.tmp $@
$(READY).o: $(READY).c $(B)/flags
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# the page that a server shows, as text inside the program
$(B)/serve/api/page_html.h: serve/api/page.html scripts/text_header.sh
	@mkdir -p $(@D)
	$(Q)scripts/text_header.sh page_html $< > $@.tmp && mv $@.tmp $@
$(B)/serve/api/page.o: $(B)/serve/api/page_html.h

$(B)/%.o: %.c $(B)/flags | $(PB).h $(ONNX_PB).h $(B)/build_info.h
	@mkdir -p $(@D)
	$(if $(Q),@echo "CC   $<")
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(FLAGS_$*) -c $< -o $@

$(B)/%.cu.o: %.cu | $(PB).h
	@mkdir -p $(@D)
	$(if $(Q),@echo "CU   $<")
	$(Q)$(CUCC) -c $< -o $@

$(B)/libcortado.a: $(LIB_OBJ)
	$(if $(Q),@echo "AR   $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/cortado: $(TOOL_OBJ) $(B)/libcortado.a | $(MODELS)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PIE) $^ $(LDLIBS) -o $@

# ---- the library for users' programs: what include/cortado/cortado.h promises, and no other symbol
tool = $(shell $(CC) -print-prog-name=$(1))
SONAME := libcortado.so.$(firstword $(subst ., ,$(file < VERSION)))
.PHONY: library
library: $(B)/lib/libcortado.so $(B)/lib/libcortado.a $(B)/lib/private_libs
# what a program that links the archive needs besides
$(B)/lib/private_libs: FORCE
	@mkdir -p $(@D)
	@echo '$(LDLIBS) -fopenmp $(shell $(MPICC) --showme:link 2>/dev/null || $(MPICC) -link_info 2>/dev/null | cut -d" " -f2-)' > $@.tmp
	@cmp -s $@.tmp $@ || mv $@.tmp $@
	@rm -f $@.tmp
$(B)/lib/$(SONAME): $(PUBLIC_OBJ) $(B)/libtools.a $(B)/libcortado.a library/libcortado.map
	@mkdir -p $(@D)
	$(if $(Q),@echo "LD   $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=library/libcortado.map $(if $(SAN),,-Wl,-z,defs) $(filter %.o %.a,$^) $(LDLIBS) -o $@
$(B)/lib/libcortado.so: $(B)/lib/$(SONAME)
	$(Q)ln -sfn $(SONAME) $@
$(B)/lib/libcortado.a: $(PUBLIC_OBJ) $(B)/libtools.a $(B)/libcortado.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "AR   $@")
	$(Q)$(call tool,ld) -r $(PUBLIC_OBJ) $(filter %.a,$^) -o $(B)/lib/cortado.o
	$(Q)$(call tool,objcopy) --wildcard --keep-global-symbol='cortado_*' $(B)/lib/cortado.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(B)/lib/cortado.o

$(B)/cortado-sim: $(TOOL_OBJ) $(B)/libcortado.a | $(MODELS)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PIE) $^ $(LDLIBS) -s -o $@

# tests see everything but main(), and as archives: each links only what it uses
TEST_LIB := $(B)/libpublic.a $(B)/libtools.a $(B)/libcortado.a
$(B)/libpublic.a: $(PUBLIC_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/libtools.a: $(filter-out $(MAIN:%.c=$(B)/%.o),$(TOOL_OBJ))
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/libtest.a: $(TEST_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(foreach t,$(UNIT),$(eval $(B)/tests/unit/$(basename $(notdir $(t))): $(t:%.c=$(B)/%.o)))
$(foreach t,$(MPI),$(eval $(B)/tests/mpi/$(basename $(notdir $(t))): $(t:%.c=$(B)/%.o)))
$(BENCH_BIN) $(LONG_BIN) $(CLI_BIN): %: %.o
$(UNIT_BIN) $(MPI_BIN) $(BENCH_BIN) $(LONG_BIN) $(CLI_BIN): $(B)/libtest.a $(TEST_LIB)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) -lcmocka $(LDLIBS) -o $@

$(filter %_dnnl,$(BENCH_BIN)): LDLIBS += -ldnnl

-include scripts/targets.mk
-include $(shell find $(B) -name '*.d' 2>/dev/null)
