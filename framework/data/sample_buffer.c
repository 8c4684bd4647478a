#include "framework/data/sample.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

ct_status ct_sample_buffer_reserve(ct_sample_buffer *r, size_t bytes)
{
    uint8_t *data;

    if (bytes <= r->capacity) return CT_OK;
    data = malloc(bytes);
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample of %zu bytes", bytes);
    free(r->data);
    r->data = data;
    r->capacity = bytes;
    return CT_OK;
}

void ct_sample_buffer_release(ct_sample_buffer *r)
{
    free(r->data);
    *r = (ct_sample_buffer){ 0 };
}

void ct_why_set(ct_why *why, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why->text, sizeof(why->text), fmt, ap);
    va_end(ap);
}
