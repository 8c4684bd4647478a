/* Plans of engines: any bytes give rows that can be written and read again, or CT_ERR_DATA. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/engine_plan.h"
#include "tests/fuzz/fuzz.h"

static ct_engine_plan *make(void)
{
    const ct_engine_plan_options o = { .machine = { "Test CPU", "avx2", "1.0-a", 2 }, .n_rank = 1 };
    ct_engine_plan *p = NULL;

    if (ct_engine_plan_create(&o, &p) != CT_OK) abort();
    return p;
}

/* Every row is asked for; the text of what was asked gives the same rows. */
static void use(ct_engine_plan *p)
{
    const ct_engine_plan_entry *row;
    ct_engine_plan *q = make();
    ct_text t = { 0 };
    int n = 0;

    for (; (row = ct_engine_plan_row(p, n)) != NULL; n++) {
        ct_engine_plan_ask a = { .layer = "l", .key = row->key, .n = 1 };
        char name[CT_ENGINE_PLAN_NAME];
        int choice = -1;

        if ((row->n < 1) || (row->n > CT_ENGINE_PLAN_ENGINES)) abort();
        memcpy(name, row->engine[0].name, sizeof(name));
        a.name[0] = name;
        if ((ct_engine_plan_choose(p, &a, &choice) != CT_OK) || (choice != 0)) abort();
    }
    ct_engine_plan_text(p, &t);
    if ((n > 0) && (ct_engine_plan_parse(q, "again", t.text, t.length) != CT_OK)) abort();
    for (int i = 0; i < n; i++) {
        const ct_engine_plan_entry *a = ct_engine_plan_row(p, i), *b = ct_engine_plan_row(q, i);

        if ((b == NULL) || (strcmp(a->key, b->key) != 0) || (a->n != b->n)) abort();
        if (strcmp(a->engine[0].name, b->engine[0].name) != 0) abort();
    }
    ct_text_destroy(&t);
    ct_engine_plan_destroy(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_engine_plan *p = make();

    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_engine_plan_parse(p, "fuzz", (const char *)data, size) == CT_OK) use(p);
    ct_engine_plan_destroy(p);
    return 0;
}
