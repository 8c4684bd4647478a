#include "comm/sync/row_sum.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/allgatherv.h"

enum {
    COLUMNS = 64,        /* of a thread at a time */
    TEAM_LEAST = 1 << 15 /* elements that are worth a team */
};

/* A rank's rows: what lies at the start of its payload. The numbers have room for as many rows as
 * there may be, so that values can be put down before all rows are known. */
typedef struct row_list {
    int64_t n;
    char pad[CT_ALIGN - sizeof(int64_t)];
} row_list;

struct ct_row_sum {
    ct_comm *comm;
    int64_t rows, n, most;
    size_t head;    /* bytes before the values */
    int32_t *place; /* [rows] where this rank's list has it; -1: nowhere */
    ct_allgatherv *gather;
    ct_coll_where where;
    int64_t bytes_sent;
};

static row_list *list_of(const ct_row_sum *s, int rank)
{
    return ct_allgatherv_payload(s->gather, rank);
}

static int32_t *numbers_of(const ct_row_sum *s, int rank)
{
    return (int32_t *)(list_of(s, rank) + 1);
}

static float *values_of(const ct_row_sum *s, int rank)
{
    return (float *)(void *)((char *)list_of(s, rank) + s->head);
}

static size_t bytes_of(const ct_row_sum *s, int64_t n)
{
    return s->head + (size_t)(n * s->n) * sizeof(float);
}

static size_t head_of(int64_t most)
{
    return sizeof(row_list) + ct_align_up((size_t)most * sizeof(int32_t));
}

int64_t ct_row_sum_size(const ct_comm *c, int64_t rows, int64_t n, int64_t most)
{
    size_t payload = head_of(most) + (size_t)(most * n) * sizeof(float);

    return rows * (int64_t)sizeof(int32_t) + (int64_t)ct_allgatherv_room(c->size, payload);
}

ct_status ct_row_sum_create(ct_comm *c, int64_t rows, int64_t n, int64_t most, int tag,
                            ct_row_sum **s_p)
{
    ct_row_sum *s = calloc(1, sizeof(*s));
    int *member = calloc((size_t)c->size, sizeof(*member));
    ct_status status = CT_OK;

    if ((s == NULL) || (member == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a sum of rows");
        goto done;
    }
    s->comm = c;
    s->rows = rows;
    s->n = n;
    s->most = most;
    s->head = head_of(most);
    s->place = malloc((size_t)rows * sizeof(*s->place));
    if (s->place == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a sum of %lld rows", (long long)rows);
        goto done;
    }
    memset(s->place, -1, (size_t)rows * sizeof(*s->place));
    for (int r = 0; r < c->size; ++r) member[r] = r;
    status = ct_allgatherv_create(c, member, c->size, c->rank, bytes_of(s, most), tag, &s->gather);
    if (status == CT_OK) list_of(s, c->rank)->n = 0;

done:
    free(member);
    if (status == CT_OK)
        *s_p = s;
    else
        ct_row_sum_destroy(s);
    return status;
}

void ct_row_sum_destroy(ct_row_sum *s)
{
    if (s == NULL) return;
    ct_allgatherv_destroy(s->gather);
    free(s->place);
    free(s);
}

void ct_row_sum_begin(ct_row_sum *s)
{
    row_list *l = list_of(s, s->comm->rank);
    const int32_t *number = numbers_of(s, s->comm->rank);

    for (int64_t k = 0; k < l->n; ++k) s->place[number[k]] = -1;
    l->n = 0;
}

static ct_status find_places(ct_row_sum *s, int64_t m, const int32_t *index)
{
    row_list *l = list_of(s, s->comm->rank);
    int32_t *number = numbers_of(s, s->comm->rank);

    for (int64_t k = 0; k < m; ++k) {
        if ((index[k] < 0) || (index[k] >= s->rows))
            return CT_FAIL(CT_ERR_ARG, "row %d of %lld", index[k], (long long)s->rows);
        if (s->place[index[k]] >= 0) continue;
        if (l->n == s->most)
            return CT_FAIL(CT_ERR_ARG, "more than the %lld rows that were promised",
                           (long long)s->most);
        memset(values_of(s, s->comm->rank) + l->n * s->n, 0, (size_t)s->n * sizeof(float));
        number[l->n] = index[k];
        s->place[index[k]] = (int32_t)l->n++;
    }
    return CT_OK;
}

/* A thread has columns of its own, so that every element is summed in one order. */
ct_status ct_row_sum_add(ct_row_sum *s, int64_t m, const int32_t *index, const float *value)
{
    float *values = values_of(s, s->comm->rank);

    CT_TRY(find_places(s, m, index));
    if (value == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (m * s->n >= TEAM_LEAST)
    for (int64_t from = 0; from < s->n; from += COLUMNS) {
        int64_t to = (from + COLUMNS < s->n) ? from + COLUMNS : s->n;

        for (int64_t k = 0; k < m; ++k) {
            float *row = values + s->place[index[k]] * s->n;

#pragma omp simd
            for (int64_t c = from; c < to; ++c) row[c] += value[k * s->n + c];
        }
    }
    return CT_OK;
}

void ct_row_sum_take(ct_row_sum *s, float *matrix)
{
    int64_t n = list_of(s, s->comm->rank)->n;
    const int32_t *number = numbers_of(s, s->comm->rank);
    float *values = values_of(s, s->comm->rank);
    size_t bytes = (size_t)s->n * sizeof(float);

#pragma omp parallel for schedule(static) if (n * s->n >= TEAM_LEAST)
    for (int64_t k = 0; k < n; ++k) {
        memcpy(values + k * s->n, matrix + number[k] * s->n, bytes);
        memset(matrix + number[k] * s->n, 0, bytes);
    }
}

ct_status ct_row_sum_start(ct_row_sum *s)
{
    return ct_allgatherv_start(s->gather, (size_t)ct_row_sum_payload_bytes(s));
}

/* What came is a list of rows that there are. */
static ct_status check(const ct_row_sum *s, int rank)
{
    size_t bytes = ct_allgatherv_bytes(s->gather, rank);
    int64_t n = (bytes >= s->head) ? list_of(s, rank)->n : -1;

    if ((n < 0) || (n > s->most) || (bytes != bytes_of(s, n)))
        return CT_FAIL(CT_ERR_COMM, "rank %d sends %lld rows in %zu bytes", rank, (long long)n,
                       bytes);
    for (int64_t k = 0; k < n; ++k) {
        if ((numbers_of(s, rank)[k] < 0) || (numbers_of(s, rank)[k] >= s->rows))
            return CT_FAIL(CT_ERR_COMM, "rank %d sends row %d of %lld", rank,
                           numbers_of(s, rank)[k], (long long)s->rows);
    }
    return CT_OK;
}

ct_status ct_row_sum_progress(ct_row_sum *s)
{
    CT_TRY(ct_allgatherv_progress(s->gather, &s->bytes_sent, &s->where));
    for (int r = 0; r < s->comm->size; ++r) CT_TRY(check(s, r));
    return CT_OK;
}

static void add_rank(const ct_row_sum *s, int rank, int64_t from, int64_t to, float *matrix)
{
    int64_t n = list_of(s, rank)->n;
    const int32_t *number = numbers_of(s, rank);
    const float *values = values_of(s, rank);

    for (int64_t k = 0; k < n; ++k) {
        const float *row = values + k * s->n;
        float *sum = matrix + number[k] * s->n;

#pragma omp simd
        for (int64_t c = from; c < to; ++c) sum[c] += row[c];
    }
}

void ct_row_sum_deliver(const ct_row_sum *s, float *matrix)
{
    int64_t work = 0;

    for (int r = 0; r < s->comm->size; ++r) work += list_of(s, r)->n * s->n;
#pragma omp parallel for schedule(static) if (work >= TEAM_LEAST)
    for (int64_t from = 0; from < s->n; from += COLUMNS) {
        int64_t to = (from + COLUMNS < s->n) ? from + COLUMNS : s->n;

        for (int r = 0; r < s->comm->size; ++r) add_rank(s, r, from, to, matrix);
    }
}

int ct_row_sum_pending(ct_row_sum *s, MPI_Request **out, int max)
{
    return ct_allgatherv_pending(s->gather, out, max);
}

ct_coll_where *ct_row_sum_where(ct_row_sum *s)
{
    return &s->where;
}

int64_t ct_row_sum_payload_bytes(const ct_row_sum *s)
{
    return (int64_t)bytes_of(s, list_of(s, s->comm->rank)->n);
}

int64_t ct_row_sum_bytes_sent(const ct_row_sum *s)
{
    return s->bytes_sent;
}
