/** @file fuzz.h  What libFuzzer calls, and a log that says nothing. */
#ifndef CT_FUZZ_H
#define CT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_drop(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

#endif
