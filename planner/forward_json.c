#include "framework/base/file.h"
#include "planner/forward_pass.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"

enum { MOST_STEPS = 1 << 20, MOST_RANKS = 1 << 20 };
#define MOST_BYTES (INT64_C(1) << 40)

static const char *const kind_name[] = { "compute", "begin", "wait" };
static const char *const transfer_name[] = { "sum", "gather", "scatter" };
enum { N_KIND = 3, N_TRANSFER = 3 };

void ct_forward_pass_json(const char *net, const ct_forward_pass *f, ct_json_writer *w)
{
    ct_json_add_integer(w, "forward_pass", 1);
    ct_json_add_text(w, "net", net);
    ct_json_add_integer(w, "ranks", f->n_rank);
    ct_json_begin_list(w, "steps");
    for (int i = 0; i < f->n_step; i++) {
        const ct_forward_step *s = &f->step[i];

        ct_json_break(w);
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "step", kind_name[s->kind]);
        ct_json_add_text(w, "layer", s->layer);
        if (s->kind == CT_FORWARD_COMPUTE) {
            ct_json_add_number(w, "ms", 1e3 * s->seconds);
        } else {
            ct_json_add_integer(w, "pair", s->pair);
        }
        if (s->kind == CT_FORWARD_BEGIN) {
            ct_json_add_text(w, "transfer", transfer_name[s->transfer]);
            ct_json_add_integer(w, "bytes", s->bytes);
        }
        ct_json_end(w);
    }
    ct_json_end(w);
}

/* ---- reading */

typedef struct reader {
    const char *path;
    ct_forward_pass *f;
    char *state; /* [n_state] of each pair: 0: new, 1: under way, 2: over */
    int n_state;
} reader;

static ct_status fail(const reader *r, int step, const char *member, const char *what)
{
    if (step < 0) return CT_FAIL(CT_ERR_DATA, "%s: %s: expected %s", r->path, member, what);
    return CT_FAIL(CT_ERR_DATA, "%s: steps[%d].%s: expected %s", r->path, step, member, what);
}

static bool find_word(const json_t *j, const char *const *name, int n, int *k_p)
{
    const char *word = json_string_value(j);

    for (int k = 0; (word != NULL) && (k < n); k++) {
        if (strcmp(word, name[k]) != 0) continue;
        *k_p = k;
        return true;
    }
    return false;
}

static bool is_count(const json_t *j, int64_t least, int64_t most)
{
    return json_is_integer(j) && (json_integer_value(j) >= least) &&
           (json_integer_value(j) <= most);
}

static ct_status read_pair(const reader *r, const json_t *j, int i, ct_forward_step *s)
{
    const json_t *pair = json_object_get(j, "pair");
    char expected = (s->kind == CT_FORWARD_BEGIN) ? 0 : 1;

    if (!is_count(pair, 0, r->n_state - 1))
        return fail(r, i, "pair", "a whole number below that of steps");
    s->pair = (int)json_integer_value(pair);
    if (s->pair >= r->f->n_pair) r->f->n_pair = s->pair + 1;
    if (r->state[s->pair] != expected)
        return fail(r, i, "pair",
                    (expected == 0) ? "one that has not begun before"
                                    : "one that has begun, and was not waited for");
    r->state[s->pair]++;
    return CT_OK;
}

static ct_status read_transfer(const reader *r, const json_t *j, int i, ct_forward_step *s)
{
    const json_t *bytes = json_object_get(j, "bytes");
    int k = 0;

    if (!find_word(json_object_get(j, "transfer"), transfer_name, N_TRANSFER, &k))
        return fail(r, i, "transfer", "sum, gather or scatter");
    s->transfer = (ct_transfer_kind)k;
    if (!is_count(bytes, 0, MOST_BYTES)) return fail(r, i, "bytes", "a whole number, 0 to 2^40");
    s->bytes = json_integer_value(bytes);
    return CT_OK;
}

static ct_status read_step(const reader *r, const json_t *j, int i)
{
    ct_forward_step *s = &r->f->step[i];
    const char *layer = json_string_value(json_object_get(j, "layer"));
    const json_t *ms = json_object_get(j, "ms");
    int k = 0;

    if (layer == NULL) return fail(r, i, "layer", "a text");
    s->layer = strdup(layer);
    if (s->layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", r->path);
    if (!find_word(json_object_get(j, "step"), kind_name, N_KIND, &k))
        return fail(r, i, "step", "compute, begin or wait");
    s->kind = (ct_forward_kind)k;
    if (s->kind != CT_FORWARD_COMPUTE) {
        CT_TRY(read_pair(r, j, i, s));
        return (s->kind == CT_FORWARD_BEGIN) ? read_transfer(r, j, i, s) : CT_OK;
    }
    if (!json_is_number(ms) || !isfinite(json_number_value(ms)) || (json_number_value(ms) < 0))
        return fail(r, i, "ms", "a number, 0 or more");
    s->seconds = 1e-3 * json_number_value(ms);
    return CT_OK;
}

static ct_status read_all(reader *r, const json_t *root)
{
    const json_t *ranks = json_object_get(root, "ranks"), *steps = json_object_get(root, "steps");
    size_t n = json_array_size(steps);

    if (!is_count(json_object_get(root, "forward_pass"), 1, 1))
        return CT_FAIL(CT_ERR_DATA,
                       "%s is no forward pass: it lacks \"forward_pass\": 1, which cortado check, "
                       "or time, --parallel --phase=TEST --json writes",
                       r->path);
    if (!is_count(ranks, 1, MOST_RANKS))
        return fail(r, -1, "ranks", "a whole number from 1 to 2^20");
    if ((n == 0) || (n > MOST_STEPS)) return fail(r, -1, "steps", "a list of 1 to 2^20 steps");
    r->f->n_rank = (int)json_integer_value(ranks);
    r->f->step = calloc(n, sizeof(*r->f->step));
    r->state = calloc(n, 1);
    r->n_state = (int)n;
    if ((r->f->step == NULL) || (r->state == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", r->path);
    r->f->n_step = (int)n;
    for (int i = 0; i < r->f->n_step; i++)
        CT_TRY(read_step(r, json_array_get(steps, (size_t)i), i));
    for (int k = 0; k < r->n_state; k++)
        if (r->state[k] == 1)
            return CT_FAIL(CT_ERR_DATA, "%s: steps: pair %d begins, and nothing waits for it",
                           r->path, k);
    return CT_OK;
}

ct_status ct_forward_pass_parse(const char *path, const char *text, size_t size, ct_forward_pass *f)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error), *inner;
    reader r = { .path = path, .f = f };
    ct_status status;

    *f = (ct_forward_pass){ 0 };
    if (root == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    inner = json_object_get(root, "pass");
    status = read_all(&r, (inner != NULL) ? inner : root);
    json_decref(root);
    free(r.state);
    if (status != CT_OK) ct_forward_pass_destroy(f);
    return status;
}

ct_status ct_forward_pass_read(const char *path, ct_forward_pass *f)
{
    char *text = NULL;
    size_t size = 0;
    ct_status status;

    CT_TRY(ct_settings_read(path, &text, &size));
    status = ct_forward_pass_parse(path, text, size, f);
    free(text);
    return status;
}
