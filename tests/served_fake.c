#include "tests/served_fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const ct_served_blob inputs[] = {
    { .name = "x", .n_dim = 2, .dim = { -1, 3 }, .most = { 16, 3 } },
    { .name = "ids", .whole = true, .n_id = 256, .n_dim = 2, .dim = { -1, -1 }, .most = { 16, 8 } },
};
static const ct_served_blob outputs[] = {
    { .name = "sum", .n_dim = 1, .dim = { -1 } },
    { .name = "twice", .n_dim = 2, .dim = { -1, 3 } },
};

static ct_status encode(void *ctx, const char *text, size_t n, ct_ids *ids)
{
    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        int32_t id = (unsigned char)text[i];

        if (id == '~') continue;
        if (id == '!') return CT_FAIL(CT_ERR_DATA, "line 1: no token for '!'");
        CT_TRY(ct_ids_add(ids, &id, 1));
    }
    return CT_OK;
}

static ct_status take_time(served_fake *fake, ct_work *const *work, int n)
{
    double s = 0;
    struct timespec t;

    for (int i = 0; i < n; i++) s += fake->token_s * (double)work[i]->tokens;
    t.tv_sec = (time_t)s;
    t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
    if (s > 0) (void)nanosleep(&t, NULL);
    if (!fake->fails) return CT_OK;
    fake->fails = false;
    return CT_ERR_DEVICE;
}

static ct_status embed(void *ctx, ct_work *const *work, int n)
{
    served_fake *fake = ctx;

    CT_TRY(take_time(fake, work, n));
    for (int i = 0; i < n; i++) {
        int64_t sum = 0;

        for (int64_t k = 0; k < work[i]->ids.n; k++) sum += work[i]->ids.id[k];
        work[i]->row[work[i]->ids.n % FAKE_SIZE] = (sum > 0) ? 1 : -1;
        fake->n_embedded++;
    }
    return CT_OK;
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    served_fake *fake = ctx;

    CT_TRY(take_time(fake, work, n));
    fake->samples = work[n - 1]->samples;
    for (int i = 0; i < n; i++) {
        const ct_served_values *x = &work[i]->input[0], *ids = &work[i]->input[1];
        ct_served_values *sum = &work[i]->output[0], *twice = &work[i]->output[1];
        int64_t rows = x->dim[0];

        *sum = (ct_served_values){ 1, { rows }, calloc((size_t)rows, sizeof(float)) };
        *twice = (ct_served_values){ 2, { rows, 3 }, calloc((size_t)(3 * rows), sizeof(float)) };
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t k = 0; k < 3; k++) {
                sum->data[r] += x->data[3 * r + k];
                twice->data[3 * r + k] = 2 * x->data[3 * r + k];
            }
            for (int64_t k = 0; (r < ids->dim[0]) && (k < ids->dim[1]); k++)
                sum->data[r] += ids->data[ids->dim[1] * r + k];
        }
    }
    return CT_OK;
}

/* ---- texts that go on */

typedef struct fake_sequence {
    int64_t n; /* tokens so far */
} fake_sequence;

static ct_status encode_text(void *ctx, const char *text, size_t n, ct_ids *ids)
{
    const served_fake *fake = ctx;

    return ct_tokenizer_encode(fake->tokenizer, text, n, false, "the text", ids);
}

static ct_status open_sequence(void *ctx, const int32_t *id, int64_t n, int64_t capacity,
                               void **sequence_p, int64_t *kept_p)
{
    (void)ctx;
    (void)id;
    (void)n;
    (void)capacity;
    *sequence_p = calloc(1, sizeof(fake_sequence));
    *kept_p = 0;
    return (*sequence_p != NULL) ? CT_OK : CT_ERR_NOMEM;
}

static void close_sequence(void *ctx, void *sequence)
{
    (void)ctx;
    free(sequence);
}

static int64_t peek(void *ctx, const int32_t *id, int64_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
    return 0;
}

/* Of all tokens one is ahead of the others, which follow in no order that texts would have. */
static void fill_scores(const served_fake *fake, int32_t last, int64_t place, float *score)
{
    int64_t n = fake->model.n_id;

    for (int64_t k = 0; k < n; k++) score[k] = (float)((7 * k + last) % 13) / 4;
    score[(int64_t)(((uint64_t)last * 131 + (uint64_t)place * 17 + 5) % (uint64_t)n)] = 6;
}

static ct_status grow(void *ctx, ct_work_piece *piece, int n)
{
    served_fake *fake = ctx;

    for (int i = 0; i < n; i++) {
        fake_sequence *s = piece[i].sequence;
        float *score = fake->score + i * fake->model.n_id;

        s->n += piece[i].n;
        fill_scores(fake, piece[i].id[piece[i].n - 1], s->n, score);
        piece[i].score = score;
    }
    if (!fake->fails) return CT_OK;
    fake->fails = false;
    return CT_ERR_DEVICE;
}

/* ---- the whole */

void served_fake_dispatch(const ct_served_model *model, ct_dispatch **d_p)
{
    static const int64_t tokens[] = { 1, 128 };
    static const double s[] = { 1e-4, 1e-3 };
    const ct_scheduler_options o = { .policy = CT_POLICY_PACKED,
                                     .most_waiting = FAKE_QUEUE,
                                     .most_count = 8,
                                     .most_sequences =
                                         (model->most_context > 0) ? FAKE_SEQUENCES : 0,
                                     .most_tokens = 128,
                                     .budget = 64,
                                     .cache_tokens = model->cache_tokens,
                                     .page_tokens = model->page_tokens,
                                     .mixed = true };
    ct_batch_cost cost;

    if ((ct_batch_cost_init(&cost, 2, tokens, s) != CT_OK) ||
        (ct_dispatch_create(model, &o, &cost, d_p) != CT_OK))
        abort();
}

void served_fake_open(served_fake *fake)
{
    memset(fake, 0, sizeof(*fake));
    fake->model = (ct_served_model){ .name = "fake",
                                     .most_length = FAKE_LENGTH,
                                     .n_id = 256,
                                     .embedding_size = FAKE_SIZE,
                                     .n_input = 2,
                                     .n_output = 2,
                                     .input = inputs,
                                     .output = outputs,
                                     .ctx = fake,
                                     .encode = encode,
                                     .embed = embed,
                                     .infer = infer };
    served_fake_dispatch(&fake->model, &fake->dispatch);
}

void served_fake_open_texts(served_fake *fake, const ct_tokenizer *t)
{
    memset(fake, 0, sizeof(*fake));
    fake->tokenizer = t;
    fake->model = (ct_served_model){ .name = "fake",
                                     .most_length = FAKE_LENGTH,
                                     .n_id = ct_tokenizer_size(t),
                                     .ctx = fake,
                                     .encode = encode_text,
                                     .most_context = FAKE_CONTEXT,
                                     .tokenizer = t,
                                     .cache_tokens = 3 * FAKE_CONTEXT,
                                     .page_tokens = 4,
                                     .open = open_sequence,
                                     .close = close_sequence,
                                     .peek = peek,
                                     .grow = grow };
    fake->score = calloc((size_t)(FAKE_SEQUENCES * fake->model.n_id), sizeof(float));
    if (fake->score == NULL) abort();
    served_fake_dispatch(&fake->model, &fake->dispatch);
}

void served_fake_close(served_fake *fake)
{
    ct_dispatch_destroy(fake->dispatch);
    free(fake->score);
}
