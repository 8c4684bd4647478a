/* Plans of engines: any bytes give rows that can be written and read again, or CT_ERR_DATA. Of two
 * engines each row chooses one, by what it says, by a pretended clock, or by the static rule; then
 * the rows go into a file beside those that are there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/engine_plan.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

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

/* ---- choosing by time */

static double clock_s(void *ctx)
{
    return *(double *)ctx;
}

/* The first engine is the slower one; one of more than two fails. */
static ct_status run_engine(void *ctx, int i)
{
    *(double *)ctx += (i == 0) ? 3e-3 : 1e-3;
    return (i == 2) ? CT_ERR_DEVICE : CT_OK;
}

static ct_status no_room(void *ctx)
{
    (void)ctx;
    return CT_ERR_NOMEM;
}

static void choose(ct_engine_plan *p, double *clock, const char *key, int n)
{
    ct_engine_plan_ask a = { .layer = "l",
                             .key = key,
                             .name = { "im2col", "blocked", "no" },
                             .n = n,
                             .run = run_engine,
                             .ctx = clock };
    int choice = -1;
    bool all[CT_ENGINE_PLAN_ENGINES];

    if (n == 1) a.prepare = no_room;
    if ((ct_engine_plan_agree(p, a.name, n, all) != CT_OK) || !all[0]) abort();
    if ((ct_engine_plan_choose(p, &a, &choice) != CT_OK) || (choice < 0) || (choice >= n)) abort();
    if ((n > 1) && (ct_engine_plan_scratch(p, 64) == NULL)) abort();
}

/* What a training does with a plan of that text, in a file that has it already. */
static void train(const char *text, size_t size, ct_engine_plan_mode mode)
{
    double clock = 1;
    const ct_engine_plan_options o = { .machine = { "Test CPU", "avx2", "1.0-a", 2 },
                                       .mode = mode,
                                       .n_rank = 1,
                                       .clock = clock_s,
                                       .clock_ctx = &clock };
    const ct_engine_plan_entry *row;
    ct_engine_plan *p = NULL, *q = make();
    char path[128], key[CT_ENGINE_PLAN_KEY];
    int n = 0;

    snprintf(path, sizeof(path), "%s/plan", fuzz_folder_path());
    fuzz_write(path, text, size);
    if ((ct_engine_plan_create(&o, &p) != CT_OK) || (ct_engine_plan_read(p, path) != CT_OK))
        abort();
    for (; (n < 20) && ((row = ct_engine_plan_row(p, n)) != NULL); n++) {
        memcpy(key, row->key, sizeof(key));
        choose(p, &clock, key, 1 + n % 3);
    }
    choose(p, &clock, "new", 3);
    if (ct_engine_plan_keep(p, "kept", "batch", 2.5) != CT_OK) abort();
    (void)ct_engine_plan_keep(p, "no | key", "batch", 2.5);
    ct_engine_plan_log(p);
    ct_engine_plan_settle(p);
    if (ct_engine_plan_write(p, path) != CT_OK) abort();
    if (ct_engine_plan_read(q, path) != CT_OK) abort();
    if (ct_engine_plan_tally(p).n_row < 0) abort();
    ct_engine_plan_destroy(p);
    ct_engine_plan_destroy(q);
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_engine_plan *p = make();

    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_engine_plan_parse(p, "fuzz", (const char *)data, size) == CT_OK) {
        use(p);
        train((const char *)data, size, (ct_engine_plan_mode)(size % 3));
    }
    ct_engine_plan_destroy(p);
    return 0;
}
