/* A parallel file read and checked, as far as that needs no net. */
#include "planner/parallel.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"

typedef struct parallel_impl {
    ct_source_map *map;
    ProtobufCMessage *message;
    char *file;
} parallel_impl;

ct_status ct_parallel_fail(const ct_parallel *p, const void *message, const void *field,
                           const char *fmt, ...)
{
    const parallel_impl *m = p->impl;
    ct_place place = ct_source_map_find(m->map, field);
    char text[800];
    va_list args;

    if (place.line == 0) place = ct_source_map_find(m->map, message);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (place.line == 0) return CT_FAIL(CT_ERR_CONFIG, "%s: %s", p->file, text);
    return CT_FAIL(CT_ERR_CONFIG, "%s:%d: %s", place.file, place.line, text);
}

static ct_status check_batch(ct_parallel *p)
{
    const Ct__ParallelParameter *f = p->param;

    if (f->ranks < 1)
        return ct_parallel_fail(p, f, &f->ranks, "ranks is %d; it must be at least 1", f->ranks);
    if (!f->has_global_batch)
        return ct_parallel_fail(p, f, NULL, "global_batch, the samples of a step, must be given");
    if (f->global_batch < 1)
        return ct_parallel_fail(p, f, &f->global_batch,
                                "global_batch is %" PRId64 "; it must be at least 1",
                                f->global_batch);
    if (f->micro_batches < 1)
        return ct_parallel_fail(p, f, &f->micro_batches,
                                "micro_batches is %" PRId64 "; it must be at least 1",
                                f->micro_batches);
    if (f->global_batch % f->micro_batches != 0)
        return ct_parallel_fail(p, f, f->has_micro_batches ? &f->micro_batches : NULL,
                                "global_batch %" PRId64
                                " cannot be divided by micro_batches %" PRId64,
                                f->global_batch, f->micro_batches);
    p->n_rank = f->ranks;
    p->global_batch = f->global_batch;
    p->micro_batches = f->micro_batches;
    p->micro_batch = f->global_batch / f->micro_batches;
    return CT_OK;
}

/* ---- ranks */

/* Where a rank stands that the file has twice. */
static ct_status fail_twice(const ct_parallel *p, int stage, int rank)
{
    int before = 0;

    for (int s = 0; s < stage; s++) {
        for (int i = 0; i < p->stage[s].n_rank; i++) {
            if (p->stage[s].rank[i] == rank) before = s + 1;
        }
    }
    if (before == 0)
        return ct_parallel_fail(p, p->stage[stage].param, &p->stage[stage].param->rank,
                                "stage %d has rank %d twice", stage, rank);
    return ct_parallel_fail(p, p->stage[stage].param, &p->stage[stage].param->rank,
                            "stage %d has rank %d, which is in stage %d already", stage, rank,
                            before - 1);
}

/* Marks the ranks below `most` that stages have. */
static ct_status mark_ranks(const ct_parallel *p, int64_t most, bool *has)
{
    for (int s = 0; s < p->n_stage; s++) {
        for (int i = 0; i < p->stage[s].n_rank; i++) {
            int rank = p->stage[s].rank[i];

            if ((rank < 0) || (rank >= p->n_rank))
                return ct_parallel_fail(p, p->stage[s].param, &p->stage[s].param->rank,
                                        "stage %d has rank %d, but the ranks are 0 to %d", s, rank,
                                        p->n_rank - 1);
            if (rank >= most) continue; /* then a smaller one is missing */
            if (has[rank]) return fail_twice(p, s, rank);
            has[rank] = true;
        }
    }
    return CT_OK;
}

static ct_status check_ranks(const ct_parallel *p)
{
    int64_t most = 0; /* of what is listed, plus 1: the first missing one is among them */
    ct_status status;
    bool *has;

    for (int s = 0; s < p->n_stage; s++) most += p->stage[s].n_rank;
    most = (most + 1 < p->n_rank) ? most + 1 : p->n_rank;
    has = calloc((size_t)most, sizeof(*has));
    if (has == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " ranks", most);
    status = mark_ranks(p, most, has);
    for (int r = 0; (r < most) && (status == CT_OK); r++) {
        if (!has[r])
            status = ct_parallel_fail(p, p->param, &p->param->ranks, "rank %d of %d is in no stage",
                                      r, p->n_rank);
    }
    free(has);
    return status;
}

/* Behind check_ranks(): each rank is in one stage. */
static ct_status list_places(ct_parallel *p)
{
    p->place = calloc((size_t)p->n_rank, sizeof(*p->place));
    if (p->place == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", p->n_rank);
    for (int s = 0; s < p->n_stage; s++) {
        const ct_parallel_stage *g = &p->stage[s];

        for (int i = 0; i < g->n_rank; i++)
            p->place[g->rank[i]] =
                (ct_parallel_place){ .stage = s, .replica = i / g->tensor, .part = i % g->tensor };
    }
    return CT_OK;
}

/* ---- stages */

static ct_status check_shares(const ct_parallel *p, int s)
{
    const Ct__ParallelStageParameter *f = p->stage[s].param;
    int64_t sum = 0;

    if (f->n_share != (size_t)p->stage[s].n_replica)
        return ct_parallel_fail(p, f, &f->share,
                                "stage %d gives share %zu times, but has %d replica%s: one each, "
                                "or none",
                                s, f->n_share, p->stage[s].n_replica,
                                (p->stage[s].n_replica > 1) ? "s" : "");
    for (size_t j = 0; j < f->n_share; j++) {
        if (f->share[j] < 1)
            return ct_parallel_fail(p, f, &f->share,
                                    "stage %d: the share of replica %zu is %" PRId64
                                    "; it must be at least 1",
                                    s, j, f->share[j]);
        sum += (f->share[j] <= p->micro_batch) ? f->share[j] : p->micro_batch + 1;
        if (sum > p->micro_batch) break;
    }
    if (sum != p->micro_batch)
        return ct_parallel_fail(p, f, &f->share,
                                "stage %d: its shares add up to %s%" PRId64
                                ", but a micro-batch has %" PRId64 " samples (global_batch %" PRId64
                                " / micro_batches %" PRId64 ")",
                                s, (sum > p->micro_batch) ? "more than " : "",
                                (sum > p->micro_batch) ? p->micro_batch : sum, p->micro_batch,
                                p->global_batch, p->micro_batches);
    return CT_OK;
}

/* As the file says, or as evenly as possible, the first ones the larger. */
static ct_status deal(ct_parallel *p, int s)
{
    ct_parallel_stage *g = &p->stage[s];
    int64_t n = g->n_replica;

    if (g->param->n_share > 0) CT_TRY(check_shares(p, s));
    if (n > p->micro_batch)
        return ct_parallel_fail(p, g->param, NULL,
                                "stage %d has %" PRId64 " replicas, but a micro-batch has %" PRId64
                                " sample%s (global_batch %" PRId64 " / micro_batches %" PRId64
                                "): one for each at least",
                                s, n, p->micro_batch, (p->micro_batch > 1) ? "s" : "",
                                p->global_batch, p->micro_batches);
    g->share = calloc((size_t)n, sizeof(*g->share));
    if (g->share == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " replicas", n);
    for (int64_t j = 0; j < n; j++)
        g->share[j] = (g->param->n_share > 0)
                          ? g->param->share[j]
                          : p->micro_batch / n + ((j < p->micro_batch % n) ? 1 : 0);
    return CT_OK;
}

static bool is_empty(const char *name)
{
    return (name == NULL) || (name[0] == '\0');
}

static ct_status read_stage(ct_parallel *p, int s)
{
    const Ct__ParallelStageParameter *f = p->param->stage[s];
    ct_parallel_stage *g = &p->stage[s];

    g->param = f;
    if (is_empty(f->first) || is_empty(f->last))
        return ct_parallel_fail(p, f, NULL, "stage %d: its %s layer must be given", s,
                                is_empty(f->first) ? "first" : "last");
    if (f->n_rank == 0) return ct_parallel_fail(p, f, NULL, "stage %d has no rank", s);
    if (f->tensor < 1)
        return ct_parallel_fail(p, f, &f->tensor, "stage %d: tensor is %d; it must be at least 1",
                                s, f->tensor);
    if (f->n_rank % (size_t)f->tensor != 0)
        return ct_parallel_fail(p, f, &f->tensor,
                                "stage %d: its %zu rank%s cannot be divided by tensor %d", s,
                                f->n_rank, (f->n_rank > 1) ? "s" : "", f->tensor);
    g->n_rank = (int)f->n_rank;
    g->rank = f->rank;
    g->tensor = f->tensor;
    g->n_replica = g->n_rank / g->tensor;
    for (size_t i = 0; i < f->n_layer; i++) {
        if (is_empty(f->layer[i]->name))
            return ct_parallel_fail(p, f->layer[i], NULL,
                                    "stage %d: an entry `layer` must have a name", s);
    }
    for (size_t i = 0; i < f->n_again; i++) {
        if (is_empty(f->again[i]->first) || is_empty(f->again[i]->last))
            return ct_parallel_fail(p, f->again[i], NULL,
                                    "stage %d: the %s layer of `again` must be given", s,
                                    is_empty(f->again[i]->first) ? "first" : "last");
    }
    return CT_OK;
}

static ct_status list_segments(ct_parallel *p)
{
    size_t n = 0;

    for (int s = 0; s < p->n_stage; s++) n += p->stage[s].param->n_again;
    p->again = calloc(n + 1, sizeof(*p->again));
    if (p->again == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu segments", n);
    for (int s = 0; s < p->n_stage; s++) {
        for (size_t i = 0; i < p->stage[s].param->n_again; i++) {
            const Ct__ParallelAgainParameter *a = p->stage[s].param->again[i];

            p->again[p->n_again++] = (ct_net_segment){ a->first, a->last };
        }
    }
    return CT_OK;
}

static ct_status read_file(ct_parallel *p)
{
    size_t n = p->param->n_stage;

    CT_TRY(check_batch(p));
    if (n == 0) return ct_parallel_fail(p, p->param, NULL, "there is no stage");
    p->stage = calloc(n, sizeof(*p->stage));
    if (p->stage == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu stages", n);
    p->n_stage = (int)n;
    for (int s = 0; s < p->n_stage; s++) CT_TRY(read_stage(p, s));
    CT_TRY(check_ranks(p));
    CT_TRY(list_places(p));
    for (int s = 0; s < p->n_stage; s++) CT_TRY(deal(p, s));
    return list_segments(p);
}

/* ---- the object */

ct_status ct_parallel_parse(const char *name, const char *text, size_t size,
                            ct_parallel **parallel_p)
{
    ct_parallel *p = calloc(1, sizeof(*p));
    parallel_impl *m = calloc(1, sizeof(*m));
    ct_status status;

    if ((p == NULL) || (m == NULL) || ((m->file = strdup(name)) == NULL)) {
        free(p);
        free(m);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", name);
    }
    p->impl = m;
    p->file = m->file;
    CT_TRY_GOTO(status, err, ct_source_map_create(&m->map));
    CT_TRY_GOTO(status, err,
                ct_prototxt_parse(&ct__parallel_parameter__descriptor, name, text, size, m->map,
                                  &m->message));
    p->param = (const Ct__ParallelParameter *)(const void *)m->message;
    CT_TRY_GOTO(status, err, read_file(p));
    *parallel_p = p;
    return CT_OK;

err:
    ct_parallel_destroy(p);
    return status;
}

ct_status ct_parallel_read(const char *path, ct_parallel **parallel_p)
{
    char *text = NULL;
    size_t size = 0;
    ct_status status;

    CT_TRY(ct_settings_read(path, &text, &size));
    status = ct_parallel_parse(path, text, size, parallel_p);
    free(text);
    return status;
}

void ct_parallel_destroy(ct_parallel *p)
{
    parallel_impl *m;

    if (p == NULL) return;
    m = p->impl;
    for (int s = 0; s < p->n_stage; s++) {
        free(p->stage[s].share);
        free(p->stage[s].again);
    }
    free(p->stage);
    free(p->place);
    free(p->again);
    free(p->layer);
    if (m->message != NULL) protobuf_c_message_free_unpacked(m->message, NULL);
    ct_source_map_destroy(m->map);
    free(m->file);
    free(m);
    free(p);
}

/* ---- asked of it */

ct_status ct_parallel_check_ranks(const ct_parallel *p, int64_t n_rank, const char *who)
{
    ct_place place = ct_source_map_find(((const parallel_impl *)p->impl)->map, &p->param->ranks);

    if (n_rank == p->n_rank) return CT_OK;
    if (place.line == 0)
        return CT_FAIL(CT_ERR_LAUNCH, "%s: ranks is %d, but %s has %" PRId64, p->file, p->n_rank,
                       who, n_rank);
    return CT_FAIL(CT_ERR_LAUNCH, "%s:%d: ranks is %d, but %s has %" PRId64, place.file, place.line,
                   p->n_rank, who, n_rank);
}

ct_status ct_parallel_set_batch(const ct_parallel *p, Ct__SolverParameter *solver)
{
    int64_t asked = solver->global_batch_size, iter_size = solver->iter_size;

    if ((asked != 0) && (asked != p->global_batch))
        return ct_parallel_fail(p, p->param, &p->param->global_batch,
                                "global_batch is %" PRId64 ", but global_batch_size %" PRId64,
                                p->global_batch, asked);
    if ((iter_size > 0) && (p->micro_batches > INT32_MAX / iter_size))
        return ct_parallel_fail(p, p->param, &p->param->micro_batches,
                                "micro_batches %" PRId64 " times iter_size %" PRId64
                                " are too many",
                                p->micro_batches, iter_size);
    solver->has_global_batch_size = true;
    solver->global_batch_size = p->micro_batch;
    if (solver->batch_tokens > 0) return CT_OK; /* it says how many passes there are */
    solver->has_iter_size |= (p->micro_batches > 1);
    solver->iter_size = (int32_t)(iter_size * p->micro_batches);
    return CT_OK;
}

/* ---- DummyData */

static bool rule_allows(const Ct__NetStateRule *r, Ct__Phase phase)
{
    return !r->has_phase || (r->phase == phase);
}

/* Whether some net of the phase may have the layer, as far as its rules speak of phases. */
static bool may_be_in(const Ct__LayerParameter *l, Ct__Phase phase)
{
    for (size_t i = 0; i < l->n_exclude; i++) {
        const Ct__NetStateRule *r = l->exclude[i];

        if (r->has_phase && (r->phase == phase) && !r->has_min_level && !r->has_max_level &&
            (r->n_stage == 0) && (r->n_not_stage == 0))
            return false;
    }
    for (size_t i = 0; i < l->n_include; i++) {
        if (rule_allows(l->include[i], phase)) return true;
    }
    return l->n_include == 0;
}

static bool is_dummy(const Ct__LayerParameter *l)
{
    return (l->type != NULL) && (strcmp(l->type, "DummyData") == 0) &&
           (l->dummy_data_param != NULL) && may_be_in(l, CT__PHASE__TRAIN);
}

/* Rules of this phase alone: include rules of the other go; without any, the other is excluded. */
static ct_status keep_phase(Ct__LayerParameter *l, Ct__Phase phase)
{
    Ct__NetStateRule *r, **more;
    size_t n = 0;

    for (size_t i = 0; i < l->n_include; i++) {
        r = l->include[i];
        if (!rule_allows(r, phase)) {
            ct__net_state_rule__free_unpacked(r, NULL);
            continue;
        }
        r->has_phase = true;
        r->phase = phase;
        l->include[n++] = r;
    }
    l->n_include = n;
    if (n > 0) return CT_OK;
    more = realloc(l->exclude, sizeof(Ct__NetStateRule *) * (l->n_exclude + 1));
    if (more != NULL) l->exclude = more;
    r = (Ct__NetStateRule *)(void *)ct_message_create(&ct__net_state_rule__descriptor);
    if ((more == NULL) || (r == NULL)) {
        free(r);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a rule of a layer");
    }
    r->has_phase = true;
    r->phase = (phase == CT__PHASE__TRAIN) ? CT__PHASE__TEST : CT__PHASE__TRAIN;
    l->exclude[l->n_exclude++] = r;
    return CT_OK;
}

/* Layer i becomes one of TRAIN, with one of TEST behind it, which is otherwise the same. */
static ct_status split_phases(Ct__NetParameter *net, size_t i)
{
    Ct__LayerParameter *l = net->layer[i], *copy = NULL, **more;
    size_t size = ct__layer_parameter__get_packed_size(l);
    uint8_t *wire = malloc(size + 1);

    if (wire != NULL) {
        ct__layer_parameter__pack(l, wire);
        copy = ct__layer_parameter__unpack(NULL, size, wire);
    }
    free(wire);
    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    more = realloc(net->layer, sizeof(Ct__LayerParameter *) * (net->n_layer + 1));
    if (more == NULL) {
        ct__layer_parameter__free_unpacked(copy, NULL);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    }
    net->layer = more;
    memmove(more + i + 2, more + i + 1, sizeof(Ct__LayerParameter *) * (net->n_layer - i - 1));
    more[i + 1] = copy;
    net->n_layer += 1;
    CT_TRY(keep_phase(l, CT__PHASE__TRAIN));
    return keep_phase(copy, CT__PHASE__TEST);
}

/* The samples that its first top has; 0: none are said. */
static int64_t dummy_batch(const Ct__DummyDataParameter *d)
{
    if (d->n_num > 0) return d->num[0];
    return ((d->n_shape > 0) && (d->shape[0]->n_dim > 0)) ? d->shape[0]->dim[0] : 0;
}

static int64_t first_dummy_batch(const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        if (is_dummy(net->layer[i]) && (dummy_batch(net->layer[i]->dummy_data_param) != 0))
            return dummy_batch(net->layer[i]->dummy_data_param);
    }
    return 0;
}

void ct_parallel_set_dummy_batch(Ct__NetParameter *net, int64_t batch)
{
    int64_t from = first_dummy_batch(net);

    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__DummyDataParameter *d = net->layer[i]->dummy_data_param;

        if (!is_dummy(net->layer[i])) continue;
        for (size_t k = 0; k < d->n_num; k++) {
            if (d->num[k] == from) d->num[k] = (uint32_t)batch;
        }
        for (size_t k = 0; k < d->n_shape; k++) {
            if ((d->shape[k]->n_dim > 0) && (d->shape[k]->dim[0] == from))
                d->shape[k]->dim[0] = batch;
        }
    }
}

ct_status ct_parallel_set_dummy(const ct_parallel *p, Ct__NetParameter *net)
{
    if (first_dummy_batch(net) == p->micro_batch) return CT_OK;
    for (size_t i = 0; i < net->n_layer; i++) {
        if (is_dummy(net->layer[i]) && may_be_in(net->layer[i], CT__PHASE__TEST))
            CT_TRY(split_phases(net, i));
    }
    ct_parallel_set_dummy_batch(net, p->micro_batch);
    return CT_OK;
}

ct_parallel_place ct_parallel_place_of(const ct_parallel *p, int rank)
{
    if ((rank < 0) || (rank >= p->n_rank)) return (ct_parallel_place){ -1, -1, -1 };
    return p->place[rank];
}
