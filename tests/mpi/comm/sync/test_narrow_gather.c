/* Weights that travel in 16 bits: what is rounded comes rounded, the rest bit for bit, by every
 * rank's part of buckets of any make-up, in place. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "comm/collective/persistent.h"
#include "comm/sync/narrow_gather.h"
#include "framework/base/bf16.h"
#include "framework/base/rng.h"

enum { MOST_RANGE = 9, CASES = 40, EDGE = 64, PART = 100 /* of a range that stands in parts */ };

typedef struct make_up {
    ct_bucket_cut cut;
    ct_grad_range range[MOST_RANGE];
} make_up;

static uint64_t draw(int number, int what, uint64_t below)
{
    return ct_rng_philox(ct_rng_key(11, (uint64_t)number, 0), (uint64_t)what, 0).v[0] % below;
}

/* Large ones that are rounded between small ones that are not, gaps of padding; sometimes a part of
 * one range, sometimes many that are not rounded. */
static make_up make(int number)
{
    make_up m = { .cut = { .n = 1 + (int)draw(number, 0, MOST_RANGE), .offset = 48, .n_part = 1 } };
    int64_t at = m.cut.offset;

    if (number % 8 == 7) m.cut.n = 1;
    for (int i = 0; i < m.cut.n; ++i) {
        bool rounded = draw(number, 10 + i, 3) > 0;
        uint64_t most = (rounded != (number % 5 == 4)) ? 40000 : 30;

        m.range[i] = (ct_grad_range){ .key = "w",
                                      .offset = at,
                                      .count = 1 + (int64_t)draw(number, 30 + i, most),
                                      .rounded = rounded };
        at = (at + m.range[i].count + 15) / 16 * 16;
    }
    m.cut.count = m.range[m.cut.n - 1].offset + m.range[m.cut.n - 1].count - m.cut.offset;
    if (number % 8 == 7) { /* the cut begins and ends within it */
        m.range[0].offset -= 16;
        m.range[0].count += PART;
        m.range[0].rounded = true;
    }
    return m;
}

/* Of each element: in range (else padding), and rounded. */
static bool holds(const make_up *m, int64_t e, bool *rounded_p)
{
    int64_t at = m->cut.offset + e;

    for (int i = 0; i < m->cut.n; ++i) {
        *rounded_p = m->range[i].rounded;
        if ((at >= m->range[i].offset) && (at < m->range[i].offset + m->range[i].count))
            return true;
    }
    *rounded_p = true;
    return false;
}

static float value(const make_up *m, int number, int64_t e)
{
    bool rounded;

    return holds(m, e, &rounded) ? mpi_number(number, 3, e) : 0.0f;
}

static int compare(const make_up *m, int number, const float *place)
{
    int fault = 0;

    for (int64_t e = 0; e < m->cut.count; ++e) {
        bool rounded;
        float want = value(m, number, e);

        (void)holds(m, e, &rounded);
        if (rounded) want = ct_bf16_to_f32(ct_bf16_from_f32(want));
        fault += (memcmp(&want, &place[e], sizeof(want)) != 0);
    }
    return fault;
}

/* Once around: this rank's part is there, the rest is not a number. */
static ct_status go_round(ct_comm *c, const make_up *m, int number, ct_narrow_gather *n,
                          ct_persistent_coll *w)
{
    float *place = w->buf;
    int64_t first = 0, count = 0;
    ct_status status;

    CT_TRY(ct_coll_part(c, m->cut.count, c->rank, &first, &count));
    memset(place, 0xff, (size_t)m->cut.count * sizeof(*place));
    for (int64_t e = first; e < first + count; ++e) place[e] = value(m, number, e);
    ct_narrow_gather_pack(n, c, place);
    CT_TRY(ct_persistent_coll_start(w));
    do status = ct_persistent_coll_progress(w);
    while (status == CT_INPROGRESS);
    ct_narrow_gather_unpack(n, c, place);
    return status;
}

/* *narrow_p counts those that travel in 16 bits. */
static int one(ct_comm *c, int number, int *narrow_p)
{
    make_up m = make(number);
    float *place = calloc((size_t)(m.cut.count + 2 * EDGE), sizeof(*place));
    ct_persistent_coll w = { .comm = c,
                             .buf = place + EDGE,
                             .dtype = CT_BF16,
                             .tag = ct_comm_take_tags(c, CT_COLL_TAGS),
                             .kind = CT_COLL_ALLGATHER };
    ct_narrow_gather n;
    int fault = MPI_FAULT_UNLESS(ct_narrow_gather_open(c, &m.cut, m.range, &n) == CT_OK);

    if ((fault == 0) && (n.units > 0)) {
        *narrow_p += 1;
        w.count = n.units;
        fault += MPI_FAULT_UNLESS(n.units <= m.cut.count / 5 * 9);
        fault += MPI_FAULT_UNLESS(ct_persistent_coll_prepare(&w, "auto", true) == CT_OK);
        for (int k = 0; k < 2; ++k) { /* again and again */
            fault += MPI_FAULT_UNLESS(go_round(c, &m, number, &n, &w) == CT_OK);
            fault += compare(&m, number, place + EDGE);
        }
        for (int i = 0; i < EDGE; ++i)
            fault += (place[i] != 0) || (place[EDGE + m.cut.count + i] != 0);
    }
    ct_persistent_coll_release(&w);
    ct_narrow_gather_close(&n);
    free(place);
    return fault;
}

static int all_of_them(ct_comm *c)
{
    int fault = 0, narrow = 0;

    for (int i = 0; i < CASES; ++i) fault += one(c, i, &narrow);
    /* most have far more that is rounded */
    return fault + MPI_FAULT_UNLESS(narrow >= CASES / 3) + MPI_FAULT_UNLESS(narrow < CASES);
}

static void test_in_place(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(all_of_them)), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_in_place),
};

MPI_MAIN(tests, 120)
