/* Sequences of another rank, whose end of the messages is here, too. Its cache has the tokens
 * themselves, in pages, and scores follow from what it finds there: so a page that was given twice,
 * or that has not what rank 0 believes, is seen. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/net/pages.h"
#include "serve/ranks/sequences.h"
#include "tests/log_capture.h"

enum { PAGES = 20, P = CT_PAGE_TOKENS, SCORES = 3, MOST = 6 * P, LISTS = 6 };

/* ---- the other rank */

typedef struct cache {
    int32_t id[PAGES][P];
    float score[LISTS][SCORES];
    int32_t weights; /* what it keeps of a token hangs on them */
    struct near_one *all;
    bool full;  /* the next sequence cannot be placed */
    bool fails; /* the next batch fails               */
} cache;

typedef struct near_one {
    int32_t page[PAGES], id[MOST];
    int64_t n, capacity;
    bool lost; /* it did not grow again */
    struct near_one *next;
} near_one;

static void keep(cache *c, const near_one *s, int64_t i)
{
    c->id[s->page[i / P]][i % P] = s->id[i] + c->weights;
}

static ct_status place(void *ctx, const ct_sequence_place *at, void **sequence_p)
{
    cache *c = ctx;
    near_one *s = calloc(1, sizeof(*s));

    if (s == NULL) abort();
    if (c->full) {
        c->full = false;
        free(s);
        return CT_ERR_NOMEM;
    }
    assert_true((at->n_page * P >= at->capacity) && (at->n_page <= PAGES));
    memcpy(s->page, at->page, (size_t)at->n_page * sizeof(s->page[0]));
    memcpy(s->id, at->id, (size_t)at->kept * sizeof(s->id[0]));
    s->n = at->kept;
    s->capacity = at->capacity;
    s->next = c->all;
    c->all = s;
    *sequence_p = s;
    return CT_OK;
}

static void close_one(void *ctx, void *sequence)
{
    cache *c = ctx;
    near_one **at = &c->all;

    while (*at != sequence) at = &(*at)->next;
    *at = (*at)->next;
    free(sequence);
}

/* Of a sequence as the cache has it: how many tokens, their sum, and one by their order. */
static void score_of(const cache *c, const near_one *s, float *score)
{
    int64_t sum = 0, order = 0;

    for (int64_t i = 0; i < s->n; i++) {
        int32_t v = c->id[s->page[i / P]][i % P] - c->weights;

        sum += v;
        order = (order * 31 + v) % 10007;
    }
    score[0] = (float)s->n;
    score[1] = (float)sum;
    score[2] = (float)order;
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    cache *c = ctx;

    if (c->fails) {
        c->fails = false;
        return CT_FAIL(CT_ERR_DEVICE, "no batch");
    }
    for (int k = 0; k < n; k++) {
        near_one *s = piece[k].sequence;

        piece[k].failed = s->lost;
        if (s->lost) continue;
        assert_true(s->n + piece[k].n <= s->capacity);
        for (int64_t i = 0; i < piece[k].n; i++) {
            s->id[s->n] = piece[k].id[i];
            keep(c, s, s->n++);
        }
        score_of(c, s, c->score[k]);
        piece[k].score = c->score[k];
    }
    return CT_OK;
}

/* Other weights: all that was kept is wrong, and sequences grow again. */
static void swap(cache *c)
{
    c->weights++;
    for (near_one *s = c->all; s != NULL; s = s->next)
        for (int64_t i = 0; i < s->n; i++) keep(c, s, i);
}

/* ---- both ends */

typedef struct rig {
    cache c;
    ct_served_model model;
    ct_far_sequences *far;
    ct_near_sequences near;
} rig;

static void open_rig(rig *r)
{
    memset(r, 0, sizeof(*r));
    r->model = (ct_served_model){ .name = "m",
                                  .most_context = MOST,
                                  .cache_tokens = PAGES * P,
                                  .page_tokens = P,
                                  .n_score = SCORES,
                                  .ctx = &r->c,
                                  .place = place,
                                  .close = close_one,
                                  .grow = grow };
    r->near.model = &r->model;
    assert_int_equal(ct_far_sequences_create(&r->model, &r->far), CT_OK);
}

static void close_rig(rig *r)
{
    ct_near_sequences_end(&r->near);
    assert_null(r->c.all);
    ct_far_sequences_destroy(r->far);
}

static ct_status ask(rig *r, ct_work_piece *piece, int n)
{
    ct_text asked = { 0 }, said = { 0 };
    ct_status status;

    ct_far_sequences_ask(r->far, piece, n, &asked);
    ct_far_sequences_told(r->far);
    status = ct_near_sequences_grow(&r->near, asked.text, asked.length, &said);
    ct_text_destroy(&asked);
    if (status == CT_OK)
        return ct_far_sequences_take_answer(r->far, piece, n, said.text, said.length);
    ct_text_destroy(&said);
    return status;
}

/* As ct_replicas_take() does. */
static void take(rig *r, bool tells)
{
    ct_text text = { 0 };

    ct_far_sequences_tell(r->far, &text);
    if (tells) {
        ct_far_sequences_told(r->far);
        assert_int_equal(ct_near_sequences_hear(&r->near, text.text, text.length), CT_OK);
    }
    ct_text_destroy(&text);
    ct_far_sequences_renew(r->far);
    swap(&r->c);
}

typedef struct text {
    void *sequence;
    int32_t id[MOST];
    int64_t prompt, most, run;
} text;

static void expect_score(const text *t, const float *score)
{
    int64_t sum = 0, order = 0;

    for (int64_t i = 0; i < t->run; i++) {
        sum += t->id[i];
        order = (order * 31 + t->id[i]) % 10007;
    }
    assert_true((score[0] == (float)t->run) && (score[1] == (float)sum));
    assert_true(score[2] == (float)order);
}

/* A few beginnings, and ends of their own. */
static bool begin(rig *r, text *t, uint64_t key)
{
    int64_t kept = -1, peeked;
    ct_status status;

    t->prompt = 1 + (int64_t)(ct_rng_key(key, 1, 0) % (MOST - 20));
    t->most = t->prompt + 1 + (int64_t)(ct_rng_key(key, 2, 0) % 20);
    for (int64_t i = 0; i < t->most; i++)
        t->id[i] = (int32_t)((i / P < 3) ? i + (int64_t)(ct_rng_key(key, 3, 0) % 2)
                                         : (int64_t)(ct_rng_key(key, 4, (uint64_t)i) % 50));
    peeked = ct_far_sequences_peek(r->far, t->id, t->prompt);
    status = ct_far_sequence_open(r->far, t->id, t->prompt, t->most, &t->sequence, &kept);
    assert_int_equal(status, CT_OK);
    if (t->sequence == NULL) return false;
    assert_true((kept == peeked) && (kept < t->prompt));
    t->run = kept;
    return true;
}

static void end_text(rig *r, text *t)
{
    ct_far_sequence_close(r->far, t->sequence);
    t->sequence = NULL;
}

/* Parts of some of them. */
static void grow_some(rig *r, text *t, uint64_t key)
{
    ct_work_piece piece[LISTS];
    text *of[LISTS];
    int n = 0;

    for (int k = 0; k < LISTS; k++) {
        int64_t left = t[k].most - t[k].run, part;

        if ((t[k].sequence == NULL) || (left == 0) || (ct_rng_key(key, 5, (uint64_t)k) % 3 == 0))
            continue;
        part = 1 + (int64_t)(ct_rng_key(key, 6, (uint64_t)k) % (uint64_t)left);
        of[n] = &t[k];
        piece[n++] = (ct_work_piece){
            .sequence = t[k].sequence, .id = t[k].id + t[k].run, .n = part, .wants = (k % 2 == 0)
        };
    }
    if (n == 0) return;
    assert_int_equal(ask(r, piece, n), CT_OK);
    for (int k = 0; k < n; k++) {
        assert_false(piece[k].failed);
        of[k]->run += piece[k].n;
        if (piece[k].wants) expect_score(of[k], piece[k].score);
    }
}

/* Sequences come, grow, and go at any time; weights change in between. */
static void test_random(void **state)
{
    text *t = calloc(LISTS, sizeof(*t));
    int64_t n_kept = 0, n_full = 0;
    rig *r = calloc(1, sizeof(*r));

    (void)state;
    assert_true((t != NULL) && (r != NULL));
    open_rig(r);
    for (uint64_t round = 0; round < 20000; round++) {
        uint64_t key = ct_rng_key(41, round, 0);
        text *one = &t[key % LISTS];

        if (one->sequence == NULL) {
            if (begin(r, one, key))
                n_kept += (one->run > 0);
            else
                n_full++;
        } else if ((one->run == one->most) || (key % 7 == 0)) {
            end_text(r, one); /* also one that the other rank never heard of */
        }
        if (key % 3 > 0) grow_some(r, t, key);
        if (key % 101 == 0) take(r, true);
    }
    assert_true((n_kept > 500) && (n_full > 30));
    for (int k = 0; k < LISTS; k++)
        if (t[k].sequence != NULL) end_text(r, &t[k]);
    take(r, true);
    assert_null(r->c.all);
    close_rig(r);
    free(t);
    free(r);
}

static ct_work_piece piece_of(text *t, int64_t n)
{
    return (ct_work_piece){ .sequence = t->sequence, .id = t->id + t->run, .n = n, .wants = true };
}

/* What fails there fails here, and nothing beside it. */
static void test_failures(void **state)
{
    rig *r = calloc(1, sizeof(*r));
    text *t = calloc(3, sizeof(*t));
    ct_work_piece piece[2];

    (void)state;
    assert_true((t != NULL) && (r != NULL));
    open_rig(r);
    for (int k = 0; k < 3; k++) assert_true(begin(r, &t[k], 77 + (uint64_t)k));
    r->c.full = true; /* the first of them has no place there */
    for (int k = 0; k < 2; k++) piece[k] = piece_of(&t[k], 1);
    assert_int_equal(ask(r, piece, 2), CT_OK);
    assert_true(piece[0].failed && !piece[1].failed);
    t[1].run++;
    expect_score(&t[1], piece[1].score);
    end_text(r, &t[0]);
    r->c.fails = true; /* a batch, after which the sequence is as before */
    piece[0] = piece_of(&t[1], 1);
    log_capture_start(NULL);
    assert_int_equal(ask(r, piece, 1), CT_ERR_DEVICE);
    log_capture_stop();
    r->c.all->next->lost = true; /* t[1], which came before t[2]: no room in the new net */
    for (int k = 0; k < 2; k++) piece[k] = piece_of(&t[k + 1], 1);
    assert_int_equal(ask(r, piece, 2), CT_OK);
    assert_true(piece[0].failed && !piece[1].failed);
    for (int k = 1; k < 3; k++) end_text(r, &t[k]);
    close_rig(r);
    free(t);
    free(r);
}

/* One that shares pages, and of which the other rank does not hear before its weights change: what
 * it shares is no more. One that shares nothing goes on. */
static void test_lost(void **state)
{
    rig *r = calloc(1, sizeof(*r));
    text *t = calloc(4, sizeof(*t));
    ct_work_piece piece[3];
    uint64_t key = 0, other = 1000;

    (void)state;
    assert_true((t != NULL) && (r != NULL));
    open_rig(r);
    while (begin(r, &t[0], key) && (t[0].prompt <= 2 * P)) {
        end_text(r, &t[0]);
        key++;
    }
    piece[0] = piece_of(&t[0], t[0].prompt);
    assert_int_equal(ask(r, piece, 1), CT_OK);
    assert_true(begin(r, &t[1], key));
    assert_true(t[1].run >= 2 * P);
    while (begin(r, &t[3], other++) && (t[3].run > 0)) end_text(r, &t[3]);
    take(r, false);
    assert_int_equal(ct_far_sequences_peek(r->far, t[1].id, t[1].prompt), 0);
    assert_true(begin(r, &t[2], key));
    assert_int_equal(t[2].run, 0);
    piece[0] = piece_of(&t[1], 1);
    piece[1] = piece_of(&t[2], 1);
    piece[2] = piece_of(&t[3], 1);
    assert_int_equal(ask(r, piece, 3), CT_OK);
    assert_true(piece[0].failed && !piece[1].failed && !piece[2].failed);
    for (int k = 0; k < 4; k++) end_text(r, &t[k]);
    close_rig(r);
    free(t);
    free(r);
}

/* Bytes that are none of a batch. */
static void test_damaged(void **state)
{
    rig *r = calloc(1, sizeof(*r));
    text *t = calloc(1, sizeof(*t));
    ct_text asked = { 0 }, said = { 0 };
    ct_work_piece piece;
    log_capture log;

    (void)state;
    assert_true((t != NULL) && (r != NULL));
    open_rig(r);
    assert_true(begin(r, t, 5));
    piece = piece_of(t, 2);
    ct_far_sequences_ask(r->far, &piece, 1, &asked);
    log_capture_start(&log);
    for (size_t n = 0; n < asked.length; n += 4)
        assert_int_equal(ct_near_sequences_grow(&r->near, asked.text, n, &said), CT_ERR_COMM);
    assert_non_null(strstr(log.error, "it ends too soon"));
    ct_text_add_bytes(&asked, "1234", 4);
    assert_int_equal(ct_near_sequences_grow(&r->near, asked.text, asked.length, &said),
                     CT_ERR_COMM);
    assert_non_null(strstr(log.error, "it goes on beyond its end"));
    ct_far_sequences_told(r->far);
    assert_int_equal(ct_far_sequences_take_answer(r->far, &piece, 1, calloc(1, 4), 4), CT_ERR_COMM);
    log_capture_stop();
    end_text(r, t);
    ct_text_destroy(&asked);
    ct_text_destroy(&said);
    close_rig(r);
    free(t);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
