/** @file forge_hdf5.h  HDF5 files that are not what a reader expects: arrays replaced by others.
 *
 * Each call opens the file, which is there already, and closes it. What stood at the path is
 * removed first. True: done.
 */
#ifndef CT_TEST_FORGE_HDF5_H
#define CT_TEST_FORGE_HDF5_H

#include <stdbool.h>
#include <stdint.h>

bool forge_create(const char *file); /* with nothing in it */
bool forge_delete(const char *file, const char *path);
/** A scalar. */
bool forge_int(const char *file, const char *path, int64_t v);
bool forge_double(const char *file, const char *path, double v);
/** n numbers in one axis. */
bool forge_doubles(const char *file, const char *path, int64_t n, const double *v);
/** `count` strings of `size` bytes each, in one axis; count 0: a scalar. */
bool forge_text(const char *file, const char *path, int64_t size, int64_t count, char fill);
/** One string with this text. */
bool forge_words(const char *file, const char *path, const char *text);
/** A string of variable length. */
bool forge_variable(const char *file, const char *path, const char *text);
/** An array without elements, not of length 0 but without a shape at all. */
bool forge_null(const char *file, const char *path);
/** Floats that were never written, so that the shape costs nothing. filtered: in one compressed
 *  chunk as large as the array. */
bool forge_floats(const char *file, const char *path, int n_dim, const int64_t *dim, bool filtered);
/** Likewise n unsigned bytes. */
bool forge_bytes(const char *file, const char *path, int64_t n);
/** Floats whose values would lie in another file. */
bool forge_external(const char *file, const char *path, int64_t n, const char *other);
/** A group in a group, depth of them. */
bool forge_deep(const char *file, const char *path, int depth);
/** A group that holds itself. */
bool forge_loop(const char *file, const char *path);
/** A link to an object of another file. */
bool forge_link(const char *file, const char *path, const char *other, const char *object);
/** Makes the first line of a solver state right again, as a forger would. */
bool forge_seal(const char *file);

#endif
