#include "cli/check/check.h"
#include "cli/check/local_steps.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/codec/codec_types.h"
#include "comm/sparse/payload.h"
#include "framework/base/json_writer.h"
#include "framework/base/memory.h"
#include "framework/base/number.h"
#include "framework/solver/update_rule.h"
#include "runtime/config/exchange_config.h"
#include "cli/scale/step_model.h"

enum { MOST_ROWS = 16 };

typedef struct row {
    const char *name;
    ct_step_model model;
} row;

typedef struct verdict {
    const ct_options *o;
    const ct_net *net;
    FILE *to;                   /* NULL: nothing is printed */
    ct_grad_pipe_config config; /* codec_config as AUTO's */
    ct_profile_zero zero;       /* above 0 rows are dense and casts: others send whole gradients */
    ct_topo *topo;
    ct_profile *profile;
    bool computes; /* the profile says how long */
    bool guessed;  /* the machine was not named */
    double speed;  /* of the slowest node: all compute batches of one size */
    const ct_memory_tiers *tiers;
    double need;            /* bytes of a rank: weights, gradients, activations, the optimiser's */
    ct_step_model_own *own; /* [profile->n_param] */
    int n_own;              /* parameters with a `compress` of their own */
    row row[MOST_ROWS];
    int n_row;
    bool meets; /* the solver has an `outer`: */
    ct_local_steps local;
} verdict;

/* ---- what is asked for */

ct_status ct_verdict_ranks(const ct_options *o, int64_t *n_p)
{
    static const char *const needs[] = { "images_per_s", "ranks_per_node", "machine", "profile" };
    /* the step of a parallel file needs the last three, too */
    size_t n_need = (ct_options_text(o, "parallel") != NULL) ? 1 : 4;
    int64_t nodes = ct_options_count(o, "nodes", -1), ranks = ct_options_count(o, "ranks", -1);
    int64_t per_node = ct_options_count(o, "ranks_per_node", 1);

    *n_p = (ranks > 0) ? ranks : 1;
    for (size_t i = 0; (nodes < 0) && (i < n_need); i++) {
        if (ct_options_text(o, needs[i]) != NULL)
            return CT_FAIL(CT_ERR_CONFIG, "--%s: for --nodes=N, on how many nodes?", needs[i]);
    }
    if (nodes < 0) return CT_OK;
    if (nodes > INT_MAX / per_node)
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%" PRId64 " of %" PRId64 " ranks: at most %d ranks",
                       nodes, per_node, INT_MAX);
    if ((ranks > 0) && (ranks != nodes * per_node))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--ranks=%" PRId64 ", but --nodes=%" PRId64 " with %" PRId64
                       " ranks each are %" PRId64 ": leave --ranks out",
                       ranks, nodes, per_node, nodes * per_node);
    *n_p = nodes * per_node;
    return CT_OK;
}

static ct_status place_on(verdict *v, int64_t nodes)
{
    const char *name = ct_options_text(v->o, "machine");
    int64_t per_node = ct_options_count(v->o, "ranks_per_node", 1);
    ct_machine *m = NULL;
    char spec[64];
    ct_status status;

    v->guessed = (name == NULL);
    snprintf(spec, sizeof(spec), "%" PRId64 "x%" PRId64, nodes, per_node);
    if (v->guessed || (isdigit((unsigned char)name[0]) && (access(name, F_OK) != 0)))
        CT_TRY(ct_machine_from_spec(v->guessed ? spec : name, &m));
    else
        CT_TRY(ct_machine_read(name, &m));
    status = ct_topo_place(m, (int)(nodes * per_node), (int)per_node, "block", &v->topo);
    ct_machine_destroy(m);
    if (status == CT_OK) v->speed = ct_topo_speed(v->topo, ct_topo_slowest_node(v->topo));
    return status;
}

static ct_status place(verdict *v)
{
    return place_on(v, ct_options_count(v->o, "nodes", 1));
}

/* Of the node with the least memory for its ranks; NULL: not known of any. bytes: what they need.
 */
static const ct_node_class *smallest(const verdict *v, double *bytes_p)
{
    int node = ct_topo_smallest_node(v->topo);

    if (node < 0) return NULL;
    *bytes_p = v->need * v->topo->node_size[node];
    return ct_topo_class(v->topo, node);
}

ct_status ct_verdict_memory(const ct_options *o, double *bytes_p)
{
    verdict v = { .o = o };
    int node;

    *bytes_p = ct_memory_limit() / (double)ct_options_count(o, "ranks_per_node", 1);
    if (ct_options_count(o, "nodes", -1) < 0) return CT_OK;
    CT_TRY(place(&v));
    node = ct_topo_smallest_node(v.topo);
    if (node >= 0) *bytes_p = ct_topo_class(v.topo, node)->memory / v.topo->node_size[node];
    ct_topo_destroy(v.topo);
    return CT_OK;
}

ct_status ct_verdict_topo(const ct_options *o, int64_t n_rank, ct_topo **topo_p)
{
    verdict v = { .o = o };
    ct_machine *m = NULL;
    ct_status status;
    char spec[64];

    /* with a parallel file its ranks are on the first nodes */
    if ((ct_options_count(o, "nodes", -1) >= 0) || (ct_options_text(o, "machine") != NULL)) {
        int64_t per_node = ct_options_count(o, "ranks_per_node", 1);

        CT_TRY(place_on(&v, ct_options_count(o, "nodes", (n_rank + per_node - 1) / per_node)));
        *topo_p = v.topo;
        return CT_OK;
    }
    snprintf(spec, sizeof(spec), "1x%" PRId64, n_rank);
    CT_TRY(ct_machine_from_spec(spec, &m));
    status = ct_topo_place(m, (int)n_rank, (int)n_rank, "block", topo_p);
    ct_machine_destroy(m);
    return status;
}

/* What a rank needs at least does not fit. CT_ERR_CONFIG. */
static ct_status check_memory(const verdict *v)
{
    const double gib = ldexp(1, 30);
    double bytes = 0;
    const ct_node_class *c = smallest(v, &bytes);

    if ((c == NULL) || (bytes <= c->memory)) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "machine \"%s\": the ranks of a node need %.3g GiB of memory at least, but nodes "
        "of class \"%s\" have %.4g GiB",
        v->topo->machine.name, bytes / gib, c->name, c->memory / gib);
}

/* The net's own lists, in which nothing takes time. */
static ct_status empty_profile(verdict *v)
{
    const ct_net *net = v->net;
    ct_profile *p = v->profile = calloc(1, sizeof(*p));

    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a profile");
    p->param = calloc((size_t)net->n_param + 1, sizeof(*p->param));
    p->forward = calloc((size_t)net->n_forward + 1, sizeof(*p->forward));
    p->backward = calloc((size_t)net->n_backward + 1, sizeof(*p->backward));
    if ((p->param == NULL) || (p->forward == NULL) || (p->backward == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a profile");
    for (int i = 0; i < net->n_param; i++) {
        const ct_param *q = &net->param[i];

        if (!q->learns) continue;
        p->param[p->n_param] = (ct_profile_param){
            .key = strdup(q->key), .offset = q->offset, .count = q->count, .rows = ct_param_rows(q)
        };
        if (p->param[p->n_param++].key == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a profile");
    }
    for (int i = 0; i < net->n_forward; i++)
        if (ct_step_is_of_weights(&net->forward[i])) p->forward[p->n_forward++] = net->forward[i];
    for (int i = 0; i < net->n_backward; i++)
        if (ct_step_is_of_weights(&net->backward[i]))
            p->backward[p->n_backward++] = net->backward[i];
    return CT_OK;
}

static ct_status read_speed(const ct_options *o, double *images_per_s_p)
{
    const char *text = ct_options_text(o, "images_per_s");
    char *end = NULL;

    *images_per_s_p = 0;
    if (text == NULL) return CT_OK;
    if (!ct_number_real(text, &end, images_per_s_p) || (*end != '\0') || (*images_per_s_p <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--images_per_s=%s: expected a number above 0", text);
    return CT_OK;
}

/* Older profiles do not say how parameters look as matrices; the net does. */
static void fill_rows(const ct_net *net, ct_profile *p)
{
    for (int i = 0; i < p->n_param; i++) {
        for (int k = 0; (p->param[i].rows == 0) && (k < net->n_param); k++) {
            if (strcmp(net->param[k].key, p->param[i].key) == 0)
                p->param[i].rows = ct_param_rows(&net->param[k]);
        }
    }
}

static ct_status read_profile(verdict *v)
{
    const char *file = ct_options_text(v->o, "profile");
    double images_per_s = 0;
    char hash[24];

    CT_TRY(read_speed(v->o, &images_per_s));
    v->computes = (file != NULL);
    if (!v->computes && (images_per_s > 0))
        return CT_FAIL(CT_ERR_CONFIG, "--images_per_s scales a --profile=FILE, which is missing");
    if (!v->computes) return empty_profile(v);
    CT_TRY(ct_profile_read(file, &v->profile));
    snprintf(hash, sizeof(hash), "%016" PRIx64, ct_net_hash(v->net));
    CT_TRY(ct_profile_check_net(v->profile, file, hash));
    ct_profile_scale(v->profile, images_per_s, v->net->batch_local);
    fill_rows(v->net, v->profile);
    /* of what was measured, where no solver says */
    if (ct_options_text(v->o, "solver") == NULL) v->config.after_all |= v->profile->after_all;
    return CT_OK;
}

/* The solver's settings, as AUTO reads them. */
static ct_status read_config(verdict *v, const Ct__SolverParameter *solver)
{
    Ct__CompressionParameter c = CT__COMPRESSION_PARAMETER__INIT;

    CT_TRY(ct_exchange_read_config(solver, &v->config));
    v->zero = ct_profile_read_zero(solver);
    if (solver->compression != NULL) c = *solver->compression;
    c.type = CT__COMPRESSION_PARAMETER__TYPE__AUTO;
    return ct_codec_read_config(solver, &c, "compression", &v->config.codec,
                                &v->config.codec_config);
}

/* What parameters say of themselves holds whatever the solver says. */
static ct_status read_own(verdict *v, const Ct__SolverParameter *solver)
{
    const ct_net *net = v->net;
    const ct_profile *p = v->profile;

    v->own = calloc((size_t)p->n_param + 1, sizeof(*v->own));
    if (v->own == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", p->n_param);
    for (int i = 0; i < p->n_param; i++) {
        for (int k = 0; k < net->n_param; k++) {
            const ct_param *q = &net->param[k];

            if ((q->compress == NULL) || (strcmp(q->key, p->param[i].key) != 0)) continue;
            CT_TRY(ct_codec_read_own(solver, q->compress, q->key, &v->own[i].codec,
                                     &v->own[i].config));
            v->n_own += 1;
        }
    }
    return CT_OK;
}

/* ---- the rows */

static ct_status add_row(verdict *v, const ct_codec_ops *ops)
{
    ct_grad_pipe_config config = v->config;
    row *r = &v->row[v->n_row];

    if (v->n_row == MOST_ROWS) return CT_OK;
    config.codec = ops;
    config.codec_config.momentum_correction = ct_codec_corrects(ops, &config.codec_config);
    v->n_row += 1;
    r->name = ops->name;
    return ct_step_model_run(v->profile, v->topo, &config, v->own, &v->zero,
                             config.overlap ? CT_STEP_TIMELINE_BOTH : CT_STEP_TIMELINE_OFF,
                             1 / v->speed, &r->model);
}

static ct_status add_rows(verdict *v)
{
    CT_TRY(add_row(v, &ct_codec_none));
    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at) {
        if (((*at)->seconds != NULL) && ((v->zero.stage == 0) || (*at)->parts))
            CT_TRY(add_row(v, *at));
    }
    return (v->zero.stage == 0) ? add_row(v, &ct_codec_auto) : CT_OK;
}

/* Groups that train by themselves, dense inside. */
static ct_status add_local_steps(verdict *v, const Ct__SolverParameter *solver)
{
    ct_grad_pipe_config config = v->config;

    v->meets = (solver->outer != NULL);
    if (!v->meets) return CT_OK;
    config.codec = &ct_codec_none;
    return ct_local_steps_model(solver, v->profile, v->topo, &config, 1 / v->speed, &v->local);
}

/* ---- words */

static double compute_s(const verdict *v)
{
    double norm_s = v->config.after_all ? ct_profile_norm_s(v->profile) : 0;

    return (ct_profile_compute_s(v->profile) + norm_s) / v->speed;
}

static void print_classes(const verdict *v)
{
    const ct_node_class *slow = ct_topo_class(v->topo, ct_topo_slowest_node(v->topo)), *small;
    double bytes = 0;

    if (slow == NULL) return;
    fprintf(v->to, "the slowest nodes are of class \"%s\", speed %.4g\n", slow->name, slow->speed);
    small = smallest(v, &bytes);
    if (small != NULL)
        fprintf(v->to,
                "the ranks of a node need %.3g GiB at least; the smallest nodes, of class \"%s\", "
                "have %.4g GiB\n",
                ldexp(bytes, -30), small->name, ldexp(small->memory, -30));
}

static void print_head(const verdict *v)
{
    const ct_machine *m = &v->topo->machine;

    fprintf(v->to,
            "\ncompression on %d nodes x %d ranks of %s, batch %" PRId64 " a rank, density %g\n",
            v->topo->n_node, v->topo->n_rank / v->topo->n_node,
            v->guessed ? "a machine that was not named: its figures are guesses" : m->name,
            v->net->batch_local, (double)v->config.codec_config.density);
    if (v->computes)
        fprintf(v->to, "a rank computes %.3f ms a step%s\n", 1e3 * compute_s(v),
                (v->topo->node_class != NULL) ? " on the slowest nodes" : "");
    else
        fprintf(v->to,
                "how long a rank computes is not known (--profile=FILE, of cortado time --json): "
                "nothing is hidden here, and times are those of the exchange alone\n");
    fprintf(v->to, "what coding takes: %s\n",
            m->coding.measured ? "as the machine's file has it, measured"
                               : "estimated; cortado bench comm --fit measures it");
    print_classes(v);
    fprintf(v->to, "\n");
}

/* Something is coded, and another thread does it. */
static bool by_thread(const ct_step_model *m)
{
    return m->apart && (m->n_coded > 0);
}

static void print_rows(const verdict *v)
{
    double dense_s = v->row[0].model.step_s;

    fprintf(v->to, "%-10s %12s %12s %12s %10s %12s %10s\n", "type", "MB sent", "step ms",
            "exposed ms", "coding ms", "compressed", "x dense");
    for (int i = 0; i < v->n_row; i++) {
        const ct_step_model *m = &v->row[i].model;

        fprintf(v->to, "%-10s %12.4f %12.3f %12.3f %10.3f %5d of %3d %10.3f%s\n", v->row[i].name,
                1e-6 * m->bytes_sent, 1e3 * m->step_s, 1e3 * m->exposed_s, 1e3 * m->coding_s,
                m->n_coded, m->n_bucket, (m->step_s > 0) ? dense_s / m->step_s : 1,
                by_thread(m) ? "  thread" : "");
    }
}

/* Runs of buckets that go alike. */
static void print_choice(const verdict *v)
{
    const ct_step_model *m = &v->row[v->n_row - 1].model;

    for (int i = 0; i < m->n_bucket; i++) {
        const ct_step_model_bucket *b = &m->bucket[i];
        bool first = true;

        if (!b->coded) continue;
        for (int k = 0; first && (k < i); k++)
            first = !m->bucket[k].coded || (strcmp(m->bucket[k].codec, b->codec) != 0) ||
                    (strcmp(m->bucket[k].algorithm, b->algorithm) != 0);
        if (!first) continue;
        fprintf(v->to, "%s (%s):", b->codec, b->algorithm);
        for (int k = i; k < m->n_bucket; k++) {
            if (m->bucket[k].coded && (strcmp(m->bucket[k].codec, b->codec) == 0) &&
                (strcmp(m->bucket[k].algorithm, b->algorithm) == 0))
                fprintf(v->to, " %s", m->bucket[k].key);
        }
        fprintf(v->to, "\n");
    }
}

/* 2 / (w D): an allgather of payloads with w words an entry sends as much as a dense sum. */
static double crossover(const verdict *v, double words)
{
    return 2 / (words * (double)v->config.codec_config.density);
}

/* AUTO takes a codec, beside what parameters say of themselves. */
static bool compresses(const verdict *v)
{
    return (v->zero.stage == 0) && (v->row[v->n_row - 1].model.n_coded > v->row[0].model.n_coded);
}

static void print_verdict(const verdict *v)
{
    const ct_step_model *dense = &v->row[0].model, *best = &v->row[v->n_row - 1].model;

    fprintf(
        v->to,
        "\ncrossover   an allgather of (index, value) pairs sends more than dense from p* = 2 / "
        "(2 x %g) = %.0f ranks on, of 16-bit halves from 2 / (1 x %g) = %.0f\n",
        (double)v->config.codec_config.density, crossover(v, 2),
        (double)v->config.codec_config.density, crossover(v, 1));
    if (v->topo->n_rank == 1) {
        fprintf(v->to, "verdict     off: one rank sends nothing\n");
    } else if (v->zero.stage > 0) {
        fprintf(v->to, "verdict     AUTO is off: with memory { zero: %d } only casts compress\n",
                v->zero.stage);
    } else if (!compresses(v)) {
        fprintf(v->to, "verdict     off is faster here%s\n",
                v->computes ? "" : ", even with nothing to hide behind");
    } else {
        fprintf(v->to,
                "verdict     %s: %.3f ms a step in place of %.3f, %.2f times as fast as off\n",
                v->computes ? "AUTO compresses" : "may pay", 1e3 * best->step_s,
                1e3 * dense->step_s, dense->step_s / best->step_s);
        if (by_thread(best))
            fprintf(v->to, "a thread encodes and decodes beside the layers (progress: THREAD)\n");
        print_choice(v);
    }
}

/* ---- links: what a step moves over each, and how much of that is hidden behind computing */

typedef struct link_use {
    double seconds, hidden; /* below 0: not known */
} link_use;

static link_use file_use(const verdict *v)
{
    const ct_node_class *c = ct_topo_class(v->topo, ct_topo_slowest_node(v->topo));
    int n = v->topo->node_size[0];
    link_use u = { -1, -1 };

    if ((c == NULL) || !(c->file_read > 0) || !(c->file_write > 0)) return u;
    /* a disk reads and writes at once; the ranks of a node have it together */
    u.seconds = n * fmax((double)v->tiers->file_read / c->file_read,
                         (double)v->tiers->file_written / c->file_write);
    if (v->computes && (u.seconds > 0)) u.hidden = fmin(1, compute_s(v) / u.seconds);
    return u;
}

/* Of dense gradients; the weights of ZeRO's third stage come twice, which is in no bucket's time.
 */
static link_use network_use(const verdict *v)
{
    const ct_step_model *m = &v->row[0].model;
    link_use u = { 0, -1 };

    for (int i = 0; i < m->n_bucket; i++) u.seconds += m->bucket[i].seconds;
    if (v->zero.stage == 3) u.seconds = -1;
    if (v->computes && (u.seconds > 0)) u.hidden = fmax(0, 1 - m->exposed_s / u.seconds);
    return u;
}

static double bytes_sent(const verdict *v)
{
    return v->row[0].model.bytes_sent;
}

static void print_use(const verdict *v, link_use u, const char *unknown)
{
    if (u.seconds < 0)
        fprintf(v->to, ", in a time that is not known: %s\n", unknown);
    else if (u.hidden < 0)
        fprintf(v->to, " in %.3f ms; what is hidden is not known without --profile\n",
                1e3 * u.seconds);
    else
        fprintf(v->to, " in %.3f ms, of which %.0f %% are hidden\n", 1e3 * u.seconds,
                100 * u.hidden);
}

static void print_links(const verdict *v)
{
    fprintf(v->to, "\nnetwork     %.3f MB a rank and step", 1e-6 * bytes_sent(v));
    print_use(v, network_use(v), "weights that come for layers are not modelled");
    if (v->tiers->file_read == 0) return;
    fprintf(v->to, "files       %.3f MB a rank and step are read, %.3f written",
            1e-6 * (double)v->tiers->file_read, 1e-6 * (double)v->tiers->file_written);
    print_use(v, file_use(v), "the nodes' class needs file_read_gbs and file_write_gbs");
}

static void add_use(link_use u, ct_json_writer *w)
{
    ct_json_add_number(w, "seconds", (u.seconds < 0) ? (double)NAN : u.seconds);
    ct_json_add_number(w, "hidden", (u.hidden < 0) ? (double)NAN : u.hidden);
    ct_json_end(w);
}

static void add_links(const verdict *v, ct_json_writer *w)
{
    ct_json_begin_list(w, "links");
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "link", "network");
    ct_json_add_decimals(w, "sent", bytes_sent(v), 0);
    add_use(network_use(v), w);
    if (v->tiers->file_read > 0) {
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "link", "file");
        ct_json_add_integer(w, "read", v->tiers->file_read);
        ct_json_add_integer(w, "written", v->tiers->file_written);
        add_use(file_use(v), w);
    }
    ct_json_end(w);
}

static void add_classes(const verdict *v, ct_json_writer *w)
{
    const ct_node_class *slow = ct_topo_class(v->topo, ct_topo_slowest_node(v->topo)), *small;
    double bytes = 0;

    if (slow == NULL) return;
    ct_json_add_text(w, "slowest_class", slow->name);
    ct_json_add_number(w, "speed", slow->speed);
    small = smallest(v, &bytes);
    if (small == NULL) return;
    ct_json_add_text(w, "smallest_class", small->name);
    ct_json_add_number(w, "node_need_gib", ldexp(bytes, -30));
    ct_json_add_number(w, "node_memory_gib", ldexp(small->memory, -30));
}

static void add_json(const verdict *v, ct_json_writer *w)
{
    ct_json_begin_object(w, "verdict");
    ct_json_add_integer(w, "nodes", v->topo->n_node);
    ct_json_add_integer(w, "ranks", v->topo->n_rank);
    ct_json_add_text(w, "machine", v->guessed ? "" : v->topo->machine.name);
    ct_json_add_number(w, "compute_ms", v->computes ? 1e3 * compute_s(v) : 0.0);
    ct_json_add_bool(w, "coding_measured", v->topo->machine.coding.measured);
    ct_json_add_number(w, "density", (double)v->config.codec_config.density);
    ct_json_add_number(w, "crossover_pairs", crossover(v, 2));
    ct_json_add_number(w, "crossover_half", crossover(v, 1));
    ct_json_add_integer(w, "own", v->n_own);
    ct_json_add_bool(w, "compresses", compresses(v));
    ct_json_begin_list(w, "types");
    for (int i = 0; i < v->n_row; i++) {
        const ct_step_model *m = &v->row[i].model;

        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "type", v->row[i].name);
        ct_json_add_decimals(w, "bytes_sent", m->bytes_sent, 0);
        ct_json_add_number(w, "step_ms", 1e3 * m->step_s);
        ct_json_add_number(w, "exposed_ms", 1e3 * m->exposed_s);
        ct_json_add_number(w, "coding_ms", 1e3 * m->coding_s);
        ct_json_add_integer(w, "compressed", m->n_coded);
        ct_json_add_bool(w, "thread", by_thread(m));
        ct_json_end(w);
    }
    ct_json_end(w);
    if (v->meets) ct_local_steps_json(&v->local, w);
    add_links(v, w);
    add_classes(v, w);
    ct_json_end(w);
}

/* As `check` prints it. */
static double need_of(const ct_options *o, const Ct__SolverParameter *solver, const ct_net *net)
{
    double bytes = (double)net->memory.planned + (double)net->memory.weights;

    if (ct_options_text(o, "solver") != NULL)
        bytes += (double)ct_update_rule_state_bytes(solver, net->grad_count);
    return bytes;
}

ct_status ct_verdict(const ct_options *o, const Ct__SolverParameter *solver, const ct_net *net,
                     const ct_memory_tiers *tiers, FILE *to, ct_json_writer *json)
{
    verdict v = { .o = o, .net = net, .tiers = tiers, .to = to };
    ct_status status = CT_OK;

    if (ct_options_count(o, "nodes", -1) < 0) return CT_OK;
    CT_TRY_GOTO(status, out, read_config(&v, solver));
    CT_TRY_GOTO(status, out, place(&v));
    v.need = need_of(o, solver, net);
    CT_TRY_GOTO(status, out, read_profile(&v));
    if (v.profile->n_param == 0) {
        status = CT_FAIL(CT_ERR_CONFIG, "--nodes: the net learns nothing");
        goto out;
    }
    CT_TRY_GOTO(status, out, read_own(&v, solver));
    CT_TRY_GOTO(status, out, add_rows(&v));
    CT_TRY_GOTO(status, out, add_local_steps(&v, solver));
    if (to != NULL) {
        print_head(&v);
        print_rows(&v);
        print_verdict(&v);
        if (v.meets) ct_local_steps_print(&v.local, v.row[0].model.step_s, to);
        print_links(&v);
    }
    if ((to != NULL) && (v.n_own > 0))
        fprintf(to,
                "(in each row, off too, the %d parameter%s with a `compress` of %s own as %s)\n",
                v.n_own, (v.n_own == 1) ? "" : "s", (v.n_own == 1) ? "its" : "their",
                (v.n_own == 1) ? "it says" : "they say");
    if (json != NULL) add_json(&v, json);
    status = check_memory(&v);
out:
    for (int i = 0; i < v.n_row; i++) ct_step_model_release(&v.row[i].model);
    free(v.own);
    ct_profile_destroy(v.profile);
    ct_topo_destroy(v.topo);
    return status;
}
