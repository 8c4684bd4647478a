#include "serve/ranks/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "framework/net/pages.h"
#include "serve/ranks/bytes.h"

/* ---- rank 0 */

typedef struct far_sequence {
    int64_t number, capacity, kept;
    ct_page_list list;
    int32_t *id; /* [kept] */
    bool told;
    bool lost; /* what it shares was given up before the other rank knew of it */
} far_sequence;

struct ct_far_sequences {
    const ct_served_model *model;
    ct_page_pool *pool;
    far_sequence **at; /* by number; NULL: unused */
    int64_t *closed;   /* numbers, not told       */
    int64_t room, n_closed;
    char *answer; /* that has scores */
};

ct_status ct_far_sequences_create(const ct_served_model *model, ct_far_sequences **f_p)
{
    ct_far_sequences *f = calloc(1, sizeof(*f));
    ct_status status;

    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sequences of another rank");
    f->model = model;
    status = ct_page_pool_create(ct_pages_of(model->cache_tokens), &f->pool);
    if (status != CT_OK) {
        ct_far_sequences_destroy(f);
        return status;
    }
    *f_p = f;
    return CT_OK;
}

static void free_sequence(ct_far_sequences *f, far_sequence *s)
{
    ct_page_list_close(f->pool, &s->list);
    free(s->id);
    free(s);
}

void ct_far_sequences_destroy(ct_far_sequences *f)
{
    if (f == NULL) return;
    for (int64_t i = 0; i < f->room; i++)
        if (f->at[i] != NULL) free_sequence(f, f->at[i]);
    ct_page_pool_destroy(f->pool);
    free(f->at);
    free(f->closed);
    free(f->answer);
    free(f);
}

/* Room for one more, open or closed: closing must not fail. */
static ct_status make_room(ct_far_sequences *f, int64_t *number_p)
{
    int64_t i = 0, more = 2 * f->room + 8;
    far_sequence **at;
    int64_t *closed;

    while ((i < f->room) && (f->at[i] != NULL)) i++;
    *number_p = i;
    if (i < f->room) return CT_OK;
    at = realloc(f->at, (size_t)more * sizeof(*at));
    if (at != NULL) f->at = at;
    closed = realloc(f->closed, (size_t)more * sizeof(*closed));
    if (closed != NULL) f->closed = closed;
    if ((at == NULL) || (closed == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld sequences", (long long)more);
    for (; f->room < more; f->room++) f->at[f->room] = NULL;
    return CT_OK;
}

static ct_status open_list(ct_far_sequences *f, far_sequence *s, const int32_t *id, int64_t n,
                           bool *room_p)
{
    CT_TRY(ct_page_list_open(f->pool, id, n, s->capacity, &s->list, room_p));
    if (!*room_p) return CT_OK;
    s->kept = s->list.length;
    s->id = malloc((size_t)s->kept * sizeof(*s->id) + 1);
    if (s->id == NULL) {
        ct_page_list_close(f->pool, &s->list);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    }
    memcpy(s->id, id, (size_t)s->kept * sizeof(*s->id));
    return CT_OK;
}

ct_status ct_far_sequence_open(ct_far_sequences *f, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p)
{
    far_sequence *s = calloc(1, sizeof(*s));
    ct_status status;
    bool room = false;

    *sequence_p = NULL;
    *kept_p = 0;
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence");
    s->capacity = capacity;
    status = make_room(f, &s->number);
    if (status == CT_OK) status = open_list(f, s, id, n, &room);
    if ((status != CT_OK) || !room) {
        free(s);
        return status;
    }
    f->at[s->number] = s;
    *sequence_p = s;
    *kept_p = s->kept;
    return CT_OK;
}

void ct_far_sequence_close(ct_far_sequences *f, void *sequence)
{
    far_sequence *s = sequence;

    if (s->told) f->closed[f->n_closed++] = s->number;
    f->at[s->number] = NULL;
    free_sequence(f, s);
}

int64_t ct_far_sequences_peek(ct_far_sequences *f, const int32_t *id, int64_t n)
{
    return ct_page_pool_peek(f->pool, id, n);
}

void ct_far_sequences_tell(const ct_far_sequences *f, ct_text *to)
{
    int64_t n = 0;

    ct_bytes_add_count(to, f->n_closed);
    for (int64_t i = 0; i < f->n_closed; i++) ct_bytes_add_count(to, f->closed[i]);
    for (int64_t i = 0; i < f->room; i++) n += (f->at[i] != NULL) && !f->at[i]->told;
    ct_bytes_add_count(to, n);
    for (int64_t i = 0; i < f->room; i++) {
        const far_sequence *s = f->at[i];

        if ((s == NULL) || s->told) continue;
        ct_bytes_add_count(to, s->number);
        ct_bytes_add_count(to, s->capacity);
        ct_bytes_add_ids(to, s->list.page, s->list.n);
        ct_bytes_add_ids(to, s->id, s->kept);
    }
}

void ct_far_sequences_ask(const ct_far_sequences *f, ct_work_piece *piece, int n, ct_text *to)
{
    int64_t good = 0;

    ct_far_sequences_tell(f, to);
    for (int i = 0; i < n; i++) {
        piece[i].failed = ((const far_sequence *)piece[i].sequence)->lost;
        good += !piece[i].failed;
    }
    ct_bytes_add_count(to, good);
    for (int i = 0; i < n; i++) {
        if (piece[i].failed) continue;
        ct_bytes_add_count(to, ((const far_sequence *)piece[i].sequence)->number);
        ct_bytes_add_count(to, piece[i].wants);
        ct_bytes_add_ids(to, piece[i].id, piece[i].n);
    }
}

void ct_far_sequences_told(ct_far_sequences *f)
{
    f->n_closed = 0;
    for (int64_t i = 0; i < f->room; i++)
        if (f->at[i] != NULL) f->at[i]->told = true;
}

ct_status ct_far_sequences_take_answer(ct_far_sequences *f, ct_work_piece *piece, int n, char *data,
                                       size_t size)
{
    ct_bytes b = { data, size, false };

    free(f->answer);
    f->answer = data;
    for (int i = 0; i < n; i++) {
        int64_t failed = 1;

        if (!piece[i].failed) ct_bytes_take(&b, &failed, sizeof(failed));
        piece[i].failed = (failed != 0);
    }
    for (int i = 0; i < n; i++) {
        if (!piece[i].failed && piece[i].wants)
            piece[i].score = ct_bytes_take_list(&b, f->model->n_score, sizeof(float));
    }
    CT_TRY(ct_bytes_check_end(&b));
    for (int i = 0; i < n; i++) {
        if (!piece[i].failed)
            ct_page_list_grow(f->pool, &((far_sequence *)piece[i].sequence)->list, piece[i].id,
                              piece[i].n);
    }
    return CT_OK;
}

void ct_far_sequences_renew(ct_far_sequences *f)
{
    ct_page_pool_forget(f->pool);
    for (int64_t i = 0; i < f->room; i++) {
        far_sequence *s = f->at[i];

        if ((s != NULL) && !s->told && (s->kept > 0)) s->lost = true;
    }
}

/* ---- the other rank */

static void close_number(ct_near_sequences *s, int64_t number)
{
    if ((number < 0) || (number >= s->n) || (s->sequence[number] == NULL)) return;
    s->model->close(s->model->ctx, s->sequence[number]);
    s->sequence[number] = NULL;
}

static ct_status make_number(ct_near_sequences *s, int64_t number)
{
    void **more;

    if (number < s->n) return CT_OK;
    more = realloc(s->sequence, (size_t)(number + 1) * sizeof(*more));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld sequences", (long long)s->n);
    s->sequence = more;
    for (; s->n <= number; s->n++) s->sequence[s->n] = NULL;
    return CT_OK;
}

/* One that cannot be opened fails with its first tokens, and no other. */
static ct_status hear_open(ct_near_sequences *s, ct_bytes *b)
{
    int64_t number = -1;
    ct_sequence_place place = { .n_page = 0 };

    ct_bytes_take(b, &number, sizeof(number));
    ct_bytes_take(b, &place.capacity, sizeof(place.capacity));
    place.n_page = ct_bytes_take_count(b, sizeof(int32_t));
    place.page = ct_bytes_take_list(b, place.n_page, sizeof(int32_t));
    place.kept = ct_bytes_take_count(b, sizeof(int32_t));
    place.id = ct_bytes_take_list(b, place.kept, sizeof(int32_t));
    if ((number < 0) || (number > INT32_MAX)) b->bad = true;
    if (b->bad) return ct_bytes_check_end(b);
    CT_TRY(make_number(s, number));
    close_number(s, number);
    if (s->model->place(s->model->ctx, &place, &s->sequence[number]) != CT_OK)
        s->sequence[number] = NULL;
    return CT_OK;
}

static ct_status hear(ct_near_sequences *s, ct_bytes *b)
{
    int64_t n = ct_bytes_take_count(b, sizeof(int64_t));

    for (int64_t i = 0; i < n; i++) {
        int64_t number = -1;

        ct_bytes_take(b, &number, sizeof(number));
        close_number(s, number);
    }
    n = ct_bytes_take_count(b, 4 * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) CT_TRY(hear_open(s, b));
    return CT_OK;
}

ct_status ct_near_sequences_hear(ct_near_sequences *s, const char *data, size_t size)
{
    ct_bytes b = { data, size, false };

    CT_TRY(hear(s, &b));
    return ct_bytes_check_end(&b);
}

/* failed: of those that are not to run. */
static ct_status read_pieces(const ct_near_sequences *s, ct_bytes *b, ct_work_piece *piece, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t number = -1, wants = 0;

        ct_bytes_take(b, &number, sizeof(number));
        ct_bytes_take(b, &wants, sizeof(wants));
        piece[i] = (ct_work_piece){ .n = ct_bytes_take_count(b, sizeof(int32_t)) };
        piece[i].id = ct_bytes_take_list(b, piece[i].n, sizeof(int32_t));
        piece[i].wants = (wants != 0);
        if ((number >= 0) && (number < s->n)) piece[i].sequence = s->sequence[number];
        piece[i].failed = (piece[i].sequence == NULL);
    }
    return ct_bytes_check_end(b);
}

static ct_status grow_good(const ct_served_model *m, ct_work_piece *piece, ct_work_piece *good,
                           int n)
{
    int k = 0;

    for (int i = 0; i < n; i++)
        if (!piece[i].failed) good[k++] = piece[i];
    if (k > 0) CT_TRY(m->grow(m->ctx, good, k));
    k = 0;
    for (int i = 0; i < n; i++)
        if (!piece[i].failed) piece[i] = good[k++];
    return CT_OK;
}

static ct_status grow_read(ct_near_sequences *s, ct_bytes *b, ct_work_piece *piece, int n,
                           ct_text *answer)
{
    const ct_served_model *m = s->model;

    CT_TRY(read_pieces(s, b, piece, n));
    CT_TRY(grow_good(m, piece, piece + n, n));
    for (int i = 0; i < n; i++) ct_bytes_add_count(answer, piece[i].failed);
    for (int i = 0; i < n; i++) {
        if (!piece[i].failed && piece[i].wants)
            ct_text_add_bytes(answer, (const char *)piece[i].score,
                              (size_t)m->n_score * sizeof(float));
    }
    return answer->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the scores of a batch") : CT_OK;
}

ct_status ct_near_sequences_grow(ct_near_sequences *s, const char *data, size_t size,
                                 ct_text *answer)
{
    ct_bytes b = { data, size, false };
    ct_work_piece *piece;
    ct_status status;
    int64_t n;

    CT_TRY(hear(s, &b));
    n = ct_bytes_take_count(&b, 3 * sizeof(int64_t));
    piece = calloc(2 * (size_t)n + 1, sizeof(*piece));
    if (piece == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of %lld", (long long)n);
    status = grow_read(s, &b, piece, (int)n, answer);
    free(piece);
    return status;
}

void ct_near_sequences_end(ct_near_sequences *s)
{
    for (int64_t i = 0; i < s->n; i++) close_number(s, i);
    free(s->sequence);
    s->sequence = NULL;
    s->n = 0;
}
