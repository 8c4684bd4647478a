/** @file gguf_bytes.h  GGUF files made byte by byte, for tests. */
#ifndef CT_TEST_GGUF_BYTES_H
#define CT_TEST_GGUF_BYTES_H

#include <stdint.h>
#include <string.h>

#include "framework/base/gguf.h"
#include "framework/base/text.h"

static inline void gguf_number(ct_text *t, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(v >> (8 * i));

        ct_text_add_bytes(t, &byte, 1);
    }
}

static inline void gguf_string(ct_text *t, const char *s)
{
    gguf_number(t, strlen(s), 8);
    ct_text_add_bytes(t, s, strlen(s));
}

static inline void gguf_head(ct_text *t, uint64_t n_tensor, uint64_t n_value)
{
    ct_text_add(t, "GGUF");
    gguf_number(t, 3, 4);
    gguf_number(t, n_tensor, 8);
    gguf_number(t, n_value, 8);
}

/** A key, and the type of what follows. */
static inline void gguf_key(ct_text *t, const char *key, ct_gguf_type type)
{
    gguf_string(t, key);
    gguf_number(t, type, 4);
}

static inline void gguf_key_array(ct_text *t, const char *key, ct_gguf_type item, uint64_t n)
{
    gguf_key(t, key, CT_GGUF_ARRAY);
    gguf_number(t, item, 4);
    gguf_number(t, n, 8);
}

static inline void gguf_key_text(ct_text *t, const char *key, const char *value)
{
    gguf_key(t, key, CT_GGUF_STRING);
    gguf_string(t, value);
}

static inline void gguf_tensor(ct_text *t, const char *name, int64_t rows, int64_t columns,
                               uint32_t dtype, uint64_t offset)
{
    gguf_string(t, name);
    gguf_number(t, 2, 4);
    gguf_number(t, (uint64_t)columns, 8);
    gguf_number(t, (uint64_t)rows, 8);
    gguf_number(t, dtype, 4);
    gguf_number(t, offset, 8);
}

/** Zeros up to a multiple of n bytes. */
static inline void gguf_align(ct_text *t, size_t n)
{
    while (t->length % n != 0) gguf_number(t, 0, 1);
}

#endif
