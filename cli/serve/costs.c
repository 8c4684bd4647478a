#include "cli/serve/costs.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "runtime/call.h"

#define MEASURE_S 1.5 /* at the start */

ct_status ct_costs_open(ct_costs *c, const char *file)
{
    ct_engine_plan_options o = { .n_rank = 1 };

    *c = (ct_costs){ .file = file };
    if (file == NULL) return CT_OK;
    CT_TRY(ct_file_check_writable(file));
    ct_call_plan_machine(omp_get_max_threads(), false, &o.machine);
    CT_TRY(ct_engine_plan_create(&o, &c->plan));
    c->was_there = (access(file, F_OK) == 0);
    return c->was_there ? ct_engine_plan_read(c->plan, file) : CT_OK;
}

void ct_costs_close(ct_costs *c)
{
    ct_engine_plan_destroy(c->plan);
    c->plan = NULL;
}

/* ---- rows */

static void name_rows(ct_costs *c, const ct_job *job, const ct_any_model *m, const ct_net *net)
{
    bool bf16 = (net->options.env.precision == CT__SOLVER_PARAMETER__PRECISION__BF16);

    /* the hash knows nothing of the most samples, and a table ends with them */
    (void)snprintf(c->key, sizeof(c->key),
                   "batch net %016" PRIx64 " most %" PRId64 " %s%s ranks %d rows %s tokens ",
                   ct_net_hash(net), ct_any_model_most(m), bf16 ? "bf16" : "f32",
                   net->options.env.deterministic ? " deterministic" : "",
                   (job != NULL) ? job->size : 1,
                   (ct_any_model_served(m)->most_context > 0) ? "last" : "all");
}

/* The tokens of a row of this net; 0: it is another's. */
static int64_t tokens_of(const ct_costs *c, const ct_engine_plan_entry *row)
{
    size_t n = strlen(c->key);
    char *end;
    long long v;

    if (strncmp(row->key, c->key, n) != 0) return 0;
    v = strtoll(row->key + n, &end, 10);
    return (*end == '\0') ? v : 0;
}

/* False: the file has none that make a table. Rows are sorted as they are found. */
static bool read_rows(const ct_costs *c, ct_batch_cost *cost)
{
    int64_t tokens[CT_BATCH_COST_POINTS];
    double s[CT_BATCH_COST_POINTS];
    const ct_engine_plan_entry *row;
    int n = 0;

    for (int i = 0; (row = ct_engine_plan_row(c->plan, i)) != NULL; i++) {
        int64_t v = tokens_of(c, row);
        int k = n;

        if (v < 1) continue;
        if ((n == CT_BATCH_COST_POINTS) || !(row->engine[0].ms > 0)) return false;
        for (; (k > 0) && (tokens[k - 1] > v); k--) {
            tokens[k] = tokens[k - 1];
            s[k] = s[k - 1];
        }
        if ((k > 0) && (tokens[k - 1] == v)) return false;
        tokens[k] = v;
        s[k] = 1e-3 * row->engine[0].ms;
        n++;
    }
    return (n > 0) && (ct_batch_cost_init(cost, n, tokens, s) == CT_OK);
}

static ct_status write_rows(ct_costs *c, const ct_batch_cost *cost)
{
    char key[CT_ENGINE_PLAN_KEY];

    for (int i = 0; i < cost->n; i++) {
        (void)snprintf(key, sizeof(key), "%s%" PRId64, c->key, cost->tokens[i]);
        CT_TRY(ct_engine_plan_keep(c->plan, key, "pass", 1e3 * cost->s[i]));
    }
    return ct_engine_plan_write(c->plan, c->file);
}

/* ---- all ranks */

static ct_status share(const ct_job *job, ct_batch_cost *cost)
{
    return (job != NULL) ? ct_group_broadcast(&job->group.job, cost, sizeof(*cost)) : CT_OK;
}

/* The mean of all ranks', at the sizes of rank 0. */
static ct_status take_mean(const ct_job *job, ct_batch_cost *cost)
{
    ct_batch_cost mine = *cost, first = *cost;
    double mean[CT_BATCH_COST_POINTS];

    if (job == NULL) return CT_OK;
    CT_TRY(share(job, &first));
    for (int i = 0; i < first.n; i++) mean[i] = ct_batch_cost_s(&mine, first.tokens[i]) / job->size;
    CT_TRY(ct_group_sum(&job->group.job, mean, first.n));
    return ct_batch_cost_init(cost, first.n, first.tokens, mean);
}

static ct_status measure(ct_costs *c, ct_job *job, ct_any_model *m, ct_batch_cost *cost)
{
    ct_status status = ct_any_model_measure(m, MEASURE_S, cost), all = status;

    if (job != NULL) {
        all = ct_group_agree(&job->group.job, status);
        if (status == CT_OK) job->told = (all != CT_OK);
    }
    CT_TRY(all);
    CT_TRY(take_mean(job, cost));
    /* no reason not to serve; and what one rank alone finds, others would wait for */
    if ((c->plan != NULL) && (write_rows(c, cost) != CT_OK))
        CT_WARN("%s: the next start measures again", c->file);
    return CT_OK;
}

ct_status ct_costs_find(ct_costs *c, ct_job *job, ct_any_model *m, const ct_net *net,
                        ct_batch_cost *cost)
{
    int64_t found;

    name_rows(c, job, m, net);
    *cost = (ct_batch_cost){ .n = 0 };
    found = (c->plan != NULL) && read_rows(c, cost);
    if ((found != 0) && ct_batch_cost_is_short(cost, ct_any_model_most(m), MEASURE_S)) {
        CT_INFO("plan %s: costs of batches end at %" PRId64
                " tokens, and there is time for more: they are measured again.",
                c->file, cost->tokens[cost->n - 1]);
        found = 0;
    } else if (found != 0) {
        CT_INFO("plan %s: costs of batches of %d sizes, from %" PRId64 " to %" PRId64
                " tokens: nothing is measured.",
                c->file, cost->n, cost->tokens[0], cost->tokens[cost->n - 1]);
    } else if (c->was_there) {
        CT_INFO("plan %s has no costs of this net's batches as they run here: they are measured.",
                c->file);
    }
    if (job != NULL) CT_TRY(ct_group_max(&job->group.job, &found, 1));
    return (found != 0) ? share(job, cost) : measure(c, job, m, cost);
}

void ct_costs_refine(ct_costs *c, const ct_batch_cost *cost, int64_t batches)
{
    if ((c->plan == NULL) || (batches == 0)) return;
    if (write_rows(c, cost) == CT_OK)
        CT_INFO("plan %s: costs of batches as %" PRId64 " batches have refined them.", c->file,
                batches);
    else
        CT_WARN("plan %s: what %" PRId64 " batches refined is not kept", c->file, batches);
}
