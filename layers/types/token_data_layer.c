/* TokenData: windows of a file of tokens. Tops, each batch x seq_len: the tokens; those that follow
 * them; their positions; the numbers of their segments.
 *
 * Window w has tokens [w T, w T + T] of the file, the last only as the one that follows; T is
 * seq_len, and the W = (tokens - 1) / T windows are the samples. An epoch takes each window once,
 * in TRAIN in an order drawn of (seed, epoch), in TEST as they lie. Which windows a rank has in a
 * step depends on (seed, step) and its share of the global batch alone.
 *
 * With end_token a window falls into segments: each ends with that token. Positions count from the
 * segment's first token in the window. Without it a window is one segment.
 *
 * With mask_ratio the second top has what is hidden, and -1 elsewhere (Devlin et al. 2019, BERT:
 * of the chosen tokens 80 % become mask_token, 10 % any token, 10 % stay). Windows then need no
 * token behind their last. In TEST what is hidden depends on the window alone.
 *
 * Of a test that has each window once, targets of what the last batch has beyond them are ignored.
 *
 * With tokenizer, in TEST, it counts the bytes of the text that its targets stand for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/rng.h"
#include "framework/data/token_file.h"
#include "framework/text/tokenizer.h"
#include "layers/types/data_common.h"

enum { TOKENS, NEXT, POSITIONS, SEGMENTS, N_TOP };

/* Whole numbers beyond this have no exact f32. */
static const int32_t most_id = 1 << 24;
/* Purposes of random numbers, so that the order and the masks draw apart. */
static const uint64_t key_mask = UINT64_C(0x746f6b656e6d736b);

typedef struct token_state {
    ct_token_file file;
    bool synthetic;
    int64_t vocabulary; /* ids are below; 0: not said */
    int64_t batch_size, seq_len, n_window;
    int64_t end_token; /* -1: none */
    float mask_ratio;
    int64_t mask_token;
    int64_t n_id;            /* of the tokenizer; 0: not known */
    ct_tokenizer *tokenizer; /* NULL: nobody counts bytes     */
} token_state;

typedef struct token_instance {
    int32_t *token; /* one window and the token behind it */
    float *values;  /* N_TOP tops                         */
} token_instance;

static ct_status check_fields(ct_layer *l, const Ct__TokenDataParameter *p)
{
    token_state *s = l->state;

    if ((s->batch_size < 1) || (s->batch_size > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "batch_size, the windows, is %lld, must be at least 1",
                             (long long)s->batch_size);
    if (s->seq_len < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "seq_len, the tokens of a window, is missing or 0");
    if (s->vocabulary > most_id)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "vocabulary is %lld, must be at most %d",
                             (long long)s->vocabulary, most_id);
    if ((s->vocabulary > 0) && (s->end_token >= s->vocabulary)) /* no token is called so */
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "end_token is %lld, vocabulary is %lld",
                             (long long)s->end_token, (long long)s->vocabulary);
    if (!(s->mask_ratio >= 0.0f) || !(s->mask_ratio <= 1.0f))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "mask_ratio is %g, must be between 0 and 1",
                             (double)s->mask_ratio);
    if ((s->mask_ratio > 0.0f) &&
        (!p->has_mask_token || !p->has_vocabulary || (p->vocabulary == 0)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "mask_ratio needs mask_token and vocabulary");
    if ((s->mask_ratio > 0.0f) && (s->mask_token >= s->vocabulary))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "mask_token is %lld, vocabulary is %lld",
                             (long long)s->mask_token, (long long)s->vocabulary);
    return CT_OK;
}

/* The file, its size, and how many windows it has. */
static ct_status open_source(ct_layer *l, const char *source)
{
    token_state *s = l->state;
    int64_t behind = (s->mask_ratio > 0.0f) ? 0 : 1;

    if (access(source, R_OK) != 0)
        return CT_LAYER_FAIL(l, CT_ERR_IO, "cannot open %s: %s", source,
                             ct_path_why(source, errno).text);
    CT_TRY(ct_token_file_open(source, (s->vocabulary > 0) ? ct_token_width(s->vocabulary) : 0,
                              &s->file));
    s->n_window = (s->file.count - behind) / s->seq_len;
    if (s->n_window < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s has %lld tokens: too few for a window of %lld%s",
                             source, (long long)s->file.count, (long long)s->seq_len,
                             (behind > 0) ? " and the next one" : "");
    return CT_OK;
}

/* How many ids there are; in TEST, what counts bytes of texts. Training needs no tokenizer, and
 * without data there may be none: then its file may be missing, and nobody counts the ids. */
static ct_status open_tokenizer(ct_layer *l, const Ct__TokenDataParameter *p)
{
    token_state *s = l->state;

    if ((p->tokenizer == NULL) && (p->pattern != NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pattern is that of a tokenizer, which is not set");
    if (p->tokenizer == NULL) return CT_OK;
    if ((l->env->no_data || (l->phase != CT_TEST)) && (strcmp(p->tokenizer, "bytes") != 0) &&
        (access(p->tokenizer, F_OK) != 0))
        return CT_OK;
    CT_TRY(ct_tokenizer_open(p->tokenizer, p->pattern, &s->tokenizer));
    s->n_id = ct_tokenizer_size(s->tokenizer);
    if ((s->vocabulary > 0) && (s->n_id > s->vocabulary))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "tokenizer %s has %lld ids, vocabulary is %lld",
                             p->tokenizer, (long long)s->n_id, (long long)s->vocabulary);
    if ((l->phase == CT_TEST) && !l->env->no_data) return CT_OK;
    ct_tokenizer_close(s->tokenizer);
    s->tokenizer = NULL;
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TokenDataParameter *p = l->param->token_data_param;
    token_state *s = l->state;
    bool absent;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "token_data_param is missing");
    s->batch_size = p->batch_size;
    s->seq_len = p->seq_len;
    s->vocabulary = p->vocabulary;
    s->end_token = p->has_end_token ? (int64_t)p->end_token : -1;
    s->mask_ratio = p->mask_ratio;
    s->mask_token = p->mask_token;
    absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s->synthetic = absent && l->env->synthetic;
    if (s->synthetic && (l->env->synthetic_batch > 0)) s->batch_size = l->env->synthetic_batch;
    CT_TRY(check_fields(l, p));
    if (s->synthetic) return CT_OK;
    CT_TRY(open_tokenizer(l, p));
    if (absent && l->env->no_data) return CT_OK;
    if (p->source == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "source is not set");
    return open_source(l, p->source);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const token_state *s = l->state;
    token_instance *d = in->state;
    ct_shape shape = { 2, { 0, s->seq_len } };
    ct_share share;

    CT_TRY(ct_data_share(l, s->batch_size, &share));
    in->batch_local = shape.dim[0] = share.local;
    in->batch_global = share.global;
    in->batch_first = share.first;
    in->n_sample = s->n_window;
    CT_TRY(ct_data_check_size(l, &shape));
    for (int i = 0; i < l->n_top; i++) ct_blob_set_shape(in->top[i], &shape);
    in->top[TOKENS]->ids = (s->vocabulary > 0) ? s->vocabulary : s->n_id;
    if (l->env->no_data) return CT_OK;
    free(d->token);
    free(d->values);
    d->token = malloc((size_t)(s->seq_len + 1) * sizeof(*d->token));
    d->values = malloc((size_t)(N_TOP * share.local * s->seq_len) * sizeof(*d->values));
    if ((d->token == NULL) || (d->values == NULL))
        return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for a batch");
    return CT_OK;
}

/* Window w with the token behind it; where masks hide tokens, there need not be one. */
static ct_status read_window(const ct_layer *l, const ct_exec *ex, int64_t w, int32_t *token)
{
    const token_state *s = l->state;
    int64_t n = s->seq_len + ((s->mask_ratio > 0.0f) ? 0 : 1), below = most_id;

    if (s->vocabulary > 0) below = s->vocabulary;
    if (s->file.path == NULL) {
        int64_t kinds = (s->vocabulary > 0) ? s->vocabulary : 50257;

        for (int64_t t = 0; t < n; t++)
            token[t] = (int32_t)(ct_rng_key(ex->seed, (uint64_t)w, (uint64_t)t) % (uint64_t)kinds);
        return CT_OK;
    }
    CT_TRY(ct_token_file_get(&s->file, w * s->seq_len, n, token));
    for (int64_t t = 0; t < n; t++)
        if ((token[t] < 0) || (token[t] >= below))
            return CT_LAYER_FAIL(l, CT_ERR_DATA, "%s: token %lld of window %lld is %d, %s is %lld",
                                 s->file.path, (long long)t, (long long)w, token[t],
                                 (s->vocabulary > 0) ? "vocabulary" : "the limit",
                                 (long long)below);
    return CT_OK;
}

/* Positions and segments of a window's tokens. */
static void place_tokens(const token_state *s, const int32_t *token, float *position,
                         float *segment)
{
    int64_t at = 0, number = 0;

    for (int64_t t = 0; t < s->seq_len; t++) {
        position[t] = (float)at++;
        segment[t] = (float)number;
        if ((s->end_token >= 0) && (token[t] == s->end_token)) {
            at = 0;
            number++;
        }
    }
}

/* Hides tokens: the net sees `seen`, and is asked for `hidden`. */
static void mask_tokens(const token_state *s, uint64_t key, const int32_t *token, float *seen,
                        float *hidden)
{
    for (int64_t t = 0; t < s->seq_len; t++) {
        float which = ct_rng_uniform_at(key, 3 * (uint64_t)t + 1);

        seen[t] = (float)token[t];
        hidden[t] = -1.0f;
        if (!(ct_rng_uniform_at(key, 3 * (uint64_t)t) < s->mask_ratio)) continue;
        hidden[t] = (float)token[t];
        if (which < 0.8f)
            seen[t] = (float)s->mask_token;
        else if (which < 0.9f)
            seen[t] = (float)(ct_rng_key(key, 3 * (uint64_t)t + 2, 0) % (uint64_t)s->vocabulary);
    }
}

/* Place i of this rank's batch: each top's row. */
static ct_status fill_row(const ct_layer *l, ct_instance *in, const ct_exec *ex, int64_t i)
{
    const token_state *s = l->state;
    token_instance *d = in->state;
    int64_t position = ex->micro_step * in->batch_global + in->batch_first + i;
    int64_t n = (s->file.path != NULL) ? s->n_window : INT64_MAX, T = s->seq_len;
    int64_t w =
        ct_sample_at(ex->seed, (l->phase == CT_TRAIN) && (s->file.path != NULL), position, n);
    float *row[N_TOP];

    for (int k = 0; k < N_TOP; k++) row[k] = d->values + (k * in->batch_local + i) * T;
    CT_TRY(read_window(l, ex, w, d->token));
    place_tokens(s, d->token, row[POSITIONS], row[SEGMENTS]);
    if (s->mask_ratio > 0.0f) {
        bool train = l->phase == CT_TRAIN;
        uint64_t key = ct_rng_key(train ? ex->seed : 0, key_mask, (uint64_t)(train ? position : w));

        mask_tokens(s, key, d->token, row[TOKENS], row[NEXT]);
        return CT_OK;
    }
    for (int64_t t = 0; t < T; t++) {
        row[TOKENS][t] = (float)d->token[t];
        row[NEXT][t] = (float)d->token[t + 1];
    }
    return CT_OK;
}

/* Adds the targets of a row, and the bytes that they stand for. */
static ct_status count_text(const token_state *s, const token_instance *d, const float *next,
                            ct_text_size *size)
{
    ct_text text = { 0 };
    int64_t n = 0;
    ct_status status;

    for (int64_t t = 0; t < s->seq_len; t++)
        if (next[t] >= 0.0f) d->token[n++] = (int32_t)next[t];
    status = ct_tokenizer_decode(s->tokenizer, d->token, n, &text);
    size->tokens += (double)n;
    size->bytes += (double)text.length;
    ct_text_destroy(&text);
    return status;
}

/* In TEST: what of row i counts. */
static ct_status count_row(const ct_layer *l, const ct_instance *in, ct_exec *ex, int64_t i)
{
    const token_state *s = l->state;
    const token_instance *d = in->state;
    float *next = d->values + (NEXT * in->batch_local + i) * s->seq_len;
    int64_t position = ex->micro_step * in->batch_global + in->batch_first + i;

    if ((ex->once.samples > 0) && (position >= ex->once.samples)) {
        for (int64_t t = 0; t < s->seq_len; t++) next[t] = (float)ex->once.label;
        return CT_OK;
    }
    if (ct_layer_is_twin(l)) return CT_OK;
    for (int64_t t = 0; t < s->seq_len; t++)
        ex->targets += (next[t] >= 0.0f) && (next[t] != (float)ex->once.label);
    return (s->tokenizer != NULL) ? count_text(s, d, next, &ex->text) : CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const token_state *s = l->state;
    const token_instance *d = in->state;
    int64_t n = in->batch_local * s->seq_len;

    for (int64_t i = 0; i < in->batch_local; i++) {
        CT_TRY(fill_row(l, in, ex, i));
        if (l->phase == CT_TEST) CT_TRY(count_row(l, in, ex, i));
    }
    for (int k = 0; k < l->n_top; k++) CT_TRY(ct_data_put(ex, in->top[k], d->values + k * n, n));
    return CT_OK;
}

static void release(const ct_layer *l, ct_instance *in)
{
    token_instance *d = in->state;

    (void)l;
    free(d->token);
    free(d->values);
}

static void destroy(ct_layer *l)
{
    token_state *s = l->state;

    ct_token_file_close(&s->file);
    ct_tokenizer_close(s->tokenizer);
}

const ct_layer_ops ct_layer_token_data = {
    .type = "TokenData",
    .params = "token_data_param",
    .is_data = true,
    .min_top = 1,
    .max_top = N_TOP,
    .on_cuda = true,
    .state_size = sizeof(token_state),
    .instance_state_size = sizeof(token_instance),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .release = release,
    .destroy = destroy,
};
