/* Sharding and the prefetch pipeline, over a reader whose samples say who they are. */
#include "tests/test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "framework/data/loader.h"
#include "framework/tensor/device.h"

/* ---- a reader: sample id is one float, id; its label is id + 0.5 */

typedef struct fake_state {
    atomic_long reads;
    atomic_long bad; /* this id fails */
    unsigned jitter; /* up to so many microseconds a read */
} fake_state;

static ct_status fake_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    fake_state *s = r->state;
    float *value = local;
    long n = atomic_fetch_add(&s->reads, 1);

    if (s->jitter > 0) usleep((useconds_t)(ct_rng_key((uint64_t)n, 0, 0) % s->jitter));
    if (id == s->bad) return CT_ERR_DATA;
    *value = (float)id;
    sample->u8 = NULL;
    sample->f32 = value;
    sample->shape = r->field[0];
    sample->rest[0] = (float)id + 0.5f;
    return CT_OK;
}

static void fake_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    (void)r;
    snprintf(text, size, "%lld", (long long)id);
}

static const ct_reader_ops fake_ops = {
    .name = "fake",
    .local_size = sizeof(float),
    .read = fake_read,
    .describe = fake_describe,
};

typedef struct fixture {
    fake_state state;
    char who[8], source[8];
    ct_reader reader;
    ct_transform *transform;
} fixture;

static void fixture_open(fixture *f, int64_t n)
{
    memset(f, 0, sizeof(*f));
    f->state.bad = -1;
    strcpy(f->who, "test");
    f->reader = (ct_reader){ .ops = &fake_ops,
                             .who = f->who,
                             .source = f->source,
                             .count = n,
                             .n_field = 2,
                             .field = { { 1, { 1 } }, { 0 } },
                             .state = &f->state };
    assert_int_equal(ct_transform_create(NULL, CT_TRAIN, "test", &f->transform), CT_OK);
}

static ct_loader *loader(fixture *f, int64_t global, int rank, int n_rank, bool shuffle, int depth,
                         int threads)
{
    ct_loader_options o = { .reader = &f->reader,
                            .transform = f->transform,
                            .shape = { 1, { 1 } },
                            .stripes = shuffle,
                            .depth = depth,
                            .threads = threads };
    ct_loader *l;

    assert_int_equal(ct_share_of(global, rank, n_rank, &o.share), CT_OK);
    assert_int_equal(ct_loader_create(&o, &l), CT_OK);
    return l;
}

/* Takes step into ids; returns how many. */
static int64_t take(ct_loader *l, uint64_t seed, int64_t step, float *ids)
{
    ct_batch b;
    double wait = 0;
    bool ready = (step % 2 == 0); /* the other steps are waited for bit by bit */

    while (!ready) assert_int_equal(ct_loader_wait(l, seed, step, 1e-5, &wait, &ready), CT_OK);
    assert_int_equal(ct_loader_take(l, seed, step, &b, &wait), CT_OK);
    assert_true(wait >= 0);
    assert_int_equal(b.count[0], b.count[1]);
    for (int64_t i = 0; i < b.count[0]; i++) {
        ids[i] = b.field[0][i];
        assert_true(b.field[1][i] == ids[i] + 0.5f);
    }
    ct_loader_give_back(l);
    return b.count[0];
}

/* ---- shares and positions */

static void test_share(void **state)
{
    (void)state;
    for (int p = 1; p <= 9; p++) {
        for (int64_t g = p; g <= 40; g++) {
            int64_t next = 0, least = g, most = 0;

            for (int r = 0; r < p; r++) {
                ct_share s;

                assert_int_equal(ct_share_of(g, r, p, &s), CT_OK);
                assert_int_equal(s.first, next);
                assert_int_equal(s.global, g);
                next += s.local;
                if (s.local < least) least = s.local;
                if (s.local > most) most = s.local;
            }
            assert_int_equal(next, g);
            assert_true(most - least <= 1);
        }
    }
}

static void test_share_too_small(void **state)
{
    ct_share s;

    (void)state;
    assert_int_equal(ct_share_of(3, 0, 4, &s), CT_ERR_CONFIG);
}

static void test_every_epoch_has_every_sample_once(void **state)
{
    const int64_t n = 103;
    int64_t same = 0;

    (void)state;
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        char seen[103] = { 0 };

        for (int64_t i = 0; i < n; i++) {
            int64_t id = ct_sample_at(7, true, epoch * n + i, n);

            assert_true((id >= 0) && (id < n));
            assert_int_equal(seen[id], 0);
            seen[id] = 1;
            same += id == ct_sample_at(7, true, i, n);
            assert_int_equal(ct_sample_at(7, false, epoch * n + i, n), i);
        }
    }
    /* the first epoch equals itself; the other three agree with it by chance in about one place */
    assert_true(same < n + 3 * 8);
}

static void test_seeds_give_other_orders(void **state)
{
    int same = 0;

    (void)state;
    for (int64_t i = 0; i < 1000; i++) {
        same += ct_sample_at(1, true, i, 1000) == ct_sample_at(2, true, i, 1000);
    }
    assert_true(same < 10);
}

/* ---- the pipeline */

static void test_same_sequence_for_any_number_of_ranks(void **state)
{
    enum { G = 10, STEPS = 25, N = 37 };
    float want[G];

    (void)state;
    for (int p = 1; p <= 4; p++) {
        fixture f;
        ct_loader *l[4];

        fixture_open(&f, N);
        for (int r = 0; r < p; r++) l[r] = loader(&f, G, r, p, true, 1 + r, 1 + r);
        for (int64_t s = 0; s < STEPS; s++) {
            float got[G];
            int64_t n = 0;

            for (int r = 0; r < p; r++) n += take(l[r], 5, s, got + n);
            assert_int_equal(n, G);
            for (int64_t i = 0; i < G; i++) want[i] = (float)ct_sample_at(5, true, s * G + i, N);
            assert_memory_equal(got, want, sizeof(want));
        }
        for (int r = 0; r < p; r++) ct_loader_destroy(l[r]);
        ct_transform_destroy(f.transform);
    }
}

static void test_thread_timing_changes_nothing(void **state)
{
    enum { G = 6, STEPS = 60, N = 41 };
    fixture f;

    (void)state;
    fixture_open(&f, N);
    f.state.jitter = 300;
    for (int threads = 1; threads <= 5; threads += 2) {
        ct_loader *l = loader(&f, G, 0, 1, true, 5, threads);

        for (int64_t s = 0; s < STEPS; s++) {
            float got[G];

            take(l, 11, s, got);
            for (int64_t i = 0; i < G; i++) {
                assert_true(got[i] == (float)ct_sample_at(11, true, s * G + i, N));
            }
        }
        ct_loader_destroy(l);
    }
    ct_transform_destroy(f.transform);
}

static void test_jumps(void **state)
{
    /* a resume, test passes that start anew, going back, the same step again, another seed */
    const int64_t step[] = { 1000, 1001, 0, 1, 2, 0, 1, 1, 1, 7, 6, 1000000007, 3 };
    enum { G = 4, N = 29 };
    fixture f;
    ct_loader *l;

    (void)state;
    fixture_open(&f, N);
    f.state.jitter = 100;
    l = loader(&f, G, 0, 1, true, 3, 3);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        for (size_t k = 0; k < sizeof(step) / sizeof(step[0]); k++) {
            float got[G];

            take(l, seed, step[k], got);
            for (int64_t i = 0; i < G; i++) {
                assert_true(got[i] == (float)ct_sample_at(seed, true, step[k] * G + i, N));
            }
        }
    }
    ct_loader_destroy(l);
    ct_transform_destroy(f.transform);
}

static void test_prefetches_no_more_than_depth(void **state)
{
    enum { G = 4, DEPTH = 3 };
    fixture f;
    ct_loader *l;
    float got[G];

    (void)state;
    fixture_open(&f, 100);
    l = loader(&f, G, 0, 1, false, DEPTH, 2);
    take(l, 1, 0, got);
    for (int i = 0; (i < 20000) && (atomic_load(&f.state.reads) < G * (1 + DEPTH)); i++)
        usleep(1000);
    usleep(20000);
    assert_int_equal(atomic_load(&f.state.reads), G * (1 + DEPTH)); /* ahead, and no further */
    ct_loader_destroy(l);
    ct_transform_destroy(f.transform);
}

static void test_error_comes_out_at_its_step(void **state)
{
    enum { G = 5, N = 50 };
    fixture f;
    ct_loader *l;
    float got[G];
    ct_batch b;
    double wait = 0;
    bool ready = false;

    (void)state;
    fixture_open(&f, N);
    f.state.bad = 23; /* step 4 */
    l = loader(&f, G, 0, 1, false, 4, 2);
    for (int64_t s = 0; s < 4; s++) take(l, 1, s, got);
    assert_int_equal(ct_loader_take(l, 1, 4, &b, &wait), CT_ERR_DATA);
    while (!ready) assert_int_equal(ct_loader_wait(l, 1, 4, 1e-3, &wait, &ready), CT_OK);
    assert_int_equal(ct_loader_take(l, 1, 4, &b, &wait), CT_ERR_DATA);
    f.state.bad = -1;
    take(l, 1, 4, got);
    assert_true(got[3] == 23.0f);
    take(l, 1, 5, got);
    ct_loader_destroy(l);
    ct_transform_destroy(f.transform);
}

static void test_rand_skip(void **state)
{
    enum { G = 8, N = 64, SKIP = 32 };
    fixture f;
    ct_loader_options o;
    float first[2][G];

    (void)state;
    fixture_open(&f, N);
    o = (ct_loader_options){ .reader = &f.reader,
                             .transform = f.transform,
                             .shape = { 1, { 1 } },
                             .rand_skip = SKIP,
                             .depth = 2,
                             .threads = 1 };
    for (int p = 1; p <= 2; p++) { /* the same place for any number of ranks */
        int64_t n = 0;

        for (int r = 0; r < p; r++) {
            ct_loader *l;

            assert_int_equal(ct_share_of(G, r, p, &o.share), CT_OK);
            assert_int_equal(ct_loader_create(&o, &l), CT_OK);
            n += take(l, 3, 0, first[p - 1] + n);
            ct_loader_destroy(l);
        }
        assert_int_equal(n, G);
    }
    assert_memory_equal(first[0], first[1], sizeof(first[0]));
    assert_true((first[0][0] >= 0) && (first[0][0] < SKIP));
    for (int i = 1; i < G; i++) assert_true(first[0][i] == first[0][0] + (float)i);
    ct_transform_destroy(f.transform);
}

/* ---- ranks that take different steps */

/* The batches are those of a loader that takes all steps, also from a step in the middle on; of the
 * others' steps nothing is read but what is ahead. */
static void test_turns(void **state)
{
    enum { G = 6, N = 40, ROUND = 5, DEPTH = 2, STEPS = 30 };
    static const ct_turns turns[] = { { ROUND, 0, 1 }, { ROUND, 3, 2 }, { ROUND, 4, 1 } };
    fixture f, counted;

    (void)state;
    fixture_open(&f, N);
    for (size_t k = 0; k < sizeof(turns) / sizeof(turns[0]); k++) {
        ct_loader_options o = { .reader = &counted.reader,
                                .transform = f.transform,
                                .shape = { 1, { 1 } },
                                .turns = turns[k],
                                .stripes = 1,
                                .depth = DEPTH,
                                .threads = 2 };
        ct_loader *all, *own;
        int64_t taken = 0;
        float want[G], got[G];

        fixture_open(&counted, N);
        assert_int_equal(ct_share_of(G, 0, 1, &o.share), CT_OK);
        assert_int_equal(ct_loader_create(&o, &own), CT_OK);
        all = loader(&f, G, 0, 1, true, DEPTH, 2);
        for (int64_t s = 0; s < STEPS; s++) {
            int in = (int)(s % ROUND) - turns[k].first;

            assert_int_equal(take(all, 9, s, want), G);
            if ((in < 0) || (in >= turns[k].n)) continue;
            assert_int_equal(take(own, 9, s, got), G);
            assert_memory_equal(got, want, sizeof(want));
            assert_int_equal(ct_loader_step_after(own, s),
                             s + ((in + 1 < turns[k].n) ? 1 : ROUND - turns[k].n + 1));
            taken++;
        }
        assert_int_equal(take(own, 9, turns[k].first + ROUND, got), G); /* back to there */
        assert_int_equal(take(all, 9, turns[k].first + ROUND, want), G);
        assert_memory_equal(got, want, sizeof(want));
        assert_true(atomic_load(&counted.state.reads) <= (taken + 1 + 2 * DEPTH) * G);
        for (int64_t s = 1; s < 4; s++) { /* in and out of those of others */
            assert_int_equal(take(own, 9, s, got), G);
            assert_int_equal(take(all, 9, s, want), G);
            assert_memory_equal(got, want, sizeof(want));
        }
        ct_loader_destroy(own);
        ct_loader_destroy(all);
        ct_transform_destroy(counted.transform);
    }
    ct_transform_destroy(f.transform);
}

/* ---- packed batches, for a device that transforms them */

static int blocks_out; /* blocks that the loader has */

static ct_status take_block(size_t bytes, void **data_p)
{
    *data_p = aligned_alloc(CT_ALIGN, ct_align_up(bytes));
    blocks_out++;
    return (*data_p != NULL) ? CT_OK : CT_ERR_NOMEM;
}

static void release_block(void *data)
{
    free(data);
    blocks_out--;
}

static const ct_device packs = { .name = "packs",
                                 .host_acquire = take_block,
                                 .host_release = release_block };

/* Samples are bytes below 20, then floats. */
static ct_status mixed_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    CT_TRY(fake_read(r, local, id, sample));
    if (id >= 20) return CT_OK;
    *(uint8_t *)local = (uint8_t)id;
    sample->u8 = local;
    sample->f32 = NULL;
    return CT_OK;
}

static const ct_reader_ops mixed_ops = {
    .name = "mixed",
    .local_size = sizeof(float),
    .read = mixed_read,
    .describe = fake_describe,
};

/* What a batch holds, packed or not. */
static void read_batch(const ct_loader *l, const fixture *f, const ct_batch *b, float *ids,
                       float *labels)
{
    const ct_pack *p = ct_loader_pack(l);
    ct_pack_rule rule = ct_transform_rule(f->transform);

    for (int64_t i = 0; i < b->count[0]; i++) {
        if (b->block == NULL) {
            ids[i] = b->field[0][i];
            labels[i] = b->field[1][i];
        } else {
            ids[i] = ct_pack_value(p, &rule, b->block, i);
            memcpy(&labels[i], (const char *)b->block + p->rest_at[1] + i * 4, sizeof(float));
        }
    }
}

static void test_packed_batches_hold_the_same(void **state)
{
    enum { G = 5, N = 40, STEPS = 30, DEPTH = 4 };
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        int packed = 0, ahead = 0;
        fixture f;
        ct_loader_options o = { .shape = { 1, { 1 } }, .depth = DEPTH, .threads = 2 };
        ct_loader *l;

        fixture_open(&f, N);
        f.reader.ops = &mixed_ops;
        f.reader.u8 = !wide;
        o.reader = &f.reader;
        o.transform = f.transform;
        o.pack = &packs;
        assert_int_equal(ct_share_of(G, 0, 1, &o.share), CT_OK);
        assert_int_equal(ct_loader_create(&o, &l), CT_OK);
        assert_int_equal(ct_loader_pack(l)->wide, wide);
        for (int64_t s = 0; s < STEPS; s++) {
            float ids[G], labels[G];
            double wait = 0;
            ct_batch b;

            assert_int_equal(ct_loader_take(l, 1, s, &b, &wait), CT_OK);
            read_batch(l, &f, &b, ids, labels);
            packed += b.block != NULL;
            for (int64_t i = 0; i < G; i++) {
                assert_true(ids[i] == (float)((s * G + i) % N));
                assert_true(labels[i] == ids[i] + 0.5f);
            }
            for (int k = 1; ct_loader_look(l, k, &b); k++) { /* and those behind it */
                assert_true(k < DEPTH);
                read_batch(l, &f, &b, ids, labels);
                for (int64_t i = 0; i < G; i++)
                    assert_true(ids[i] == (float)(((s + k) * G + i) % N));
                ahead++;
            }
            ct_loader_give_back(l);
            usleep(200);
        }
        /* of 8 steps an epoch, 4 have bytes alone */
        assert_int_equal(packed, wide ? STEPS : STEPS / 8 * 4 + 4);
        assert_true(ahead > 0);
        assert_int_equal(blocks_out, DEPTH);
        ct_loader_destroy(l);
        assert_int_equal(blocks_out, 0);
        ct_transform_destroy(f.transform);
    }
}

static void test_looking_ahead_meets_no_error(void **state)
{
    enum { G = 5, N = 50 };
    fixture f;
    ct_loader *l;
    ct_batch b;
    double wait = 0;

    (void)state;
    fixture_open(&f, N);
    f.state.bad = 13; /* step 2 */
    l = loader(&f, G, 0, 1, false, 4, 2);
    assert_false(ct_loader_look(l, 1, &b)); /* nothing was asked for yet */
    assert_int_equal(ct_loader_take(l, 1, 0, &b, &wait), CT_OK);
    while (!ct_loader_look(l, 1, &b)) usleep(1000);
    assert_true(b.field[0][0] == 5.0f);
    usleep(20000);
    assert_false(ct_loader_look(l, 2, &b));
    ct_loader_give_back(l);
    assert_int_equal(ct_loader_take(l, 1, 1, &b, &wait), CT_OK);
    ct_loader_give_back(l);
    assert_int_equal(ct_loader_take(l, 1, 2, &b, &wait), CT_ERR_DATA);
    assert_false(ct_loader_look(l, 1, &b));
    ct_loader_destroy(l);
    ct_transform_destroy(f.transform);
}

static void test_destroy_while_busy(void **state)
{
    fixture f;

    (void)state;
    fixture_open(&f, 1000);
    f.state.jitter = 50;
    for (int i = 0; i < 20; i++) {
        ct_loader *l = loader(&f, 16, 0, 1, true, 4, 4);
        float got[16];

        if (i % 2 == 1) take(l, 1, i, got);
        ct_loader_destroy(l);
    }
    ct_transform_destroy(f.transform);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_share_too_small),
        cmocka_unit_test(test_every_epoch_has_every_sample_once),
        cmocka_unit_test(test_seeds_give_other_orders),
        cmocka_unit_test(test_same_sequence_for_any_number_of_ranks),
        cmocka_unit_test(test_thread_timing_changes_nothing),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_prefetches_no_more_than_depth),
        cmocka_unit_test(test_error_comes_out_at_its_step),
        cmocka_unit_test(test_rand_skip),
        cmocka_unit_test(test_packed_batches_hold_the_same),
        cmocka_unit_test(test_looking_ahead_meets_no_error),
        cmocka_unit_test(test_destroy_while_busy),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
