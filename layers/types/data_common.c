/* What layers that read samples share: their reader, their batch, and batches that go up to a
 * device ahead of the step. */
#include "layers/types/data_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/base/trace.h"
#include "framework/data/absent/absent_shapes.h"
#include "framework/data/group.h"
#include "framework/data/reader.h"
#include "framework/data/stripes.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"

enum {
    SYNTHETIC_SAMPLES = 1024,
    DEFAULT_DEPTH = 4,
    MAX_DEPTH = 64,
    MAX_THREADS = 64,
    MAX_BROKEN = 1 << 20
};

/* ---- set-up */

static ct_status name_owner(const ct_layer *l, char **who_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s%slayer \"%s\" (%s)", l->where, (l->where[0] != '\0') ? ": " : "", l->name,
                l->ops->type);
    if (t.failed) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory");
    *who_p = t.text;
    return CT_OK;
}

static ct_status shape_of(const ct_layer *l, const Ct__BlobShape *from, ct_shape *to)
{
    if (from->n_dim > CT_MAX_DIM - 1) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "synthetic_shape has %zu dimensions, at most %d",
                             from->n_dim, CT_MAX_DIM - 1);
    }
    to->ndim = (int)from->n_dim;
    for (size_t i = 0; i < from->n_dim; i++) {
        if (from->dim[i] < 1) {
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "synthetic_shape has dimension %lld",
                                 (long long)from->dim[i]);
        }
        to->dim[i] = from->dim[i];
    }
    return CT_OK;
}

/* The shapes of made-up samples: what the prototxt says, else what it lets one guess. */
static ct_status synthetic_shapes(const ct_layer *l, const ct_data_source *s, ct_reader_options *o)
{
    const Ct__TransformationParameter *t = l->param->transform_param;
    int64_t height = o->new_height, width = o->new_width;

    if ((height == 0) && (t != NULL)) ct_transform_made_size(t, &height, &width);
    o->count = SYNTHETIC_SAMPLES;
    for (int i = 1; i < o->n_field; i++) o->shape[i] = (ct_shape){ 0 }; /* a label */
    if (s->annotated != NULL) o->shape[1] = (ct_shape){ 2, { o->max_boxes, CT_BOX_ROW } };
    for (size_t i = 0; (i < s->n_synthetic) && (i < (size_t)o->n_field); i++) {
        CT_TRY(shape_of(l, s->synthetic[i], &o->shape[i]));
    }
    if (s->n_synthetic > 0) return CT_OK;
    if (height == 0) {
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "%s is not there, and neither crop_size nor synthetic_shape says what "
            "made-up data of top \"%s\" should look like (give --data_shape=C,H,W or "
            "--data_shape=%s:C,H,W to check, plan or time)",
            (o->source != NULL) ? o->source : "the source", l->param->top[0], l->param->top[0]);
    }
    o->shape[0] = (ct_shape){ 3, { (o->color == CT_COLOR_GRAY) ? 1 : 3, height, width } };
    return CT_OK;
}

/* This rank's path of the copy, which must be there for it too. */
static ct_status find_copy(ct_layer *l, const ct_reader_options *o)
{
    const char *stage = l->env->group->stage;
    ct_data_state *d = l->state;

    d->staged = ct_stage_path(stage, o->source);
    if (d->staged == NULL) return CT_LAYER_FAIL(l, CT_ERR_IO, "%s: %s", o->source, strerror(errno));
    if (access(d->staged, R_OK) == 0) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_IO,
                         "the copy %s is not there for rank %d: %s; --stage=%s must be one folder "
                         "for all ranks of a host",
                         d->staged, l->env->group->data.rank, strerror(errno), stage);
}

/* --stage: one rank a host copies the set, and all read the copy. Ranks may see different things
 * (a source that only some hosts have), but they meet at the same places. */
static ct_status stage_source(ct_layer *l, const char *backend, ct_reader_options *o)
{
    const ct_data_group *g = l->env->group;
    ct_data_state *d = l->state;
    ct_status status = CT_OK;
    bool can;

    if (g->stage == NULL) return CT_OK;
    can = ct_stage_can(backend, o->source);
    if (!can) CT_INFO("%s: %s is not staged: LMDB sets and HDF5 files are", d->who, o->source);
    if (can && g->copies) status = ct_stage_make(g->stage, o->source, d->who);
    CT_TRY(g->agree(g->ctx, status));
    if (can) status = find_copy(l, o);
    CT_TRY(g->agree(g->ctx, status));
    if (can) o->source = d->staged;
    return CT_OK;
}

/* Rank 0 opens the set first, so that the others find its index; then those who read. A rank that
 * does not is told what the set looks like. */
static ct_status open_together(ct_layer *l, const char *backend, const ct_reader_options *o)
{
    const ct_data_group *g = l->env->group;
    ct_data_state *d = l->state;
    ct_status status = CT_OK;
    ct_reader_facts facts;
    bool reads;

    d->fed = g->one_reader && ct_reader_can_feed(backend) && (o->skip_broken == 0);
    reads = !d->fed || (g->node.rank == 0);
    if (g->data.rank == 0) status = ct_reader_open(backend, o, &d->reader);
    CT_TRY(g->agree(g->ctx, status));
    if (reads && (g->data.rank > 0)) status = ct_reader_open(backend, o, &d->reader);
    CT_TRY(g->agree(g->ctx, status));
    if (!d->fed) return CT_OK;
    if (reads) ct_reader_tell(d->reader, &facts);
    CT_TRY(ct_group_broadcast(&g->node, &facts, sizeof(facts)));
    return reads ? CT_OK : ct_reader_open_far(backend, o, &facts, &d->reader);
}

static ct_status open_source(ct_layer *l, const ct_data_source *s)
{
    ct_data_state *d = l->state;
    ct_reader_options o = s->options;

    o.who = d->who;
    o.n_field = l->n_top;
    o.skip_broken = d->skip_broken;
    d->synthetic = s->absent && l->env->synthetic;
    if (d->synthetic) {
        CT_TRY(synthetic_shapes(l, s, &o));
        return ct_reader_open("synthetic", &o, &d->reader);
    }
    if (o.source == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "source is not set");
    if (l->env->group != NULL) {
        ct_status status = stage_source(l, s->backend, &o);

        if (status == CT_OK) status = open_together(l, s->backend, &o);
        return status;
    }
    return ct_reader_open(s->backend, &o, &d->reader);
}

/* Made-up data has no mean of its own: where the file is missing, none is taken off. */
static ct_status open_mix(ct_layer *l, const Ct__TransformationParameter *p)
{
    ct_data_state *d = l->state;

    CT_TRY(ct_mixing_read(p, l->phase, d->who, &d->mix));
    if (!ct_mixing_acts(&d->mix)) return CT_OK;
    if ((l->n_top < 2) || (ct_shape_count(&d->reader->field[1], 0, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "mixup and cutmix mix labels, too: the second top must be one label a "
                             "sample");
    if (d->shape.ndim != 3)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "mixup and cutmix need samples of channels x height x width, these "
                             "are %s",
                             ct_shape_str(&d->shape).text);
    return CT_OK;
}

static ct_status open_transform(ct_layer *l, bool whole)
{
    ct_data_state *d = l->state;
    const Ct__TransformationParameter *p = whole ? NULL : l->param->transform_param;
    Ct__TransformationParameter without;
    ct_shape augmented;
    ct_status status;
    ct_why why;

    if (d->synthetic && (p != NULL)) {
        without = *p;
        without.mean_file = NULL;
        p = &without;
    }
    if (d->annotated != NULL)
        CT_TRY(ct_augment_create_with_boxes(l->param->transform_param, d->annotated, l->phase,
                                            d->who, &d->augment));
    else
        CT_TRY(ct_augment_create(whole ? NULL : l->param->transform_param, l->phase, d->who,
                                 &d->augment));
    CT_TRY(ct_transform_create(p, l->phase, d->who, &d->transform));
    if ((d->augment != NULL) && !d->reader->u8)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "transform_param.%s needs samples of 8 bits, %s has floats",
                             (ct_augment_named(p) != NULL) ? ct_augment_named(p) : "batch_sampler",
                             d->reader->source);
    status = ct_augment_shape(d->augment, &d->reader->field[0], &augmented, &why);
    if (status == CT_OK) status = ct_transform_shape(d->transform, &augmented, &d->shape, &why);
    if (status != CT_OK) {
        char name[512];

        d->reader->ops->describe(d->reader, 0, name, sizeof(name));
        return CT_LAYER_FAIL(l, status, "%s: %s", name, why.text);
    }
    return open_mix(l, whole ? NULL : l->param->transform_param);
}

/* Stripes are the set's own unless the layer says otherwise. */
static ct_status settle_order(ct_layer *l, const ct_data_source *source)
{
    ct_data_state *d = l->state;
    bool shuffle = source->has_shuffle ? source->shuffle : (l->phase == CT_TRAIN);
    int64_t stripes = (source->stripes > 0) ? source->stripes : d->reader->stripes;

    if (d->synthetic) stripes = 1;

    if ((stripes > d->reader->count) || (stripes > CT_MAX_STRIPE)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%lld stripes of %lld samples; at most %d",
                             (long long)stripes, (long long)d->reader->count, CT_MAX_STRIPE);
    }
    d->stripes = !shuffle ? 0 : (stripes > 1) ? stripes : 1;
    return CT_OK;
}

/* In TEST each sample comes once. */
static ct_status read_repeat(ct_layer *l, const ct_data_source *source)
{
    const Ct__TransformationParameter *p = l->param->transform_param;
    ct_data_state *d = l->state;

    d->repeat = 1;
    if ((p == NULL) || (p->repeat == 1)) return CT_OK;
    if ((p->repeat < 1) || source->whole || (d->rand_skip > 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "transform_param.repeat is %u: at least 1, and 1 beside rand_skip and "
                             "in WindowData",
                             p->repeat);
    if (l->phase == CT_TRAIN) d->repeat = p->repeat;
    return CT_OK;
}

/* Several crops of each sample: of images that are cut, or that are mirrored alone. */
static ct_status read_crops(ct_layer *l, const ct_data_source *source)
{
    const Ct__TransformationParameter *p = l->param->transform_param;
    ct_data_state *d = l->state;
    int64_t height, width;
    bool cuts =
        ct_transform_crop(p, &height, &width) || ((p != NULL) && (p->random_resized_crop != NULL));

    if ((l->phase != CT_TEST) || (l->env->crops == 0)) return CT_OK;
    if (source->whole || (source->annotated != NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "--crops=%d: %s has no crops of a picture",
                             l->env->crops, l->ops->type);
    if ((l->env->crops > 2) && !cuts && (d->reader->field[0].ndim == 3))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "--crops=%d: transform_param has no crop_size, so there are no "
                             "corners: give it, or --crops=2, which mirrors alone",
                             l->env->crops);
    d->crops = l->env->crops;
    return CT_OK;
}

ct_status ct_data_setup(ct_layer *l, const ct_data_source *source)
{
    ct_data_state *d = l->state;
    const Ct__DataParameter *p = l->param->data_param;

    CT_TRY(name_owner(l, &d->who));
    d->batch_size = source->batch_size;
    d->rand_skip = source->rand_skip;
    d->annotated = source->annotated;
    d->depth = ((p != NULL) && p->has_prefetch) ? (int)p->prefetch : DEFAULT_DEPTH;
    d->threads = (int)source->threads;
    if ((d->depth < 1) || (d->depth > MAX_DEPTH)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "prefetch is %d, must be 1 to %d", d->depth,
                             MAX_DEPTH);
    }
    if ((d->threads < 1) || (d->threads > MAX_THREADS)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "threads is %d, must be 1 to %d", d->threads,
                             MAX_THREADS);
    }
    if (d->depth < d->threads) d->depth = d->threads;
    if (l->param->transform_param != NULL) d->skip_broken = l->param->transform_param->skip_broken;
    if (d->skip_broken > MAX_BROKEN) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "skip_broken is %lld, must be 0 to %d",
                             (long long)d->skip_broken, MAX_BROKEN);
    }
    CT_TRY(open_source(l, source));
    CT_TRY(settle_order(l, source));
    if (d->synthetic && (l->env->synthetic_batch > 0)) d->batch_size = l->env->synthetic_batch;
    if ((d->batch_size < 1) || (d->batch_size > INT32_MAX)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "batch_size is %lld, must be at least 1",
                             (long long)d->batch_size);
    }
    CT_TRY(read_repeat(l, source));
    CT_TRY(read_crops(l, source));
    return open_transform(l, source->whole);
}

void ct_data_destroy(ct_layer *l)
{
    ct_data_state *d = l->state;

    ct_reader_close(d->reader);
    ct_augment_destroy(d->augment);
    ct_transform_destroy(d->transform);
    free(d->staged);
    free(d->who);
}

/* ---- an instance */

/* A set of shards: how many files a batch touches, and how many ranks meet at one. */
static void tell_shards(const ct_layer *l, const ct_share *share)
{
    const ct_data_state *d = l->state;
    const ct_reader *r = d->reader;
    ct_shards s = { .n = r->count, .stripes = r->stripes, .n_file = r->n_file };
    int touched;

    if ((r->n_file < 2) || (r->stripes < 2)) return;
    touched = ct_shards_touched(&s, share->local);
    CT_INFO("%s: %lld samples in %d files, stripes of %lld: a batch of %lld touches at most %d "
            "files, of %d ranks at most %d meet at a file",
            d->who, (long long)s.n, s.n_file, (long long)(s.n / s.stripes), (long long)share->local,
            touched, l->env->n_rank, ct_shards_readers(&s, share->local, l->env->n_rank));
    if ((d->stripes == 1) && (l->phase == CT_TRAIN))
        CT_WARN("%s: shuffled over all samples, batches touch all files (stripes: 1)", d->who);
    else if ((touched > 2) && (share->local > s.n / s.stripes))
        CT_WARN("%s: the batch is longer than a stripe: convert with --stripe=%lld or more", d->who,
                (long long)share->local);
}

static ct_shape with_batch(int64_t batch, const ct_shape *sample)
{
    ct_shape s = { .ndim = sample->ndim + 1, .dim = { batch } };

    for (int i = 0; i < sample->ndim; i++) s.dim[i + 1] = sample->dim[i];
    return s;
}

ct_status ct_data_check_size(const ct_layer *l, const ct_shape *shape)
{
    CT_TRY(ct_layer_check_shape(l, shape));
    if (ct_shape_count(shape, 0, -1) > ((int64_t)1 << 40)) {
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "a batch of shape %s is too large",
                             ct_shape_str(shape).text);
    }
    return CT_OK;
}

/* Whether the device of the layer makes its values from bytes. */
static bool transforms(const ct_layer *l)
{
    return (l->dev != NULL) && (l->dev->kind != CT_DEVICE_CPU) && (l->dev->copy_ahead != NULL);
}

/* Each sample as often in a batch, and in every batch. */
static ct_status check_repeat(const ct_layer *l, const ct_share *share)
{
    const ct_data_state *d = l->state;

    if (share->global % d->repeat == 0) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "transform_param.repeat is %lld, which does not divide the batch of %lld",
                         (long long)d->repeat, (long long)share->global);
}

static ct_data_instance *source_of(const ct_layer *l, ct_data_instance *di)
{
    ct_data_state *d = l->state;

    if ((l->env->in_flight <= 1) || transforms(l)) return di;
    if (d->first == NULL) d->first = di;
    return d->first;
}

static ct_loader *loader_of(const ct_instance *in)
{
    return ((const ct_data_instance *)in->state)->source->loader;
}

/* Samples 2 i and 2 i + 1 of the global batch are mixed: no rank may have one of them alone. */
static ct_status check_pairs(const ct_layer *l, const ct_share *share)
{
    const ct_data_state *d = l->state;

    if (!ct_mixing_acts(&d->mix) || ((share->local % 2 == 0) && (share->first % 2 == 0)))
        return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                         "mixup and cutmix mix pairs of samples, but of the batch of %lld a rank "
                         "has %lld, from %lld on: give each rank an even number",
                         (long long)share->global, (long long)share->local,
                         (long long)share->first);
}

ct_status ct_data_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_data_state *d = l->state;
    ct_data_instance *di = in->state;
    ct_loader_options o = { .reader = d->reader,
                            .augment = d->augment,
                            .mix = d->mix,
                            .boxes = (d->annotated != NULL) && (l->n_top > 1),
                            .transform = d->transform,
                            .shape = d->shape,
                            .stripes = d->stripes,
                            .repeat = d->repeat,
                            .crops = d->crops,
                            .rand_skip = d->rand_skip,
                            .skip_broken = d->skip_broken,
                            .depth = d->depth,
                            .threads = d->threads,
                            .group = d->fed ? l->env->group : NULL,
                            .turns = l->env->turns };

    CT_TRY(ct_data_share(l, d->batch_size, &o.share));
    CT_TRY(check_pairs(l, &o.share));
    CT_TRY(check_repeat(l, &o.share));
    tell_shards(l, &o.share);
    in->batch_local = o.share.local;
    in->batch_global = o.share.global;
    in->batch_first = o.share.first;
    in->n_sample = d->synthetic ? 0 : d->reader->count * d->repeat;
    for (int i = 0; i < l->n_top; i++) {
        ct_shape one = (i == 0) ? d->shape : d->reader->field[i], shape;

        if ((i == 1) && ct_mixing_acts(&d->mix)) one = (ct_shape){ 1, { d->mix.classes } };
        shape = with_batch(o.share.local, &one);
        if ((i == 1) && o.boxes)
            shape = (ct_shape){ 4, { 1, 1, o.share.local * one.dim[0], one.dim[1] } };

        CT_TRY(ct_data_check_size(l, &shape));
        ct_blob_set_shape(in->top[i], &shape);
    }
    ct_data_ahead_end(l, in);
    ct_loader_destroy(di->loader);
    di->loader = NULL;
    di->source = source_of(l, di);
    if (di->source != di) return CT_OK;
    if (transforms(l)) {
        o.pack = l->dev;
        o.depth += CT_DATA_AHEAD; /* these stay until they are used */
    }
    CT_TRY(ct_loader_create(&o, &di->loader));
    if (ct_loader_pack(di->loader) != NULL) ct_data_ahead_buffers(l, in);
    return CT_OK;
}

/* By all threads: each step waits for it. */
static void copy_values(float *to, const float *from, int64_t n)
{
    enum { PIECE = 16 << 10 };

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i += PIECE)
        memcpy(to + i, from + i, (size_t)((n - i < PIECE) ? n - i : PIECE) * sizeof(float));
}

ct_status ct_data_put(const ct_exec *ex, ct_blob *top, const float *values, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);

    if ((ex->dev != NULL) && (ex->dev->upload != NULL))
        return ex->dev->upload(ex->stream, top->data.data, values, bytes);
    if ((ex->dev != NULL) && (ex->dev->kind != CT_DEVICE_CPU)) {
        return ex->dev->from_host(ex->stream, top->data.data, values, bytes);
    }
    copy_values(top->data.data, values, n);
    return CT_OK;
}

/* Broken samples of an epoch, of all ranks together: every rank finds the limit passed in the same
 * step, whatever their number. Batches that do not follow one another (a test pass from its start,
 * a resumed run) begin to count anew. The sum is no pair of steps: a run that must end does so
 * before any layer computes with this batch, and the next layer needs it at once. */
static ct_status count_broken(const ct_layer *l, ct_data_instance *di, ct_exec *ex,
                              const ct_batch *b)
{
    const ct_data_state *d = l->state;
    double n[3] = { (double)b->broken[0], (double)b->broken[1], (double)b->broken[2] };
    int64_t first, between = (b->last > b->epoch) ? b->last - b->epoch - 1 : 0;
    bool goes_on = (ex->micro_step == di->next_step) && (ex->micro_step > 0);

    if (ex->sum_ranks != NULL) CT_TRY(ex->sum_ranks(ex->hook_ctx, n, 3));
    first = (int64_t)n[0] + ((goes_on && (b->epoch == di->epoch)) ? di->broken : 0);
    di->next_step = ct_loader_step_after(di->loader, ex->micro_step);
    di->epoch = b->last;
    di->broken = (b->last > b->epoch) ? (int64_t)n[1] : first;
    ex->broken_samples += (int64_t)(n[0] + n[1] + n[2]);
    if ((first <= d->skip_broken) && (di->broken <= d->skip_broken) &&
        ((int64_t)n[2] <= between * d->skip_broken))
        return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "%s: more broken samples in an epoch than skip_broken, %lld, allows",
                         d->reader->source, (long long)d->skip_broken);
}

ct_status ct_data_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_data_instance *di = ((ct_data_instance *)in->state)->source;
    ct_batch batch;
    double start = ct_trace_start(ex->trace);
    bool ready = false;

    CT_TRY(ct_data_ahead_begin(l, in, ex));
    /* gradients on their way move while the batch is waited for */
    while ((ex->poll != NULL) && !ready) {
        CT_TRY(
            ct_loader_wait(di->loader, ex->seed, ex->micro_step, 1e-3, &ex->wait_data_s, &ready));
        if (!ready) CT_TRY(ct_exec_poll(ex));
    }
    CT_TRY(ct_loader_take(di->loader, ex->seed, ex->micro_step, &batch, &ex->wait_data_s));
    ct_trace_end(ex->trace, start, CT_TRACE_DATA, NULL, NULL);
    CT_TRY(ct_data_ahead_use(l, in, ex, &batch));
    return (((const ct_data_state *)l->state)->skip_broken > 0) ? count_broken(l, di, ex, &batch)
                                                                : CT_OK;
}

void ct_data_release(const ct_layer *l, ct_instance *in)
{
    ct_data_instance *di = in->state;

    ct_data_ahead_end(l, in);
    ct_loader_destroy(di->loader);
}

ct_status ct_data_share(const ct_layer *l, int64_t batch_size, ct_share *share_p)
{
    const ct_stage_place *place = l->env->place;
    bool given = (l->phase == CT_TRAIN) && (l->env->global_batch_size > 0);
    int64_t ranks = (place != NULL) ? 1 : l->env->n_rank;
    int64_t global = given ? l->env->global_batch_size : batch_size * ranks;
    ct_samples n;

    if (place == NULL) return ct_share_of(global, l->env->rank, l->env->n_rank, share_p);
    n = ct_place_samples(place, l->phase, global, ct_layer_is_of_replica(l));
    *share_p = (ct_share){ .local = n.local, .global = n.global, .first = n.first };
    if (n.local > 0) return CT_OK;
    return CT_LAYER_FAIL(
        l, CT_ERR_CONFIG,
        "a batch of %lld samples leaves replica %d of %d, of %d ranks, without one "
        "for each",
        (long long)global, place->replica, place->n_replica, place->n_part);
}

int64_t ct_data_batch_here(const ct_layer *l, int64_t batch)
{
    if (l->env->place == NULL) return batch;
    return ct_place_samples(l->env->place, l->phase, batch, ct_layer_is_of_replica(l)).local;
}

void ct_data_set_even_batch(const ct_layer *l, ct_instance *in, int64_t batch)
{
    in->n_sample = 0;
    if (l->env->place != NULL) {
        ct_samples n = ct_place_samples(l->env->place, l->phase, batch, ct_layer_is_of_replica(l));

        in->batch_local = n.local;
        in->batch_global = n.global;
        in->batch_first = n.first;
        return;
    }
    in->batch_local = batch;
    in->batch_global = batch * l->env->n_rank;
    in->batch_first = batch * l->env->rank;
}

/* ---- Batches for a device that transforms them: two go up ahead of the step, beside what it
 * computes, out of the pinned memory in which they were decoded (framework/data/pack.h). The host
 * waits for no copy: a batch is given back to the loader when the next step asks for its own. */

static size_t block_bytes(const ct_pack *p)
{
    return ct_align_up(p->bytes);
}

void ct_data_ahead_buffers(const ct_layer *l, ct_instance *in)
{
    const ct_data_state *d = l->state;
    ct_data_instance *di = in->state;
    ct_pack_rule rule = ct_transform_rule(d->transform);

    di->used = -1;
    di->mean_there = false;
    ct_instance_buffer(in, CT_DATA_BLOCKS, CT_LIFETIME_ALWAYS,
                       CT_DATA_PLACES * block_bytes(ct_loader_pack(di->loader)));
    ct_instance_buffer(in, CT_DATA_MEAN, CT_LIFETIME_ALWAYS, (size_t)rule.n_mean * sizeof(float));
}

/* A copy whose end is long past as a rule. */
static ct_status end_copy(const ct_device *dev, ct_data_place *p)
{
    void *ticket = p->ticket;
    bool done;

    if (ticket == NULL) return CT_OK;
    CT_TRY(dev->copy_done(ticket, false, &done));
    if (!done) CT_TRY(dev->copy_done(ticket, true, &done));
    p->ticket = NULL;
    return CT_OK;
}

/* The batch of the step before goes back to the loader. */
static ct_status give_back(const ct_layer *l, ct_data_instance *di)
{
    if (di->used < 0) return CT_OK;
    CT_TRY(end_copy(l->dev, &di->place[di->used % CT_DATA_PLACES]));
    di->used = -1;
    ct_loader_give_back(di->loader);
    return CT_OK;
}

ct_status ct_data_ahead_begin(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_data_instance *di = in->state;

    if (ct_loader_pack(loader_of(in)) == NULL) return CT_OK;
    CT_TRY(give_back(l, di));
    if ((ex->micro_step == di->coming) && (ex->seed == di->seed)) return CT_OK;
    for (int i = 0; i < CT_DATA_PLACES; i++) CT_TRY(end_copy(l->dev, &di->place[i]));
    return CT_OK;
}

static char *place_of(const ct_instance *in, const ct_pack *pack, int64_t step)
{
    return (char *)in->buffer[CT_DATA_BLOCKS].data +
           (size_t)(step % CT_DATA_PLACES) * block_bytes(pack);
}

/* Begins the copy of a step's batch, where that is not under way. */
static ct_status lift(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t step,
                      const ct_batch *b)
{
    ct_data_instance *di = in->state;
    const ct_pack *pack = ct_loader_pack(di->loader);
    ct_data_place *p = &di->place[step % CT_DATA_PLACES];

    if ((p->ticket != NULL) && (p->step == step)) return CT_OK;
    p->step = step;
    return l->dev->copy_ahead(ex->stream, b->block, place_of(in, pack, step), pack->bytes,
                              &p->ticket);
}

static ct_status put_mean(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_pack_rule *rule)
{
    ct_data_instance *di = in->state;

    if (di->mean_there || (rule->n_mean == 0)) return CT_OK;
    di->mean_there = true;
    return l->dev->from_host(ex->stream, in->buffer[CT_DATA_MEAN].data, rule->mean,
                             (size_t)rule->n_mean * sizeof(float));
}

static ct_status unpack(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    const ct_data_state *d = l->state;
    ct_data_instance *di = in->state;
    const ct_pack *pack = ct_loader_pack(di->loader);
    const char *block = place_of(in, pack, ex->micro_step);
    ct_pack_rule rule = ct_transform_rule(d->transform);

    CT_TRY(put_mean(l, in, ex, &rule));
    rule.mean = (rule.n_mean > 0) ? in->buffer[CT_DATA_MEAN].data : NULL;
    CT_TRY(lift(l, in, ex, ex->micro_step, b));
    CT_TRY(l->dev->copy_follow(ex->stream, di->place[ex->micro_step % CT_DATA_PLACES].ticket));
    CT_TRY(ct_kernels(ex)->unpack(ex, pack, &rule, block, ct_blob_data(in->top[0])));
    for (int i = 1; i < l->n_top; i++)
        CT_TRY(l->dev->copy(ex->stream, ct_blob_data(in->top[i]), block + pack->rest_at[i],
                            (size_t)b->count[i] * sizeof(float)));
    return CT_OK;
}

static ct_status put(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    for (int i = 0; i < l->n_top; i++)
        CT_TRY(ct_data_put(ex, in->top[i], b->field[i], b->count[i]));
    return CT_OK;
}

ct_status ct_data_ahead_use(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_batch *b)
{
    ct_data_instance *di = in->state;
    ct_status status;
    ct_batch next;

    if (ct_loader_pack(loader_of(in)) == NULL) {
        status = put(l, in, ex, b);
        ct_loader_give_back(loader_of(in));
        return status;
    }
    di->used = ex->micro_step;
    di->coming = ex->micro_step + 1;
    di->seed = ex->seed;
    CT_TRY((b->block != NULL) ? unpack(l, in, ex, b) : put(l, in, ex, b));
    for (int k = 1; k <= CT_DATA_AHEAD; k++) {
        if (!ct_loader_look(di->loader, k, &next)) break;
        if (next.block != NULL) CT_TRY(lift(l, in, ex, ex->micro_step + k, &next));
    }
    return CT_OK;
}

void ct_data_ahead_end(const ct_layer *l, ct_instance *in)
{
    ct_data_instance *di = in->state;

    for (int i = 0; i < CT_DATA_PLACES; i++) (void)end_copy(l->dev, &di->place[i]);
    di->used = -1;
}
