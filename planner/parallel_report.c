/* A parallel file and its net, for people and as JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "planner/sharding.h"

/* "0-3,8": runs of ranks that follow one another. */
static void add_ranks(const ct_parallel_stage *g, ct_text *out)
{
    for (int i = 0; i < g->n_rank;) {
        int end = i + 1;

        while ((end < g->n_rank) && (g->rank[end] == g->rank[end - 1] + 1)) end++;
        ct_text_add(out, "%s%d", (i > 0) ? "," : "", g->rank[i]);
        if (end - i > 1) ct_text_add(out, "-%d", g->rank[end - 1]);
        i = end;
    }
}

/* "5,3", or "4 each" of several alike. */
static void add_shares(const ct_parallel_stage *g, ct_text *out)
{
    bool alike = true;

    for (int j = 1; j < g->n_replica; j++) alike &= (g->share[j] == g->share[0]);
    if (alike) {
        ct_text_add(out, "%" PRId64 "%s", g->share[0], (g->n_replica > 1) ? " each" : "");
        return;
    }
    for (int j = 0; j < g->n_replica; j++)
        ct_text_add(out, "%s%" PRId64, (j > 0) ? "," : "", g->share[j]);
}

static const char *text_of(const ct_text *t)
{
    return (t->text != NULL) ? t->text : "";
}

enum { WIDE_RANKS = 12, WIDE_SHARES = 12 };

static void print_row(const ct_parallel *p, int k, FILE *to)
{
    const ct_parallel_stage *g = &p->stage[k];
    ct_text ranks = { 0 }, shares = { 0 };

    add_ranks(g, &ranks);
    add_shares(g, &shares);
    fprintf(to, "%5d  %-*s %8d %6d  %-*s  %s - %s\n", k, WIDE_RANKS, text_of(&ranks), g->n_replica,
            g->tensor, WIDE_SHARES, text_of(&shares), p->layer[g->first].name,
            p->layer[g->last].name);
    ct_text_destroy(&ranks);
    ct_text_destroy(&shares);
}

/* Layers of the file that are not BATCH. */
static bool shows_split(const ct_parallel *p, const ct_sharded_net *s, int k, int stage, int *i_p)
{
    *i_p = p->layer[k].layer;
    return (*i_p >= 0) && (p->layer[k].stage == stage) && (s->split[*i_p] != CT_PARALLEL_BATCH);
}

static void print_splits(const ct_parallel *p, const ct_sharded_net *s, int stage, FILE *to)
{
    bool first = true;

    for (int k = 0; k < p->n_layer; k++) {
        int i;

        if (!shows_split(p, s, k, stage, &i)) continue;
        fprintf(to, "%s%s %s", first ? "       split " : ", ", p->layer[k].name,
                ct_split_name(s->split[i]));
        first = false;
    }
    if (!first) fprintf(to, "\n");
}

static const char *sharding_name(ct_sharding_kind kind)
{
    static const char *const name[] = { "BATCH", "CHANNEL", "SEQUENCE", "WHOLE", "PARTIAL" };

    return name[kind];
}

static const char *blob_of(const ct_sharded_net *s, const ct_conversion *c)
{
    return s->net->pass->instance[c->layer]->bottom[c->bottom]->name;
}

static void print_stage(const ct_parallel *p, const ct_sharded_net *s, int stage, FILE *to)
{
    const ct_parallel_stage *g = &p->stage[stage];

    print_row(p, stage, to);
    print_splits(p, s, stage, to);
    for (int i = 0; i < g->n_again; i++)
        fprintf(to, "       again %s - %s\n", p->layer[g->again[i].first].name,
                p->layer[g->again[i].last].name);
    for (int i = 0; i < s->n_conversion; i++) {
        const ct_conversion *c = &s->conversion[i];

        if (c->stage != stage) continue;
        fprintf(to, "       %s of %s for %s: from %s to %s\n", ct_conversion_name(c), blob_of(s, c),
                s->net->layer[c->layer]->name, sharding_name(c->from.kind),
                sharding_name(c->to.kind));
    }
}

void ct_parallel_print(const ct_parallel *p, const ct_sharded_net *s, FILE *to)
{
    fprintf(to,
            "parallel    %s: %d rank%s, %d stage%s, global batch %" PRId64 " in %" PRId64
            " micro-batch%s of %" PRId64 "\n",
            p->file, p->n_rank, (p->n_rank > 1) ? "s" : "", p->n_stage, (p->n_stage > 1) ? "s" : "",
            p->global_batch, p->micro_batches, (p->micro_batches > 1) ? "es" : "", p->micro_batch);
    fprintf(to, "%5s  %-*s %8s %6s  %-*s  %s\n", "stage", WIDE_RANKS, "ranks", "replicas", "tensor",
            WIDE_SHARES, "share", "layers");
    for (int k = 0; k < p->n_stage; k++) print_stage(p, s, k, to);
}

/* ---- for programs */

static void add_split_list(const ct_parallel *p, const ct_sharded_net *s, int stage,
                           ct_json_writer *w)
{
    ct_json_begin_list(w, "splits");
    for (int k = 0; k < p->n_layer; k++) {
        int i;

        if (!shows_split(p, s, k, stage, &i)) continue;
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "layer", p->layer[k].name);
        ct_json_add_text(w, "split", ct_split_name(s->split[i]));
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void add_segments(const ct_parallel *p, const ct_parallel_stage *g, ct_json_writer *w)
{
    ct_json_begin_list(w, "again");
    for (int i = 0; i < g->n_again; i++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "first", p->layer[g->again[i].first].name);
        ct_json_add_text(w, "last", p->layer[g->again[i].last].name);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void add_conversions(const ct_sharded_net *s, int stage, ct_json_writer *w)
{
    ct_json_begin_list(w, "conversions");
    for (int i = 0; i < s->n_conversion; i++) {
        const ct_conversion *c = &s->conversion[i];

        if (c->stage != stage) continue;
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "kind", ct_conversion_name(c));
        ct_json_add_text(w, "blob", blob_of(s, c));
        ct_json_add_text(w, "layer", s->net->layer[c->layer]->name);
        ct_json_add_text(w, "from", sharding_name(c->from.kind));
        ct_json_add_text(w, "to", sharding_name(c->to.kind));
        ct_json_end(w);
    }
    ct_json_end(w);
}

void ct_parallel_json(const ct_parallel *p, const ct_sharded_net *s, ct_json_writer *w)
{
    ct_json_add_integer(w, "global_batch", p->global_batch);
    ct_json_add_integer(w, "micro_batches", p->micro_batches);
    ct_json_begin_list(w, "stages");
    for (int k = 0; k < p->n_stage; k++) {
        const ct_parallel_stage *g = &p->stage[k];

        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "first", p->layer[g->first].name);
        ct_json_add_text(w, "last", p->layer[g->last].name);
        ct_json_begin_list(w, "ranks");
        for (int i = 0; i < g->n_rank; i++) ct_json_add_integer(w, NULL, g->rank[i]);
        ct_json_end(w);
        ct_json_add_integer(w, "replicas", g->n_replica);
        ct_json_add_integer(w, "tensor", g->tensor);
        ct_json_begin_list(w, "shares");
        for (int j = 0; j < g->n_replica; j++) ct_json_add_integer(w, NULL, g->share[j]);
        ct_json_end(w);
        add_split_list(p, s, k, w);
        add_segments(p, g, w);
        add_conversions(s, k, w);
        ct_json_end(w);
    }
    ct_json_end(w);
}
