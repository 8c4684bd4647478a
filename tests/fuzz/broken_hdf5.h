/** @file broken_hdf5.h  What the sanitizers pass over where HDF5 reads broken files. The library
 * leaks there; what we leave open each target counts. And it asks for as much memory as a file
 * says, which malloc() refuses.
 *
 * Included once, by the one source of a fuzzer: its sanitizers call these functions by their names.
 */
#ifndef CT_FUZZ_BROKEN_HDF5_H
#define CT_FUZZ_BROKEN_HDF5_H

const char *__lsan_default_suppressions(void), *__lsan_default_options(void);
const char *__asan_default_options(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

#endif
