/* Annotations as PASCAL VOC's XML: any bytes end in objects that can be used, or in CT_ERR_DATA. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/data/voc.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static void check(const ct_voc *v, int64_t lines)
{
    if (!(v->height >= 0) || !(v->width >= 0)) abort();
    for (int64_t i = 0; i < v->n; i++) {
        const ct_voc_object *o = &v->object[i];

        if ((o->name == NULL) || (o->name[0] == '\0')) abort();
        for (int k = 0; k < 4; k++)
            if (!isfinite(o->corner[k])) abort();
        if ((o->corner[0] > o->corner[2]) || (o->corner[1] > o->corner[3])) abort();
        if ((o->line < 1) || (o->line > lines)) abort();
    }
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    int64_t lines = 1;
    ct_voc v = { 0 };
    ct_status status;

    if (text == NULL) abort();
    ct_log_set_sink(fuzz_drop, NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < size; i++) lines += (data[i] == '\n');
    status = ct_voc_parse(text, size, "fuzz", &v);
    if ((status != CT_OK) && (status != CT_ERR_DATA)) abort();
    if (status == CT_OK) check(&v, lines);
    ct_voc_release(&v);
    free(text);
    return 0;
}
