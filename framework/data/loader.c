/* A ring of `depth` slots. The steps that this rank takes are its turns (ct_turns), and turn t
 * belongs in slot t % depth. Asked for another step, it takes all from there on. Threads take the
 * next turn whose slot is empty, make its batch without the lock, and mark it ready; the main
 * thread takes turns in order. A jump bumps the generation: what was made or is being made for the
 * old one is dropped.
 */
#include "framework/data/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/thread.h"
#include "framework/data/feed.h"
#include "framework/tensor/device.h"

typedef enum { SLOT_EMPTY, SLOT_FILLING, SLOT_READY } ct_loader_slot_state;

typedef struct loader_slot {
    ct_loader_slot_state state;
    int64_t generation;
    ct_status status;
    float *field[CT_MAX_FIELD];
    void *block;                    /* room for a packed batch */
    bool packed;                    /* it is used, not the fields */
    int64_t epoch, last, broken[3]; /* as in ct_batch */
    char why[600];                  /* of a fetch that failed on another rank, which has said it */
} loader_slot;

struct ct_loader {
    ct_loader_options o;
    int64_t rest_count;
    int64_t count[CT_MAX_FIELD]; /* values of a field in a batch */
    ct_pack pack;                /* of o.pack */

    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* a slot became empty; a slot became ready */
    pthread_t *thread;
    int n_thread; /* running */
    bool stop;
    bool runs;   /* false: the next take starts anew */
    bool halted; /* a batch failed: none is made behind it, which would fail and log again */
    uint64_t seed;
    ct_turns turns; /* o.turns, or all steps */
    int64_t generation;
    int64_t next_make, next_take; /* turns */
    loader_slot *slot;
    ct_feed *feed;         /* NULL: this rank reads */
    bool taken;            /* the main thread reads the slot of next_take - 1 */
    int64_t *told, n_told; /* broken samples that have been spoken of; room for skip_broken */
};

/* What a thread has for itself. */
typedef struct hand {
    void *local; /* the reader's */
    float *rest; /* a sample's fields but the first */
    ct_augment_room room;
    ct_crop crop; /* that its batch is of */
} hand;

/* Fills s with the batch of a step, without the lock, in any thread. CT_STOPPED: the loader has
 *  gone on. */
static ct_status loader_make(ct_loader *l, int64_t generation, uint64_t seed, int64_t step, hand *h,
                             loader_slot *s);

/* ---- threads */

static bool can_make(const ct_loader *l)
{
    return l->runs && !l->halted && (l->next_make < l->next_take + l->o.depth) &&
           (l->slot[l->next_make % l->o.depth].state == SLOT_EMPTY);
}

static void *loader_thread(void *arg)
{
    ct_loader *l = arg;
    hand h = { .rest = ct_mem_acquire((size_t)l->rest_count * sizeof(float)) };
    ct_status start = (h.rest != NULL) ? ct_reader_local(l->o.reader, &h.local) : CT_ERR_NOMEM;

    pthread_mutex_lock(&l->lock);
    for (;;) {
        int64_t turn, step, generation;
        uint64_t seed;
        loader_slot *s;
        ct_status status;

        while (!l->stop && !can_make(l)) pthread_cond_wait(&l->work, &l->lock);
        if (l->stop) break;
        turn = l->next_make++;
        step = ct_turns_step(&l->turns, turn);
        generation = l->generation;
        seed = l->seed;
        s = &l->slot[turn % l->o.depth];
        s->state = SLOT_FILLING;
        s->generation = generation;
        pthread_mutex_unlock(&l->lock);
        status = (start == CT_OK) ? loader_make(l, generation, seed, step, &h, s) : start;
        pthread_mutex_lock(&l->lock);
        s->status = status;
        s->state = (generation == l->generation) ? SLOT_READY : SLOT_EMPTY;
        if (s->state == SLOT_READY) {
            l->halted = l->halted || (status != CT_OK);
            pthread_cond_signal(&l->ready);
        } else {
            pthread_cond_broadcast(&l->work);
        }
    }
    pthread_mutex_unlock(&l->lock);
    ct_reader_local_release(l->o.reader, h.local);
    ct_augment_room_release(&h.room);
    ct_mem_release(h.rest);
    return NULL;
}

/* Memory for the fields of s as floats. */
static ct_status loader_place(const ct_loader *l, loader_slot *s)
{
    for (int f = 0; f < l->o.reader->n_field; f++) {
        float **field = &s->field[f];

        if (*field == NULL) *field = ct_mem_acquire((size_t)l->count[f] * sizeof(float));
        if (*field == NULL) {
            return CT_READER_FAIL(l->o.reader, CT_ERR_NOMEM, "no memory for %d batches ahead",
                                  l->o.depth);
        }
    }
    return CT_OK;
}

static ct_status place_slots(ct_loader *l)
{
    for (int i = 0; i < l->o.depth; i++) {
        loader_slot *s = &l->slot[i];

        if (l->o.pack == NULL)
            CT_TRY(loader_place(l, s));
        else if (s->block == NULL)
            CT_TRY(l->o.pack->host_acquire(l->pack.bytes, &s->block));
    }
    return CT_OK;
}

static ct_status start_threads(ct_loader *l)
{
    int rc = 0;

    CT_TRY(place_slots(l));
    while ((l->n_thread < l->o.threads) && (rc == 0)) {
        rc = ct_thread_start(loader_thread, l, &l->thread[l->n_thread]);
        if (rc == 0) l->n_thread++;
    }
    if (l->n_thread == 0) {
        return CT_READER_FAIL(l->o.reader, CT_ERR_NOMEM, "cannot start a thread: %s", strerror(rc));
    }
    return CT_OK;
}

/* ---- the main thread */

/* Values of field f of a sample, as they come out. */
static int64_t value_count(const ct_loader *l, int f)
{
    if (f == 0) return ct_shape_count(&l->o.shape, 0, -1);
    if ((f == 1) && ct_mixing_acts(&l->o.mix)) return l->o.mix.classes;
    return ct_shape_count(&l->o.reader->field[f], 0, -1);
}

/* Where no memory can be shared every rank reads by itself. */
static ct_status create_feed(ct_loader *l)
{
    ct_feed_options o = { .reader = l->o.reader,
                          .group = l->o.group,
                          .global = l->o.share.global,
                          .stripes = l->o.stripes,
                          .repeat = l->o.repeat,
                          .crops = l->o.crops,
                          .rand_skip = l->o.rand_skip,
                          .threads = l->o.threads };
    ct_status status = ct_feed_create(&o, &l->feed);

    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

ct_status ct_loader_create(const ct_loader_options *options, ct_loader **loader_p)
{
    const ct_reader *r = options->reader;
    ct_loader *l = calloc(1, sizeof(*l));
    bool good = l != NULL;

    if (l != NULL) {
        l->o = *options;
        if (l->o.threads > l->o.depth) l->o.threads = l->o.depth;
        if (l->o.repeat < 1) l->o.repeat = 1;
        l->rest_count = ct_reader_rest_count(r);
        for (int f = 0; f < r->n_field; f++) l->count[f] = l->o.share.local * value_count(l, f);
        if (!ct_pack_can(&l->o.shape) || !ct_transform_packs(l->o.transform) ||
            ct_mixing_acts(&l->o.mix))
            l->o.pack = NULL;
        if (l->o.pack != NULL)
            l->pack = ct_pack_lay(l->o.share.local, &l->o.shape, !r->u8, r->n_field, l->count);
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->work, NULL);
        (void)ct_cond_init(&l->ready);
        l->thread = calloc((size_t)l->o.threads, sizeof(*l->thread));
        l->slot = calloc((size_t)l->o.depth, sizeof(*l->slot));
        l->told = malloc(((size_t)l->o.skip_broken + 1) * sizeof(*l->told));
        good = (l->thread != NULL) && (l->slot != NULL) && (l->told != NULL);
    }
    if (!good) {
        ct_loader_destroy(l);
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for a loader");
    }
    if (l->o.group != NULL) {
        ct_status status = create_feed(l);

        if (status != CT_OK) {
            ct_loader_destroy(l);
            return status;
        }
    }
    *loader_p = l;
    return CT_OK;
}

void ct_loader_destroy(ct_loader *l)
{
    if (l == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (l->feed != NULL) ct_feed_stop(l->feed);
    for (int i = 0; i < l->n_thread; i++) pthread_join(l->thread[i], NULL);
    ct_feed_destroy(l->feed);
    for (int i = 0; (l->slot != NULL) && (i < l->o.depth); i++) {
        for (int f = 0; f < CT_MAX_FIELD; f++) ct_mem_release(l->slot[i].field[f]);
        if (l->slot[i].block != NULL) l->o.pack->host_release(l->slot[i].block);
    }
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    free(l->slot);
    free(l->told);
    free(l->thread);
    free(l);
}

/* The lock is held. */
static ct_status jump(ct_loader *l, uint64_t seed, int64_t turn)
{
    int64_t taken = l->next_take;

    l->generation++;
    l->runs = true;
    l->halted = false;
    l->seed = seed;
    l->next_make = l->next_take = turn;
    for (int i = 0; i < l->o.depth; i++) {
        if (l->slot[i].state == SLOT_READY) l->slot[i].state = SLOT_EMPTY;
    }
    pthread_cond_broadcast(&l->work);
    if (l->feed == NULL) return CT_OK;
    return ct_feed_jump(l->feed, l->generation, seed, turn, taken);
}

/* The threads work towards this step, turn *turn_p. */
static ct_status aim(ct_loader *l, uint64_t seed, int64_t step, int64_t *turn_p)
{
    bool own = (ct_turns_at(&l->o.turns, step) >= 0);
    ct_turns turns = own ? l->o.turns : (ct_turns){ .round = 0 };
    int64_t turn = ct_turns_at(&turns, step);
    ct_status status = CT_OK;

    if (step < 0) return CT_READER_FAIL(l->o.reader, CT_ERR_ARG, "step %lld", (long long)step);
    *turn_p = turn;
    pthread_mutex_lock(&l->lock);
    if (!l->runs || (turn != l->next_take) || (turns.round != l->turns.round) ||
        (seed != l->seed)) {
        l->turns = turns;
        status = jump(l, seed, turn);
    }
    pthread_mutex_unlock(&l->lock);
    CT_TRY(status);
    return (l->n_thread == 0) ? start_threads(l) : CT_OK;
}

/* Under the lock. */
static bool is_ready(const ct_loader *l, int64_t turn)
{
    const loader_slot *s = &l->slot[turn % l->o.depth];

    return (s->state == SLOT_READY) && (s->generation == l->generation);
}

ct_status ct_loader_wait(ct_loader *l, uint64_t seed, int64_t step, double seconds, double *wait_s,
                         bool *ready_p)
{
    double start = ct_clock_s();
    int64_t turn;

    CT_TRY(aim(l, seed, step, &turn));
    pthread_mutex_lock(&l->lock);
    if (!is_ready(l, turn)) (void)ct_cond_wait_for(&l->ready, &l->lock, seconds);
    *ready_p = is_ready(l, turn);
    pthread_mutex_unlock(&l->lock);
    *wait_s += ct_clock_s() - start;
    return CT_OK;
}

static ct_batch batch_of(const ct_loader *l, const loader_slot *s)
{
    ct_batch b = { .block = s->packed ? s->block : NULL, .epoch = s->epoch, .last = s->last };

    for (int f = 0; f < CT_MAX_FIELD; f++) {
        b.field[f] = s->field[f];
        b.count[f] = l->count[f];
    }
    memcpy(b.broken, s->broken, sizeof(b.broken));
    return b;
}

ct_status ct_loader_take(ct_loader *l, uint64_t seed, int64_t step, ct_batch *batch_p,
                         double *wait_s)
{
    double start = ct_clock_s();
    ct_status status;
    loader_slot *s;
    int64_t turn;

    CT_TRY(aim(l, seed, step, &turn));
    pthread_mutex_lock(&l->lock);
    s = &l->slot[turn % l->o.depth];
    while (!is_ready(l, turn)) pthread_cond_wait(&l->ready, &l->lock);
    status = s->status;
    l->next_take++;
    if (status == CT_OK) {
        l->taken = true;
    } else {
        l->runs = false; /* asked again, it tries again */
    }
    pthread_mutex_unlock(&l->lock);
    *wait_s += ct_clock_s() - start;
    if ((status != CT_OK) && (s->why[0] != '\0'))
        return CT_FAIL(status, "rank %d, which reads for this node, failed: %s",
                       l->o.group->member[0], s->why);
    CT_TRY(status);
    *batch_p = batch_of(l, s);
    return CT_OK;
}

bool ct_loader_look(ct_loader *l, int ahead, ct_batch *batch_p)
{
    int64_t turn = l->next_take + ahead - 1;
    const loader_slot *s = &l->slot[turn % l->o.depth];
    bool good;

    pthread_mutex_lock(&l->lock);
    /* the slot of the one that is taken is ready, too */
    good = l->runs && (ahead <= l->o.depth - l->taken) && is_ready(l, turn) && (s->status == CT_OK);
    pthread_mutex_unlock(&l->lock);
    if (good) *batch_p = batch_of(l, s);
    return good;
}

int64_t ct_loader_step_after(const ct_loader *l, int64_t step)
{
    int64_t turn = ct_turns_at(&l->o.turns, step);

    return (turn >= 0) ? ct_turns_step(&l->o.turns, turn + 1) : step + 1;
}

const ct_pack *ct_loader_pack(const ct_loader *l)
{
    return (l->o.pack != NULL) ? &l->pack : NULL;
}

void ct_loader_give_back(ct_loader *l)
{
    pthread_mutex_lock(&l->lock);
    if (l->taken) {
        l->slot[(l->next_take - 1) % l->o.depth].state = SLOT_EMPTY;
        l->taken = false;
        pthread_cond_broadcast(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- one batch, of what this rank reads or another has fetched: decoded, transformed, broken
 * samples replaced. Runs in a thread, without the loader's lock. */

/* What another rank fetched of a sample; bytes NULL: nobody did. */
typedef struct fetched {
    const void *bytes;
    size_t size;
} fetched;

/* Where a sample goes. */
typedef struct target {
    float *values;        /* transformed; NULL: packed */
    ct_pack_place *place; /* … and packed              */
    void *window;
} target;

/* Mixing makes a distribution of it. rest begins with the label where samples are mixed; other
 * sets may have none. */
static ct_status check_label(const ct_loader *l, const float *rest, ct_why *why)
{
    int64_t classes = l->o.mix.classes;
    float label;

    if (!ct_mixing_acts(&l->o.mix)) return CT_OK;
    label = rest[0];
    if ((label >= 0) && (label < (float)classes) && (label == (float)(int64_t)label)) return CT_OK;
    return CT_WHY(why, CT_ERR_DATA,
                  "label %g is not a whole number in 0..%lld: transform_param.classes is %lld",
                  (double)label, (long long)(classes - 1), (long long)classes);
}

/* The sample as the transform gets it: read, or decoded of what was fetched, and augmented. */
static ct_status read_sample(const ct_loader *l, fetched raw, uint64_t seed, int64_t position,
                             int64_t id, hand *h, ct_sample *sample, ct_sample *augmented_p)
{
    const ct_reader *r = l->o.reader;

    if (raw.bytes != NULL)
        CT_TRY(r->ops->decode(r, h->local, id, raw.bytes, raw.size, sample));
    else
        CT_TRY(r->ops->read(r, h->local, id, sample));
    return ct_augment_apply(l->o.augment, sample, seed, position, &h->room, augmented_p);
}

/* CT_UNSUPPORTED: packed batches of this set are of bytes, this sample is of floats. */
static ct_status read_and_transform(const ct_loader *l, fetched raw, uint64_t seed,
                                    int64_t position, int64_t id, hand *h, ct_why *why,
                                    const target *to)
{
    ct_sample read = { .rest = h->rest, .why = why, .crop = h->crop }, sample;
    ct_shape shape;

    CT_TRY(read_sample(l, raw, seed, position, id, h, &read, &sample));
    CT_TRY(check_label(l, h->rest, why));
    CT_TRY(ct_transform_shape(l->o.transform, &sample.shape, &shape, why));
    if (!ct_shape_equal(&shape, &l->o.shape)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "its shape is %s, that of the first sample %s; records of one data set "
                      "must agree, or crop_size must fix their size",
                      ct_shape_str(&shape).text, ct_shape_str(&l->o.shape).text);
    }
    if (to->values != NULL)
        ct_transform_apply(l->o.transform, &sample, seed, position, to->values);
    else if (!ct_transform_pack(l->o.transform, &sample, seed, position, l->pack.wide, to->place,
                                to->window))
        return CT_UNSUPPORTED;
    if (read.boxes > 0) {
        ct_boxes boxes = ct_boxes_of(h->rest, read.boxes);

        ct_transform_boxes(l->o.transform, &sample.shape, seed, position, &boxes);
    }
    return CT_OK;
}

static ct_status fail(const ct_loader *l, int64_t id, ct_status status, const ct_why *why)
{
    ct_sample loud = { 0 };

    return (why->text[0] != '\0') ? ct_reader_bad(l->o.reader, id, &loud, status, why) : status;
}

/* Says once in a run that `by` stands in for sample id. Names of records are the lock's too. */
static void tell(ct_loader *l, int64_t id, int64_t by, const ct_why *why)
{
    const ct_reader *r = l->o.reader;
    char name[512], other[512];
    bool told = false;

    pthread_mutex_lock(&l->lock);
    for (int64_t i = 0; i < l->n_told; i++) told = told || (l->told[i] == id);
    if (!told && (l->n_told < l->o.skip_broken)) {
        l->told[l->n_told++] = id;
        r->ops->describe(r, id, name, sizeof(name));
        r->ops->describe(r, by, other, sizeof(other));
        CT_WARN("%s: %s: %s; skipped, %s stands in for it", r->who, name, why->text, other);
    }
    pthread_mutex_unlock(&l->lock);
}

/* The sample of a position, or the one that stands in for it. */
static ct_status make_sample(ct_loader *l, fetched raw, uint64_t seed, int64_t position, int64_t id,
                             hand *h, const target *to, bool *replaced_p)
{
    const ct_reader *r = l->o.reader;
    int64_t wanted = id, tried = 0;
    ct_why first = { "" };

    for (;;) {
        ct_why why = { "" };
        ct_status status = read_and_transform(l, raw, seed, position, id, h, &why, to);

        if (status == CT_OK) break;
        if (status == CT_UNSUPPORTED) return status;
        if (tried == 0) first = why;
        if ((l->o.skip_broken == 0) || !ct_reader_may_skip(status))
            return fail(l, id, status, &why);
        if ((tried++ >= l->o.skip_broken) || (tried >= r->count)) {
            (void)fail(l, wanted, status, &first);
            return CT_READER_FAIL(r, status,
                                  "%s: more broken samples in a row than skip_broken, %lld, allows",
                                  r->source, (long long)l->o.skip_broken);
        }
        id = ct_reader_after(r, id);
        raw = (fetched){ 0 };
    }
    *replaced_p = tried > 0;
    if (tried > 0) tell(l, wanted, id, &first);
    return CT_OK;
}

static int64_t first_position(const ct_loader *l, uint64_t seed, int64_t step)
{
    int64_t skip = 0;

    if (l->o.rand_skip > 0)
        skip = (int64_t)(ct_rng_key(seed, ct_rng_hash("rand_skip"), 0) % l->o.rand_skip);
    return step / ((l->o.crops > 0) ? l->o.crops : 1) * l->o.share.global + skip;
}

static target target_of(const ct_loader *l, const loader_slot *s, int64_t i)
{
    int64_t size = ct_shape_count(&l->o.shape, 0, -1);

    if (!s->packed) return (target){ .values = s->field[0] + i * size };
    return (target){ .place = (ct_pack_place *)s->block + i,
                     .window = (char *)s->block + l->pack.values_at +
                               (size_t)(i * size) * (l->pack.wide ? sizeof(float) : 1) };
}

static float *rest_of(const ct_loader *l, const loader_slot *s, int f)
{
    return s->packed ? (float *)((char *)s->block + l->pack.rest_at[f]) : s->field[f];
}

/* first: the position of this rank's first sample, which is the first of a pair. */
static void mix_pairs(const ct_loader *l, uint64_t seed, int64_t first, const loader_slot *s)
{
    int64_t size = value_count(l, 0), classes = l->o.mix.classes;

    for (int64_t i = 0; i + 1 < l->o.share.local; i += 2) {
        float *a = s->field[0] + i * size, *label = s->field[1] + i * classes;
        double share = ct_mixing_pair(&l->o.mix, &l->o.shape, seed, first + i, a, a + size);

        ct_mixing_labels(&l->o.mix, share, label, label + classes);
    }
}

/* Each box begins with the number of its sample in the batch. */
static void number_boxes(const ct_loader *l, const loader_slot *s, int64_t i)
{
    int64_t n = value_count(l, 1);
    ct_boxes b = ct_boxes_of(rest_of(l, s, 1) + i * n, n / CT_BOX_ROW);

    for (int64_t k = 0; k < b.n; k++) b.row[k * CT_BOX_ROW] = (float)i;
}

/* Counts the sample of a place as replaced. first: the batch's place in the stream of samples that
 * come once each. */
static void count_replaced(const ct_loader *l, loader_slot *s, int64_t first, int64_t place)
{
    int64_t epoch = (first + place) / l->o.reader->count;

    if (place >= l->o.share.global / l->o.repeat) return; /* again */
    s->broken[(epoch == s->epoch) ? 0 : (epoch == s->last) ? 1 : 2]++;
}

static ct_status fill(ct_loader *l, const ct_feed_part *part, uint64_t seed, int64_t step, hand *h,
                      loader_slot *s)
{
    const ct_reader *r = l->o.reader;
    const ct_share *share = &l->o.share;
    int64_t begin = first_position(l, seed, step), first = begin / l->o.repeat;

    s->epoch = first / r->count;
    s->last = (first + share->global / l->o.repeat - 1) / r->count;
    memset(s->broken, 0, sizeof(s->broken));
    h->crop = ct_crop_at(step, l->o.crops);
    for (int64_t i = 0; i < share->local; i++) {
        int64_t place = share->first + i, position = begin + place;
        int64_t id = (r->ops->pick != NULL) ? r->ops->pick(r, seed, position, place, share->global)
                                            : ct_sample_again_at(seed, l->o.stripes, l->o.repeat,
                                                                 share->global, position, r->count);
        target to = target_of(l, s, i);
        const float *from = h->rest;
        fetched raw = { 0 };
        bool replaced = false;

        if (part != NULL) raw.bytes = ct_feed_record(l->feed, part, i, &raw.size);
        CT_TRY(make_sample(l, raw, seed, position, id, h, &to, &replaced));
        if (replaced && (h->crop.i == 0)) count_replaced(l, s, first, place);
        for (int f = 1; f < r->n_field; f++) {
            int64_t n = ct_shape_count(&r->field[f], 0, -1);

            memcpy(rest_of(l, s, f) + i * value_count(l, f), from, (size_t)n * sizeof(float));
            from += n;
        }
        if (l->o.boxes) number_boxes(l, s, i);
    }
    if (ct_mixing_acts(&l->o.mix)) mix_pairs(l, seed, begin + share->first, s);
    return CT_OK;
}

/* A set whose first sample is of bytes may have others of floats: such a batch comes as without a
 * device. */
static ct_status make_batch(ct_loader *l, const ct_feed_part *part, uint64_t seed, int64_t step,
                            hand *h, loader_slot *s)
{
    ct_status status;

    s->packed = l->o.pack != NULL;
    status = fill(l, part, seed, step, h, s);
    if (status != CT_UNSUPPORTED) return status;
    s->packed = false;
    CT_TRY(loader_place(l, s));
    return fill(l, part, seed, step, h, s);
}

static ct_status loader_make(ct_loader *l, int64_t generation, uint64_t seed, int64_t step, hand *h,
                             loader_slot *s)
{
    const ct_data_group *g = l->o.group;
    ct_feed_part part;
    ct_status status;

    s->why[0] = '\0';
    if (l->feed == NULL) return make_batch(l, NULL, seed, step, h, s);
    CT_TRY(ct_feed_wait(l->feed, generation, step, &part));
    status = part.status;
    if (status == CT_OK) {
        status = make_batch(l, &part, seed, step, h, s);
    } else if (g->node.rank > 0) {
        snprintf(s->why, sizeof(s->why), "%s", part.text);
    }
    ct_feed_done(l->feed, &part);
    return status;
}
