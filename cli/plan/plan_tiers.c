/* cortado plan on a machine with GPUs: where model state lies, whether it fits, and the largest net
 * that does. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan.h"
#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "framework/base/number.h"
#include "framework/solver/update_rule.h"
#include "planner/tier_plan.h"

enum {
    ADAM_BYTES = 12,   /* a parameter, of weights and states                        */
    CHUNK_MB = 32,     /* of a chunk's weights, where memory.chunk_mb is 0          */
    MOST_COPIES = 4096 /* of a repeat that are tried                                */
};

typedef struct tier_state {
    ct_call *call;
    FILE *to; /* NULL: stdout takes JSON alone */
    ct_machine *machine;
    int node_class;             /* of its nodes with GPUs */
    double usable, state_bytes; /* 0: not given */
    bool files, probabilities;
    /* of the net that was looked at last */
    ct_plan_input in;
    ct_tier_request request;
    ct_tier_plan plan;
} tier_state;

/* ---- what is asked for */

static int class_with_gpus(const ct_machine *m)
{
    for (int k = 0; k < m->n_node_class; k++)
        if (m->node_class[k].gpus > 0) return k;
    return -1;
}

/* A machine with GPUs, and nothing that only plans over ranks have. */
static bool names_gpus(const ct_options *o)
{
    static const char *const of_ranks[] = { "ranks", "ranks_per_node", "profile", "fix" };
    const char *name = ct_options_text(o, "machine");
    ct_machine *m = NULL;
    bool has = false;

    for (size_t i = 0; i < sizeof(of_ranks) / sizeof(of_ranks[0]); i++)
        if (ct_options_text(o, of_ranks[i]) != NULL) return false;
    if ((name == NULL) || (!ct_machine_is_path(name) && (ct_machine_ready(name) == NULL)))
        return false;
    if (ct_machine_read(name, &m) == CT_OK) has = (class_with_gpus(m) >= 0);
    ct_machine_destroy(m);
    return has;
}

bool ct_plan_is_of_tiers(const ct_options *o)
{
    static const char *const own[] = { "largest", "tiers", "usable", "state_bytes", "attention" };

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (ct_options_text(o, own[i]) != NULL) return true;
    return names_gpus(o);
}

static ct_status read_number(const ct_options *o, const char *name, double least, double most,
                             double *v_p)
{
    const char *text = ct_options_text(o, name);
    char *end;

    if (text == NULL) return CT_OK;
    if (ct_number_real(text, &end, v_p) && (*end == '\0') && (*v_p >= least) && (*v_p <= most) &&
        (*v_p > 0))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: expected a number %s %g and at most %g", name, text,
                   (least > 0) ? "of at least" : "above", least, most);
}

static ct_status read_tiers(tier_state *s)
{
    const char *text = ct_options_text(s->call->options, "tiers");

    s->files = (text != NULL) && (strcmp(text, "device,host,file") == 0);
    if ((text == NULL) || s->files || (strcmp(text, "device,host") == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--tiers=%s: expected device,host or device,host,file", text);
}

static ct_status read_options(tier_state *s)
{
    const ct_options *o = s->call->options;
    const char *largest = ct_options_text(o, "largest"), *name = ct_options_text(o, "machine");
    const char *attention = ct_options_text(o, "attention");

    if ((largest != NULL) && (strcmp(largest, "layers") != 0))
        return CT_FAIL(CT_ERR_CONFIG, "--largest=%s: expected layers", largest);
    CT_TRY(read_number(o, "usable", 0, 1, &s->usable));
    CT_TRY(read_number(o, "state_bytes", 4, 1024, &s->state_bytes));
    CT_TRY(read_tiers(s));
    s->probabilities = (attention != NULL) && (strcmp(attention, "reference") == 0);
    if (name == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "plans of GPUs and files need --machine=NAME|FILE, a machine "
                                      "with GPUs such as v100_8");
    CT_TRY(ct_machine_read(name, &s->machine));
    s->node_class = class_with_gpus(s->machine);
    if (s->node_class >= 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--machine=%s: no class of its nodes has GPUs (node_class { gpus })", name);
}

/* ---- one net */

static ct_status read_request(tier_state *s)
{
    const Ct__SolverParameter *p = s->in.config.solver;
    const Ct__MemoryParameter *m = p->memory;
    bool narrow = (m != NULL) && (m->gradients == CT__MEMORY_PARAMETER__GRADIENTS__BF16);
    bool half;
    double chunk_mb = ((m != NULL) && (m->chunk_mb > 0)) ? m->chunk_mb : CHUNK_MB;
    ct_tier_request *q = &s->request;

    /* without a solver: as models that are this large are trained */
    if (s->in.config.is_model && !p->has_precision)
        s->in.options.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    half = (s->in.options.env.precision == CT__SOLVER_PARAMETER__PRECISION__BF16) ||
           (s->in.options.env.precision == CT__SOLVER_PARAMETER__PRECISION__FP16);
    *q = (ct_tier_request){ .param = s->in.config.net,
                            .options = &s->in.options,
                            .files = s->files,
                            .chunk_bytes = (int64_t)ceil(chunk_mb * 16384) * 64,
                            .probabilities = s->probabilities };
    q->state_bytes = s->in.config.is_model
                         ? ADAM_BYTES
                         : sizeof(float) + (double)ct_update_rule_state_bytes(p, 1);
    if (s->state_bytes > 0) q->state_bytes = s->state_bytes;
    if (s->state_bytes == 0 && (ct_update_waits_for_all(p) || (p->iter_size > 1)))
        q->gradient_bytes = narrow ? 2 : 4;
    if (s->in.options.recompute == CT__RECOMPUTE__NEVER)
        s->in.options.recompute = CT__RECOMPUTE__BLOCKS;
    return ct_tier_node_of(s->machine, s->node_class, s->usable, half, &q->node);
}

/* Lays out the net with so many copies; 0: as many as it says. */
static ct_status look(tier_state *s, int32_t count)
{
    ct_config_destroy(&s->in.config);
    memset(&s->in, 0, sizeof(s->in));
    CT_TRY(ct_plan_input_read_net(s->call, count, &s->in));
    CT_TRY(read_request(s));
    return ct_tier_plan_make(&s->request, &s->plan);
}

static ct_status fail_memory(const tier_state *s)
{
    const ct_tier_plan *p = &s->plan;
    const ct_memory_tiers *r = &p->rank;
    ct_tier t = p->lacks;
    int64_t missing = p->missing;

    if (t == CT_TIER_DEVICE) missing = ct_memory_tier_sum(r, t) - r->limit[t];

    return CT_FAIL(CT_ERR_CONFIG,
                   "does not fit %s: %s lacks %.1f MiB of %.1f (%" PRId64
                   " parameters, %g bytes each)%s",
                   s->machine->name,
                   (t == CT_TIER_DEVICE) ? "each GPU, for activations and windows,"
                                         : "each GPU's part of the node's memory",
                   ct_plan_mib((double)missing), ct_plan_mib((double)r->limit[t]), p->parameters,
                   s->request.state_bytes + s->request.gradient_bytes,
                   (t == CT_TIER_DEVICE) ? "; take a smaller batch"
                   : s->files            ? ""
                                         : "; --tiers=device,host,file puts the rest into files");
}

/* ---- the largest net */

static ct_status find_repeat(const tier_state *s, int32_t *count_p)
{
    const Ct__NetParameter *net = s->in.config.net;
    const Ct__RepeatCopy *first = NULL;

    for (size_t i = 0; i < net->n_layer; i++)
        if ((first == NULL) && (net->layer[i]->repeat_copy != NULL))
            first = net->layer[i]->repeat_copy;
    if (first == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--largest=layers raises the count of the net's repeat, and "
                                      "this net has none");
    *count_p = first->of;
    return CT_OK;
}

/* The count where what is missing would be 0, on a line through two counts; within (low, high). */
static int32_t between(int32_t low, int32_t high, const double *count, const double *missing)
{
    double slope = (missing[1] - missing[0]) / (count[1] - count[0]);
    double guess = (slope > 0) ? floor(count[1] - missing[1] / slope) : 0;

    if (!(guess > low)) guess = low + 1;
    if (guess >= high) guess = high - 1;
    return (int32_t)guess;
}

/* From 1 on, all that fits below the first that does not. Bytes grow nearly as a line does. */
static ct_status find_largest(tier_state *s, int32_t *count_p)
{
    double count[2] = { 0 }, missing[2] = { 0 };
    int32_t low = 0, high = MOST_COPIES + 1, next = 1;

    for (int tries = 0; high - low > 1; tries++) {
        CT_TRY(look(s, next));
        if ((next == 1) && (s->plan.missing > 0)) return fail_memory(s);
        if (s->plan.missing > 0)
            high = next;
        else
            low = next;
        count[0] = count[1];
        missing[0] = missing[1];
        count[1] = next;
        missing[1] = (double)s->plan.missing;
        if (tries == 0)
            next = 2;
        else if (tries < 8)
            next = between(low, high, count, missing);
        else
            next = low + (high - low) / 2;
    }
    *count_p = low;
    return (low == (int32_t)count[1]) ? CT_OK : look(s, low);
}

/* ---- what comes out */

static ct_status tell(const tier_state *s, int32_t count)
{
    const char *json = ct_options_text(s->call->options, "json");
    const ct_tier_plan *p = &s->plan;
    const ct_tier_node *m = &s->request.node;
    ct_text out = { .text = NULL };
    ct_json_writer w = ct_json_into(&out);
    ct_status status;

    if (s->to != NULL) {
        fprintf(s->to,
                "net         %s, %" PRId64 " parameters that learn, %" PRId64 " samples a step\n",
                (s->in.config.net->name != NULL) ? s->in.config.net->name : "", p->parameters,
                p->batch);
        fprintf(s->to,
                "machine     %s: %d GPUs of %.1f GiB and %.1f GiB of memory, as much as may be "
                "taken\n",
                s->machine->name, m->n_rank, ldexp(m->device, -30), ldexp(m->host, -30));
        if (s->in.config.is_model)
            fprintf(s->to,
                    "assumed     Adam, and precision BF16 where --set says no other: there is "
                    "no solver\n");
        if (count > 0)
            fprintf(s->to, "largest     %" PRId32 " copies of the repeat, %.2f x 10^9 parameters\n",
                    count, 1e-9 * (double)p->parameters);
        ct_tier_plan_print(&s->request, p, s->to);
    }
    if (json == NULL) return CT_OK;
    ct_json_begin_object(&w, NULL);
    if (count > 0) {
        ct_json_begin_object(&w, "largest");
        ct_json_add_integer(&w, "count", count);
        ct_json_add_integer(&w, "parameters", p->parameters);
        ct_json_end(&w);
    }
    ct_tier_plan_json(&s->request, p, &w);
    ct_json_end(&w);
    ct_text_add(&out, "\n");
    status = ct_plan_write_json(json, &out);
    ct_text_destroy(&out);
    return status;
}

static ct_status find_plan(tier_state *s, int32_t *count_p)
{
    ct_status status;

    *count_p = 0;
    CT_TRY(look(s, 0)); /* once with all that it says */
    if (ct_options_text(s->call->options, "largest") == NULL)
        return (s->plan.missing > 0) ? fail_memory(s) : CT_OK;
    CT_TRY(find_repeat(s, count_p));
    ct_log_set_sink(ct_plan_errors_alone, NULL);
    status = find_largest(s, count_p);
    ct_log_set_sink(NULL, NULL);
    return status;
}

ct_status ct_plan_tiers(ct_call *call)
{
    const char *json = ct_options_text(call->options, "json");
    tier_state s = { .call = call, .to = stdout };
    int32_t count = 0;
    ct_status status;

    if ((json != NULL) && (strcmp(json, "-") == 0)) s.to = NULL;
    status = read_options(&s);
    if (status == CT_OK) status = find_plan(&s, &count);
    if (status == CT_OK) status = tell(&s, count);
    ct_config_destroy(&s.in.config);
    ct_machine_destroy(s.machine);
    return status;
}
