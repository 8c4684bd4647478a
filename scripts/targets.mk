# Tests, checks, demo, install: what one does with a build. Included by the Makefile.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
MPIRUN_FLAGS ?= --oversubscribe

.PHONY: test test-unit test-mpi check bench format clean
test: check test-unit test-mpi

# make test-unit T=conv runs only tests/unit/test_conv*
test-unit: $(if $(T),$(filter $(B)/tests/unit/test_$(T)%,$(UNIT_BIN)),$(UNIT_BIN))
	$(Q)for t in $^; do echo "TEST $$t"; $$t || exit 1; done

test-mpi: $(if $(T),$(filter $(B)/tests/mpi/test_$(T)%,$(MPI_BIN)),$(MPI_BIN))
	$(Q)for t in $^; do for n in 1 2 3 4; do echo "TEST $$t -np $$n"; \
	    ASAN_OPTIONS=detect_leaks=0 $(MPIRUN) $(MPIRUN_FLAGS) -np $$n $$t || exit 1; done; done

check: $(PB).h
	$(Q)scripts/check_includes.sh

bench: $(BENCH_BIN)

format:
	clang-format -i $$(find framework layers comm topology tests -name '*.[ch]')

clean:
	rm -rf build cortado
