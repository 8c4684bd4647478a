/* TextData: a text as numbers of words, in columns of contiguous streams. Tops, each steps x
 * columns: the words; cont, 0 where a column starts anew, else 1; the words that follow them.
 *
 * A text of W words gives each of the G columns of the global batch L = (W - 1) / G words: column g
 * has those from g L on. Global step s takes the `steps` words of every column from place
 * (s mod E) * steps on, E = L / steps being the steps of an epoch: a function of s, whatever ran
 * before. A rank reads its own columns into memory, and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "framework/data/words.h"
#include "layers/types/data_common.h"
#include "layers/types/layer_types.h"

typedef struct text_state {
    char who[256];
    ct_words words;
    bool synthetic;
    int64_t vocabulary; /* of made-up words */
    int64_t batch_size, steps;
} text_state;

typedef struct text_instance {
    int64_t columns, first; /* of this rank, of the global batch */
    int64_t length;         /* L: words of a column              */
    int32_t *word;          /* columns x length, and one more; NULL: made up */
    float *values;          /* steps x columns, one top          */
} text_instance;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TextDataParameter *p = l->param->text_data_param;
    text_state *s = l->state;
    bool absent;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "text_data_param is missing");
    snprintf(s->who, sizeof(s->who), "%s%slayer \"%s\" (TextData)", l->where,
             (l->where[0] != '\0') ? ": " : "", l->name);
    s->batch_size = p->batch_size;
    s->steps = p->steps;
    s->vocabulary = p->synthetic_words;
    absent = (p->source == NULL) || (access(p->source, F_OK) != 0);
    s->synthetic = absent && l->env->synthetic;
    if (s->synthetic && (l->env->synthetic_batch > 0)) s->batch_size = l->env->synthetic_batch;
    if ((s->batch_size < 1) || (s->batch_size > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "batch_size, the columns, is %lld, must be at least 1",
                             (long long)s->batch_size);
    if (s->steps < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "steps is 0; it counts the words of a column in a "
                             "batch");
    if (s->vocabulary < 1) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "synthetic_words is 0");
    if (s->synthetic) return CT_OK;
    if (p->source == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "source is not set");
    return ct_words_open(p->source, s->who, &s->words);
}

/* This rank's columns, with the word behind the last, which is what its end is followed by. */
static ct_status read_columns(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    int64_t n = d->columns * d->length + 1;

    free(d->word);
    d->word = malloc((size_t)n * sizeof(*d->word));
    if (d->word == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for %lld words", (long long)n);
    return ct_words_read(&s->words, s->who, d->first * d->length, n, d->word);
}

static ct_status deal(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    int64_t global = s->batch_size * l->env->n_rank;
    ct_share share;

    if ((l->phase == CT_TRAIN) && (l->env->global_batch_size > 0))
        global = l->env->global_batch_size;
    CT_TRY(ct_share_of(global, l->env->rank, l->env->n_rank, &share));
    in->batch_local = d->columns = share.local;
    in->batch_global = share.global;
    in->batch_first = d->first = share.first;
    in->batch_axis = 1;
    if (s->synthetic) return CT_OK;
    d->length = (s->words.count - 1) / share.global;
    if (d->length < s->steps)
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG, "%s has %lld words: too few for %lld columns of %lld steps",
            s->words.path, (long long)s->words.count, (long long)share.global, (long long)s->steps);
    in->n_sample = d->length / s->steps * share.global;
    return l->env->no_data ? CT_OK : read_columns(l, in);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const text_state *s = l->state;
    text_instance *d = in->state;
    ct_shape shape = { 2, { s->steps, 0 } };

    CT_TRY(deal(l, in));
    shape.dim[1] = d->columns;
    CT_TRY(ct_data_check_size(l, &shape));
    for (int i = 0; i < l->n_top; i++) ct_blob_set_shape(in->top[i], &shape);
    if (l->n_top > 1) in->top[1]->restarts_first = true;
    free(d->values);
    d->values = malloc((size_t)(s->steps * d->columns) * sizeof(*d->values));
    if (d->values == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for a batch");
    return CT_OK;
}

/* Word `place` of this rank's column c, or of what follows the column. */
static float word_at(const text_state *s, const text_instance *d, const ct_exec *ex, int64_t c,
                     int64_t place)
{
    uint64_t key;

    if (d->word != NULL) return (float)d->word[c * d->length + place];
    key = ct_rng_key(ex->seed, (uint64_t)(d->first + c), (uint64_t)place);
    return (float)(key % (uint64_t)s->vocabulary);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const text_state *s = l->state;
    const text_instance *d = in->state;
    int64_t epoch = d->word != NULL ? d->length / s->steps : INT64_MAX, n = s->steps * d->columns;
    int64_t from = ex->micro_step % epoch * s->steps;

    for (int i = 0; i < l->n_top; i++) {
        for (int64_t k = 0; k < n; k++) {
            int64_t t = k / d->columns, c = k % d->columns;

            if (i == 1)
                d->values[k] = (from + t == 0) ? 0.0f : 1.0f;
            else
                d->values[k] = word_at(s, d, ex, c, from + t + ((i == 2) ? 1 : 0));
        }
        CT_TRY(ct_data_put(ex, in->top[i], d->values, n));
    }
    return CT_OK;
}

static void release(const ct_layer *l, ct_instance *in)
{
    text_instance *d = in->state;

    (void)l;
    free(d->word);
    free(d->values);
}

static void destroy(ct_layer *l)
{
    text_state *s = l->state;

    ct_words_close(&s->words);
}

const ct_layer_ops ct_layer_text_data = {
    .type = "TextData",
    .min_top = 1,
    .max_top = 3,
    .is_data = true,
    .state_size = sizeof(text_state),
    .instance_state_size = sizeof(text_instance),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .release = release,
    .destroy = destroy,
    .on_cuda = true,
};
