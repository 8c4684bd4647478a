/* cortado check: each phase of a net, or the nets that a solver trains and tests. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"
#include "cli/plan/plan_job.h"
#include "cli/verb.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/memory.h"
#include "framework/solver/solver.h"
#include "framework/solver/update_rule.h"
#include "runtime/config/exchange_config.h"
#include "planner/memory_tiers.h"
#include "planner/rank_memory.h"
#include "planner/sharding.h"
#include "runtime/call.h"
#include "runtime/division/planned_shards.h"
#include "runtime/job_memory.h"
#include "runtime/memory_plan.h"
#include "runtime/outer/outer_groups.h"
#include "topology/discover.h"

/* What a step sends, by the payload of each parameter. */
typedef struct traffic {
    double dense;        /* bytes of gradients that are summed           */
    double gathered;     /* bytes of payloads that every rank gets of every rank */
    double first;        /* bytes that a rank sends in iteration 0                 */
    int64_t falls_until; /* densities do; 0: none does                         */
} traffic;

static double sent(double dense, double gathered, int64_t n_rank)
{
    double p = (double)n_rank;

    return dense * 2 * (p - 1) / p + gathered * (p - 1);
}

/* Of one parameter, by an allgather where its codec gathers; the pipe knows which exchange it is.
 */
static double sent_first(const ct_codec_ops *codec, const ct_codec_config *c, const ct_param *q,
                         double bytes, int64_t n_rank)
{
    double dense = sent(4 * (double)q->count, 0, n_rank), coded = 0;
    ct_codec_config first = *c;

    if ((codec->payload_bytes == NULL) || (c->warmup_iterations == 0))
        return codec->gathers ? sent(0, bytes, n_rank) : sent(bytes, 0, n_rank);
    if (!ct_codec_is_sparse(codec) || !(c->warmup_density > 0)) return dense;
    first.density = c->warmup_density;
    coded = sent(0, (double)codec->payload_bytes(&first, q->count, ct_param_rows(q)), n_rank);
    return (coded < dense) ? coded : dense;
}

/* Rows of a table, as a list, beside what is dense of it. */
static double list_bytes(const ct_param *q)
{
    return (double)q->row_most * 4 * (1 + (double)q->count / (double)ct_param_rows(q));
}

static ct_status find_traffic(const ct_net *net, const Ct__SolverParameter *s, int64_t n_rank,
                              traffic *out)
{
    ct_grad_pipe_config config = { .allreduce = NULL };

    memset(out, 0, sizeof(*out));
    CT_TRY(ct_codec_read_config(s, s->compression, "compression", &config.codec,
                                &config.codec_config));
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *q = &net->param[i];
        double bytes = (double)q->count * 4;
        const ct_codec_ops *codec = NULL, *own = NULL;
        const ct_codec_config *c = NULL;
        ct_codec_config own_config;
        ct_grad_range range = { .count = q->count, .rows = ct_param_rows(q) };

        if (!q->learns) continue;
        if (q->compress != NULL) {
            CT_TRY(ct_codec_read_own(s, q->compress, q->key, &own, &own_config));
            range.codec = own;
            range.codec_config = &own_config;
        }
        codec = ct_grad_range_codec(&config, &range, &c);
        if (q->row_most > 0) {
            double dense = q->row_beside ? bytes : 0;

            out->gathered += list_bytes(q);
            out->dense += dense;
            out->first += sent(dense, list_bytes(q), n_rank);
            continue;
        }
        if (codec->payload_bytes != NULL)
            bytes = (double)codec->payload_bytes(c, q->count, ct_param_rows(q));
        if (codec->gathers) {
            out->gathered += bytes;
        } else {
            out->dense += bytes;
        }
        out->first += sent_first(codec, c, q, bytes, n_rank);
        if (ct_codec_is_sparse(codec) && (c->warmup_density > 0) &&
            (c->warmup_iterations > out->falls_until))
            out->falls_until = c->warmup_iterations;
    }
    return CT_OK;
}

typedef struct checked {
    ct_call *call;
    ct_config config;
    ct_net_state state;
    bool has_state; /* of the command line: instead of the solver's             */
    int64_t n_rank;
    FILE *to;              /* NULL: stdout takes JSON alone                            */
    ct_text json;          /* of the first net, then the others as a list in it, open  */
    ct_json_writer w;      /* into it */
    int n_net;             /* reported so far                                          */
    bool of_best;          /* the net is the one of whose outputs one is to get better */
    ct_parallel *parallel; /* --parallel; NULL: not given; bound to the first net, TRAIN's */
    ct_data_shapes shapes; /* --data_shape */
    ct_memory_tiers tiers; /* of a rank of a solver's job; zeroed where there is none          */
} checked;

/* ---- what a rank takes of each tier */

/* As its job would make its nets. */
static void fill_solver_options(const checked *k, double limit, ct_solver_options *o)
{
    const Ct__SolverParameter *s = k->config.solver;

    *o = (ct_solver_options){ .param = s,
                              .dev = ct_device_cpu(),
                              .map = k->config.map,
                              .memory_limit = limit,
                              .send_rows = ct_exchange_sends_rows(s) };
    o->env = (ct_net_env){ .n_rank = (int)k->n_rank,
                           .seed = (s->random_seed >= 0) ? (uint64_t)s->random_seed : 1,
                           .global_batch_size = s->global_batch_size,
                           .deterministic = (s->deterministic != 0),
                           .winograd = s->winograd,
                           .precision = s->precision };
}

/* Of files, as the nodes' class has them: a rank has its part. */
static ct_memory_speeds described_speeds(const ct_topo *topo)
{
    const ct_node_class *c = ct_topo_class(topo, ct_topo_slowest_node(topo));
    ct_memory_speeds v = { .file_read = 0 };

    if ((c == NULL) || !(c->file_read > 0) || !(c->file_write > 0)) return v;
    v = ct_memory_speeds_assumed;
    v.file_read = c->file_read / topo->node_size[0];
    v.file_write = c->file_write / topo->node_size[0];
    return v;
}

/* As the job would, before its nets are made: what AUTO says is in the solver then. */
static ct_status plan_tiers(const checked *k, double node_limit, ct_memory_tiers *t)
{
    Ct__SolverParameter *s = k->config.solver;
    bool named = (ct_options_count(k->call->options, "nodes", -1) >= 0);
    ct_solver_options options;
    ct_memory_plan p = { .options = &options };
    ct_topo *topo = NULL;
    ct_status status;

    CT_TRY(ct_verdict_topo(k->call->options, k->n_rank, &topo));
    p.speeds = described_speeds(topo);
    if (!named && (s->memory != NULL)) p.folder = ct_job_memory_folder(s->memory, NULL);
    CT_TRY(ct_comm_create_planned(topo, 0, &p.comm));
    fill_solver_options(k, node_limit, &options);
    ct_memory_plan_limit(&p, topo->node_size[0]);
    if (named && !((s->memory != NULL) && (s->memory->limit_mb > 0))) {
        p.limit = node_limit;
        p.who = "a node";
    }
    if ((s->memory != NULL) && (s->memory->limit_mb > 0))
        options.memory_limit = ct_memory_plan_room(&p);
    status = (s->memory != NULL) ? ct_memory_auto_settle(&p, s, t) : ct_memory_plan_make(&p, t);
    ct_comm_destroy(p.comm);
    return status;
}

/* Of a solver's net for training with all that its job keeps; of a model itself, once it is made.
 */
static bool is_of_job(const checked *k, ct_phase phase)
{
    return (k->n_net == 0) && (phase == CT_TRAIN) && !k->config.is_model && !k->has_state &&
           (k->parallel == NULL);
}

/* With what a solver's `memory` says. */
static ct_status rank_memory(const checked *k, const ct_sharded_net *s,
                             const ct_net_options *options, ct_rank_memory *m)
{
    const Ct__SolverParameter *p = k->config.solver;
    ct_planned_shards planned = { .param = p };
    ct_rank_shards shards = ct_planned_shards_open(&planned);
    ct_topo *topo = NULL;
    ct_status status;

    if (k->config.is_model || (p->memory == NULL))
        return ct_rank_memory_of(k->parallel, s, options, m);
    CT_TRY(ct_verdict_topo(k->call->options, k->parallel->n_rank, &topo));
    planned.topo = topo;
    status = ct_rank_memory_with(k->parallel, s, options, &shards, m);
    ct_planned_shards_close(&planned);
    ct_topo_destroy(topo);
    return status;
}

/* A limit that was given is for each of them; what messages take is not known here. Where AUTO has
 * a choice, the job finds out whether something fits. */
static ct_status check_limit(const checked *k, const ct_rank_memory *m)
{
    const Ct__MemoryParameter *p = k->config.solver->memory;
    int64_t runtime = ct_memory_resident_now();
    double need;
    int most = 0;

    if (k->config.is_model || (p == NULL) || !(p->limit_mb > 0)) return CT_OK;
    for (int r = 1; r < k->parallel->n_rank; r++)
        if (m[r].memory_bytes > m[most].memory_bytes) most = r;
    need = ceil(ldexp((double)(m[most].memory_bytes + runtime), -20));
    if (need <= p->limit_mb) return CT_OK;
    if (p->has_zero && (p->state != CT__MEMORY_PARAMETER__TIER__AUTO))
        return CT_FAIL(CT_ERR_CONFIG,
                       "limit_mb: %g: rank %d needs %.0f MiB, %.0f of them taken at the start",
                       p->limit_mb, most, need, ceil(ldexp((double)runtime, -20)));
    CT_WARN("limit_mb: %g: rank %d needs %.0f MiB with states in memory and zero: %d; AUTO chooses "
            "when the job starts",
            p->limit_mb, most, need, p->zero);
    return CT_OK;
}

static ct_status report_ranks(checked *k, const ct_sharded_net *s, const ct_net_options *options)
{
    ct_rank_memory *m = calloc((size_t)k->parallel->n_rank, sizeof(*m));
    ct_status status;

    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", k->parallel->n_rank);
    status = rank_memory(k, s, options, m);
    if (status == CT_OK) {
        ct_rank_memory_json(k->parallel, m, NULL, &k->w);
        if (k->to != NULL) {
            fprintf(k->to, "\n");
            ct_rank_memory_print(k->parallel, m, k->to);
        }
        status = check_limit(k, m);
    }
    free(m);
    return status;
}

static bool asks_for_step(const ct_options *o)
{
    return (ct_options_text(o, "parallel") != NULL) &&
           ((ct_options_text(o, "machine") != NULL) || (ct_options_text(o, "profile") != NULL));
}

/* --parallel, after the first net. */
static ct_status report_parallel(checked *k, const ct_net *net, const ct_net_options *options)
{
    const ct_options *o = k->call->options;
    ct_sharded_net s;
    ct_status status;

    CT_TRY(ct_sharded_net_make(k->parallel, net, &s));
    if (k->to != NULL) {
        fprintf(k->to, "\n");
        ct_parallel_print(k->parallel, &s, k->to);
    }
    ct_parallel_json(k->parallel, &s, &k->w);
    status = report_ranks(k, &s, options);
    if ((status == CT_OK) &&
        ((ct_options_text(o, "machine") != NULL) || (ct_options_text(o, "profile") != NULL))) {
        if (k->to != NULL) fprintf(k->to, "\n");
        status = ct_plan_file_step(k->call, ct_options_text(o, "parallel"), k->to, &k->w);
    }
    ct_sharded_net_destroy(&s);
    return status;
}

static ct_status report(checked *k, const Ct__NetParameter *param, const ct_net_options *options,
                        const ct_net *net)
{
    const Ct__SolverParameter *s = k->config.solver;
    const char *dot = ct_options_text(k->call->options, "dot");
    ct_check c;
    traffic way = { 0 };

    if ((k->parallel != NULL) && (k->n_net == 0)) CT_TRY(ct_parallel_bind(k->parallel, param, net));
    ct_check_count(net, k->n_rank, &c);
    c.divided = (k->parallel != NULL);
    CT_TRY(ct_check_blocks(param, options, &c));
    CT_TRY(find_traffic(net, s, k->n_rank, &way));
    c.optimiser_bytes = -1;
    if ((ct_options_text(k->call->options, "solver") != NULL) && (net->options.phase == CT_TRAIN)) {
        c.optimiser_bytes = ct_update_rule_state_bytes(s, net->grad_count);
        CT_TRY(ct_solver_micro_batches(s, k->config.map, net, &c.iter_size));
        c.step_tokens = c.iter_size * ct_net_tokens(net);
    }
    c.dense = way.dense;
    c.gathered = way.gathered;
    c.sent = sent(way.dense, way.gathered, k->n_rank);
    c.sent_first = way.first;
    c.falls_until = way.falls_until;
    if (k->n_net == 0) c.tiers = k->tiers;
    if ((k->n_net == 0) && (net->options.phase == CT_TRAIN) && !is_of_job(k, net->options.phase))
        ct_memory_tiers_add_net(&c.tiers, net);
    if (k->n_net == 1) ct_json_begin_list(&k->w, "test");
    ct_json_begin_object(&k->w, NULL);
    ct_check_json(&c, &k->w);
    if (k->to != NULL) {
        if (k->n_net > 0) fprintf(k->to, "\n");
        ct_check_print(&c, k->to);
    }
    if (k->n_net > 0) {
        ct_json_end(&k->w);
    } else {
        CT_TRY(ct_verdict(k->call->options, s, net, &c.tiers, k->to, &k->w));
        if (k->parallel != NULL) CT_TRY(report_parallel(k, net, options));
        if (dot != NULL) CT_TRY(ct_check_draw(net, dot));
    }
    k->n_net++;
    return CT_OK;
}

static void fill_options(const checked *k, const Ct__NetState *state, ct_phase phase,
                         ct_net_options *o)
{
    ct_net_options_fill(k->call, &k->config, phase, &k->state, o);
    if (!k->has_state && (state != NULL)) {
        o->level = state->level;
        o->stage = (const char *const *)state->stage;
        o->n_stage = (int)state->n_stage;
    }
    o->env.n_rank = (int)k->n_rank;
    o->no_data = true;
    o->forward_only = (phase == CT_TEST);
    o->fixed = false; /* whether layers can follow shows here */
}

static ct_status find_best(const checked *k, const ct_net *net)
{
    const ct_solver_text text = { k->config.solver, k->config.map };
    int64_t element;
    bool rises;

    return ct_best_find(&text, net, &element, &rises);
}

static ct_status check_net(checked *k, Ct__NetParameter *param, const Ct__NetState *state,
                           ct_phase phase)
{
    ct_net_options options;
    ct_net *net = NULL;
    ct_status status;

    fill_options(k, state, phase, &options);
    CT_TRY(ct_data_shapes_fill(&k->shapes, &options, param));
    CT_TRY(ct_verdict_memory(k->call->options, &options.memory_limit));
    if (is_of_job(k, phase)) CT_TRY(plan_tiers(k, options.memory_limit, &k->tiers));
    options.recompute = k->config.solver->recompute;
    if ((k->config.solver->memory != NULL) && (k->config.solver->memory->limit_mb > 0))
        options.memory_limit = fmax(1, ldexp(k->config.solver->memory->limit_mb, 20) -
                                           (double)ct_memory_resident_now());
    if ((k->parallel != NULL) && (phase == CT_TRAIN)) {
        options.again = k->parallel->again;
        options.n_again = k->parallel->n_again;
    }
    status = ct_net_create(param, &options, &net);
    if ((status == CT_OK) && k->of_best) status = find_best(k, net);
    if (status == CT_OK) status = report(k, param, &options, net);
    ct_net_destroy(net);
    return status;
}

/* ---- which nets */

static bool rule_allows(const Ct__NetStateRule *r, ct_phase phase)
{
    return !r->has_phase || ((r->phase == CT__PHASE__TEST) == (phase == CT_TEST));
}

static bool may_be_in(const Ct__LayerParameter *l, ct_phase phase)
{
    for (size_t i = 0; i < l->n_exclude; i++) {
        if (l->exclude[i]->has_phase && rule_allows(l->exclude[i], phase)) return false;
    }
    for (size_t i = 0; i < l->n_include; i++) {
        if (rule_allows(l->include[i], phase)) return true;
    }
    return l->n_include == 0;
}

static bool has_data(const Ct__NetParameter *net, ct_phase phase)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_bottom == 0) && (l->n_top > 0) && may_be_in(l, phase)) return true;
    }
    return false;
}

/* A net whose data layers are all of the other phase is made for that alone (train.prototxt). */
static bool is_meant_for(const checked *k, const Ct__NetParameter *net, ct_phase phase)
{
    ct_phase other = (phase == CT_TEST) ? CT_TRAIN : CT_TEST;

    if (has_data(net, phase) || !has_data(net, other)) return true;
    if (k->to != NULL)
        fprintf(k->to, "net %s has no data in phase %s: not checked there\n",
                (net->name != NULL) ? net->name : "", (phase == CT_TEST) ? "TEST" : "TRAIN");
    return false;
}

/* As the solver will: test_net_param and the files of test_net, which the config put there too,
 * then the common net. */
static ct_status check_test_nets(checked *k)
{
    const Ct__SolverParameter *s = k->config.solver;
    int n;

    CT_TRY(ct_solver_count_test_nets(s, k->config.map, &n));
    for (size_t i = 0; i < (size_t)n; i++) {
        Ct__NetParameter *param = (i < s->n_test_net_param) ? s->test_net_param[i] : k->config.net;

        k->of_best = (s->best != NULL) && ((int64_t)i == s->best->test_net);
        CT_TRY(check_net(k, param, (s->n_test_state > 0) ? s->test_state[i] : NULL, CT_TEST));
        k->of_best = false;
    }
    return CT_OK;
}

/* Names may be of any net. Those that test are planned beside the one that they test. */
static ct_status set_shapes(checked *k)
{
    const Ct__SolverParameter *s = k->config.solver;
    ct_net_options options;

    CT_TRY(ct_data_shapes_read(k->call->options, &k->shapes));
    ct_data_shapes_meet(&k->shapes, k->config.net);
    for (size_t i = 0; i < s->n_test_net_param; i++)
        ct_data_shapes_meet(&k->shapes, s->test_net_param[i]);
    CT_TRY(ct_data_shapes_check_names(&k->shapes));
    if (k->config.is_model) return CT_OK;
    fill_options(k, s->train_state, CT_TRAIN, &options);
    CT_TRY(ct_data_shapes_fill(&k->shapes, &options, k->config.net));
    for (size_t i = 0; i < s->n_test_iter; i++) {
        Ct__NetParameter *param = (i < s->n_test_net_param) ? s->test_net_param[i] : k->config.net;

        fill_options(k, (i < s->n_test_state) ? s->test_state[i] : NULL, CT_TEST, &options);
        CT_TRY(ct_data_shapes_fill(&k->shapes, &options, param));
    }
    return CT_OK;
}

static ct_status check_phases(checked *k, const char *phase)
{
    Ct__SolverParameter *s = k->config.solver;
    Ct__NetParameter *net = k->config.net;

    CT_TRY(set_shapes(k));
    if (!k->config.is_model) {
        /* Solvers that a script runs have none: nets and memory can be checked all the same. */
        if (!s->has_max_iter && !(s->max_epoch > 0.0f)) {
            CT_WARN("max_iter is not set: training needs it, or --iterations=N");
            s->has_max_iter = true;
        }
        CT_TRY(ct_solver_check(s, k->config.map));
    }
    if (phase != NULL) {
        bool test = strcmp(phase, "TEST") == 0;

        if (test && (s->n_test_net_param > 0)) return check_test_nets(k);
        return check_net(k, net, test ? NULL : s->train_state, test ? CT_TEST : CT_TRAIN);
    }
    if (!k->config.is_model) {
        CT_TRY(check_net(k, net, s->train_state, CT_TRAIN));
        return check_test_nets(k);
    }
    if ((k->parallel != NULL) || is_meant_for(k, net, CT_TRAIN))
        CT_TRY(check_net(k, net, NULL, CT_TRAIN));
    return is_meant_for(k, net, CT_TEST) ? check_net(k, net, NULL, CT_TEST) : CT_OK;
}

static ct_status write_json(checked *k, const char *file)
{
    if (k->n_net > 1) ct_json_end(&k->w);
    ct_json_end(&k->w);
    ct_text_add(&k->json, "\n");
    if (k->json.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    if (strcmp(file, "-") != 0) return ct_file_write(file, k->json.text, k->json.length);
    if ((fwrite(k->json.text, 1, k->json.length, stdout) != k->json.length) ||
        (fflush(stdout) != 0))
        return CT_FAIL(CT_ERR_IO, "the result cannot be written to stdout");
    return CT_OK;
}

/* Options that the step of a file alone has a use for. */
static ct_status check_step_options(const ct_options *o)
{
    bool places =
        (ct_options_text(o, "ranks_per_node") != NULL) && (ct_options_text(o, "parallel") != NULL);

    if (asks_for_step(o) || (!places && (ct_options_text(o, "limits") == NULL))) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--%s: for the step of --parallel=FILE, with --machine or --profile",
                   places ? "ranks_per_node" : "limits");
}

/* The file that --parallel names decides about ranks and batch. What else is checked is the net on
 * one rank with a micro-batch. */
/* What does not go with --parallel. */
static ct_status check_parallel_options(const ct_options *o, bool forward)
{
    const char *file = ct_options_text(o, "parallel");

    if ((file != NULL) && (ct_options_count(o, "nodes", -1) >= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--parallel=%s: --nodes is for jobs without it", file);
    if (forward && (ct_options_text(o, "profile") != NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--profile: a forward of --parallel=%s is told of operations "
                       "and bytes alone",
                       file);
    return CT_OK;
}

static ct_status open_parallel(checked *k)
{
    const ct_options *o = k->call->options;
    const char *file = ct_options_text(o, "parallel");
    const ct_solver_text text = { k->config.solver, k->config.map };

    if (file == NULL) return CT_OK;
    CT_TRY(ct_exchange_check_divided(&text));
    CT_TRY(ct_parallel_read(file, &k->parallel));
    if (ct_options_count(o, "ranks", -1) >= 0)
        CT_TRY(ct_parallel_check_ranks(k->parallel, k->n_rank, "--ranks"));
    k->n_rank = 1; /* the net is looked at as one rank would run it */
    CT_TRY(ct_parallel_set_dummy(k->parallel, k->config.net));
    return ct_parallel_set_batch(k->parallel, k->config.solver);
}

/* Whether so many ranks are what `topology` makes of them, and make the groups of `outer`. */
static ct_status check_ranks(const checked *k, int n_rank)
{
    const Ct__SolverParameter *s = k->config.solver;
    ct_topo_text text = { .kind = CT_TOPO_AUTO };
    ct_topo *topo = NULL;
    int groups;
    ct_status status;

    if (s->comm != NULL) CT_TRY(ct_topo_text_parse(s->comm->topology, &text));
    if ((text.kind != CT_TOPO_SPEC) && (s->outer == NULL)) return CT_OK;
    status = (text.kind == CT_TOPO_SPEC) ? ct_topo_from_string(text.spec, n_rank, &topo)
                                         : ct_verdict_topo(k->call->options, n_rank, &topo);
    if ((status == CT_OK) && (s->outer != NULL))
        status = ct_outer_groups_count(topo, s->outer->groups, &groups);
    ct_topo_destroy(topo);
    return status;
}

/* Ranks share a net that answers requests: nobody trains it. */
static bool is_of_forward(const ct_options *o)
{
    const char *phase = ct_options_text(o, "phase");

    return (ct_options_text(o, "parallel") != NULL) && (phase != NULL) &&
           (strcmp(phase, "TEST") == 0);
}

ct_status ct_verb_check(ct_call *call)
{
    const char *phase = ct_options_text(call->options, "phase");
    const char *json = ct_options_text(call->options, "json");
    checked k = { .call = call, .n_rank = 1, .to = stdout };
    ct_grad_pipe_config unused;
    ct_status status;

    k.w = ct_json_into(&k.json);
    if ((json != NULL) && (strcmp(json, "-") == 0)) k.to = NULL;
    CT_TRY(ct_verdict_ranks(call->options, &k.n_rank));
    CT_TRY(check_step_options(call->options));
    CT_TRY(check_parallel_options(call->options, is_of_forward(call->options)));
    if (is_of_forward(call->options)) return ct_plan_file_forward(call);
    CT_TRY(ct_net_state_read(call->options, &k.state));
    k.has_state = (ct_options_text(call->options, "stage") != NULL) ||
                  (ct_options_text(call->options, "level") != NULL);
    CT_TRY(ct_config_read(call->options,
                          ((phase != NULL) && (strcmp(phase, "TEST") == 0)) ? CT_TEST : CT_TRAIN,
                          &k.config));
    CT_TRY_GOTO(status, out, open_parallel(&k));
    CT_TRY_GOTO(status, out, ct_exchange_read_config(k.config.solver, &unused));
    if (k.parallel != NULL)
        CT_TRY_GOTO(status, out, check_ranks(&k, k.parallel->n_rank));
    else if ((ct_options_count(call->options, "ranks", -1) >= 0) ||
             (ct_options_count(call->options, "nodes", -1) >= 0))
        CT_TRY_GOTO(status, out, check_ranks(&k, (int)k.n_rank));
    if (k.n_rank > 1)
        CT_TRY_GOTO(status, out,
                    ct_exchange_check_shares(&(ct_solver_text){ k.config.solver, k.config.map }));
    CT_TRY_GOTO(status, out, check_phases(&k, phase));
    if (json != NULL) status = write_json(&k, json);
out:
    ct_data_shapes_destroy(&k.shapes);
    ct_parallel_destroy(k.parallel);
    ct_text_destroy(&k.json);
    ct_config_destroy(&k.config);
    return status;
}
