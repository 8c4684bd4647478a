/* Chains and pipelines as JSON: any bytes give a choice that fits, or CT_ERR_CONFIG. */
#include <math.h>
#include <stdlib.h>

#include "planner/solver_json.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

enum { MOST_BLOCKS = 6, MOST_WAYS = 18, MOST_LIMIT = 200, MOST_STAGES = 8, MOST_TIMES = 200 };

static void use_chain(ct_chain *c)
{
    int strategy[MOST_BLOCKS];
    ct_chain_mode mode[MOST_BLOCKS];
    ct_text answer = { 0 };
    double step_s = -1;

    if ((c->n_block > MOST_BLOCKS) || (c->n_block * c->n_strategy > MOST_WAYS)) return;
    c->limit = (c->limit > MOST_LIMIT) ? c->limit % MOST_LIMIT : c->limit; /* a quick one */
    if (ct_chain_solve(c, strategy, mode, &step_s) != CT_OK) abort();
    ct_chain_answer(c, step_s, strategy, mode, &answer);
    ct_text_destroy(&answer);
    if (isinf(step_s)) return;
    if (ct_chain_memory(c, strategy, mode) > c->limit) abort();
    if (step_s != ct_chain_time(c, strategy, mode)) abort();
    for (int l = 0; l < c->n_block; l++) {
        if ((strategy[l] < 0) || (strategy[l] >= c->n_strategy)) abort();
        if ((mode[l] == CT_CHAIN_CONTINUE) && ((l == 0) || (mode[l - 1] == CT_CHAIN_KEEP))) abort();
    }
}

static void use_partition(const ct_partition *p)
{
    int layers[MOST_STAGES], n = 0;
    ct_text answer = { 0 };
    double step_s = -1;

    if ((p->n_stage > MOST_STAGES) || (p->n_stage * p->n_layer > MOST_TIMES)) return;
    if (ct_partition_solve(p, layers, &step_s) != CT_OK) abort();
    ct_partition_answer(p, step_s, layers, &answer);
    ct_text_destroy(&answer);
    if (isinf(step_s) != (p->n_stage > p->n_layer)) abort();
    if (isinf(step_s)) return;
    for (int s = 0; s < p->n_stage; s++) {
        if (layers[s] < 1) abort();
        n += layers[s];
    }
    if (n != p->n_layer) abort();
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_chain_file chain;
    ct_partition_file partition;

    ct_log_set_sink(fuzz_drop, NULL);
    if (ct_chain_parse("fuzz", (const char *)data, size, &chain) == CT_OK) {
        use_chain(&chain.chain);
        ct_chain_release(&chain);
    }
    if (ct_partition_parse("fuzz", (const char *)data, size, &partition) == CT_OK) {
        use_partition(&partition.partition);
        ct_partition_release(&partition);
    }
    return 0;
}
