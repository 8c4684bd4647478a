#include "planner/solver_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"

/* ---- members and their errors */

typedef struct place { /* as "blocks[3].kept" */
    char text[64];
} place;

static place inside(const place *p, size_t i)
{
    place out;

    snprintf(out.text, sizeof(out.text), "%.40s[%zu]", p->text, i);
    return out;
}

static place member(const place *p, const char *name)
{
    place out;

    snprintf(out.text, sizeof(out.text), "%.40s.%.20s", p->text, name);
    return out;
}

static place named(const char *name)
{
    place out;

    snprintf(out.text, sizeof(out.text), "%.40s", name);
    return out;
}

/* What stands there. */
static void describe(const json_t *j, char *out, size_t size)
{
    char *text;

    if (j == NULL) {
        snprintf(out, size, "nothing");
    } else if (json_is_array(j)) {
        snprintf(out, size, "a list of %zu", json_array_size(j));
    } else if (json_is_object(j)) {
        snprintf(out, size, "an object");
    } else {
        text = json_dumps(j, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        snprintf(out, size, "%.40s", (text != NULL) ? text : "something else");
        free(text);
    }
}

static ct_status fail(const char *path, const place *p, const char *expected, const json_t *j)
{
    char found[64];

    describe(j, found, sizeof(found));
    return CT_FAIL(CT_ERR_CONFIG, "%s: %s: expected %s, found %s", path, p->text, expected, found);
}

static ct_status read_whole(const char *path, const json_t *j, const place *p, int64_t least,
                            int64_t most, int64_t *value_p)
{
    char expected[80];

    if (json_is_integer(j) && (json_integer_value(j) >= least) && (json_integer_value(j) <= most)) {
        *value_p = json_integer_value(j);
        return CT_OK;
    }
    if (most == INT64_MAX)
        snprintf(expected, sizeof(expected), "a whole number of at least %" PRId64, least);
    else
        snprintf(expected, sizeof(expected), "a whole number from %" PRId64 " to %" PRId64, least,
                 most);
    return fail(path, p, expected, j);
}

static ct_status check_list(const char *path, const json_t *j, const place *p, size_t n,
                            const char *of)
{
    char expected[80];

    if (json_is_array(j) && (json_array_size(j) == n)) return CT_OK;
    snprintf(expected, sizeof(expected), "a list of %zu %s", n, of);
    return fail(path, p, expected, j);
}

/* n entries, of which the first n_read are read. */
static ct_status read_times(const char *path, const json_t *list, const place *p, size_t n,
                            size_t n_read, double *out)
{
    CT_TRY(check_list(path, list, p, n, "times"));
    for (size_t i = 0; i < n_read; i++) {
        const json_t *j = json_array_get(list, i);
        double v = json_number_value(j);
        place at;

        if (json_is_number(j) && (v >= 0) && (v <= CT_CHAIN_MOST_S)) {
            out[i] = v;
            continue;
        }
        at = inside(p, i);
        return fail(path, &at, "a time in seconds from 0 to 1e200", j);
    }
    return CT_OK;
}

static ct_status read_sizes(const char *path, const json_t *list, const place *p, size_t n,
                            int64_t *out)
{
    CT_TRY(check_list(path, list, p, n, "sizes in slots"));
    for (size_t i = 0; i < n; i++) {
        place at = inside(p, i);

        CT_TRY(read_whole(path, json_array_get(list, i), &at, 0, INT64_MAX, &out[i]));
    }
    return CT_OK;
}

static ct_status count_list(const char *path, const json_t *j, const place *p, size_t most,
                            const char *of, int *n_p)
{
    char expected[80];

    if (json_is_array(j) && (json_array_size(j) >= 1) && (json_array_size(j) <= most)) {
        *n_p = (int)json_array_size(j);
        return CT_OK;
    }
    snprintf(expected, sizeof(expected), "a list of 1 to %zu %s", most, of);
    return fail(path, p, expected, j);
}

static ct_status load(const char *path, const char *text, size_t size, json_t **root_p)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);

    if (root == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "%s:%d:%d: not JSON: %s", path, error.line, error.column,
                       error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return CT_FAIL(CT_ERR_CONFIG, "%s: expected an object", path);
    }
    *root_p = root;
    return CT_OK;
}

/* ---- chains */

static ct_status read_block(const char *path, const json_t *block, const place *p, size_t n,
                            double *const times[2], int64_t *const sizes[3])
{
    static const char *const time_name[] = { "time_s", "again_s" };
    static const char *const size_name[] = { "weight", "kept", "input" };

    if (!json_is_object(block)) return fail(path, p, "an object", block);
    for (int i = 0; i < 2; i++) {
        place at = member(p, time_name[i]);

        CT_TRY(read_times(path, json_object_get(block, time_name[i]), &at, n, n, times[i]));
    }
    for (int i = 0; i < 3; i++) {
        place at = member(p, size_name[i]);

        CT_TRY(read_sizes(path, json_object_get(block, size_name[i]), &at, n, sizes[i]));
    }
    return CT_OK;
}

/* Into [block][from][to]; the first block's are left alone. */
static ct_status read_reshard(const char *path, const json_t *all, size_t n_block, size_t n,
                              double *out)
{
    place top = named("reshard_s");

    CT_TRY(check_list(path, all, &top, n_block, "blocks"));
    for (size_t l = 1; l < n_block; l++) {
        const json_t *block = json_array_get(all, l);
        place at = inside(&top, l);

        CT_TRY(check_list(path, block, &at, n, "strategies"));
        for (size_t a = 0; a < n; a++) {
            place row = inside(&at, a);

            CT_TRY(read_times(path, json_array_get(block, a), &row, n, n, out + (l * n + a) * n));
        }
    }
    return CT_OK;
}

static ct_status read_chain(const char *path, const json_t *root, ct_chain_file *f)
{
    ct_chain *c = &f->chain;
    const json_t *blocks = json_object_get(root, "blocks");
    place at = named("strategies"), list = named("blocks");
    int64_t strategies = 0;
    size_t n, all;

    CT_TRY(read_whole(path, json_object_get(root, at.text), &at, 1, CT_CHAIN_MOST_STRATEGIES,
                      &strategies));
    at = named("limit");
    CT_TRY(read_whole(path, json_object_get(root, at.text), &at, 0, INT64_MAX, &c->limit));
    at = named("in_flight");
    CT_TRY(read_whole(path, json_object_get(root, at.text), &at, 1, INT64_MAX, &c->in_flight));
    CT_TRY(count_list(path, blocks, &list, CT_CHAIN_MOST_BLOCKS, "blocks", &c->n_block));
    c->name = path;
    c->n_strategy = (int)strategies;
    n = (size_t)strategies;
    all = (size_t)c->n_block * n;
    f->times = calloc(all * (2 + n), sizeof(f->times[0]));
    f->sizes = calloc(all * 3, sizeof(f->sizes[0]));
    if ((f->times == NULL) || (f->sizes == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %d blocks", path, c->n_block);
    for (size_t l = 0; l < (size_t)c->n_block; l++) {
        double *const times[] = { f->times + l * n, f->times + all + l * n };
        int64_t *const sizes[] = { f->sizes + l * n, f->sizes + all + l * n,
                                   f->sizes + 2 * all + l * n };

        at = inside(&list, l);
        CT_TRY(read_block(path, json_array_get(blocks, l), &at, n, times, sizes));
    }
    c->time_s = f->times;
    c->again_s = f->times + all;
    c->reshard_s = f->times + 2 * all;
    c->weight = f->sizes;
    c->kept = f->sizes + all;
    c->input = f->sizes + 2 * all;
    return read_reshard(path, json_object_get(root, "reshard_s"), (size_t)c->n_block, n,
                        f->times + 2 * all);
}

ct_status ct_chain_parse(const char *path, const char *text, size_t size, ct_chain_file *out)
{
    ct_chain_file f = { .times = NULL };
    json_t *root = NULL;
    ct_status status;

    CT_TRY(load(path, text, size, &root));
    status = read_chain(path, root, &f);
    json_decref(root);
    if (status == CT_OK)
        *out = f;
    else
        ct_chain_release(&f);
    return status;
}

void ct_chain_release(ct_chain_file *f)
{
    free(f->times);
    free(f->sizes);
    *f = (ct_chain_file){ .times = NULL };
}

const char *ct_chain_mode_str(ct_chain_mode mode)
{
    return (mode == CT_CHAIN_KEEP) ? "keep" : (mode == CT_CHAIN_START) ? "start" : "continue";
}

static void add_whole(const char *name, const int *v, int n, ct_json_writer *w)
{
    ct_json_begin_list(w, name);
    for (int i = 0; i < n; i++) ct_json_add_integer(w, NULL, v[i]);
    ct_json_end(w);
}

void ct_chain_answer(const ct_chain *c, double step_s, const int *strategy,
                     const ct_chain_mode *mode, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    int n = isfinite(step_s) ? c->n_block : 0;

    ct_json_begin_object(&w, NULL);
    ct_json_add_digits(&w, "step_s", step_s, 17);
    add_whole("strategy", strategy, n, &w);
    ct_json_begin_list(&w, "mode");
    for (int l = 0; l < n; l++) ct_json_add_text(&w, NULL, ct_chain_mode_str(mode[l]));
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}

/* ---- pipelines */

static ct_status read_rows(const char *path, const json_t *root, const char *name, int n_row,
                           int n_layer, int n_read, double *out)
{
    const json_t *list = json_object_get(root, name);
    place at = named(name);

    CT_TRY(check_list(path, list, &at, (size_t)n_row,
                      (strcmp(name, "cut_s") == 0) ? "cuts, one fewer than stages" : "stages"));
    for (size_t s = 0; s < (size_t)n_row; s++) {
        place row = inside(&at, s);

        CT_TRY(read_times(path, json_array_get(list, s), &row, (size_t)n_layer, (size_t)n_read,
                          out + s * (size_t)n_layer));
    }
    return CT_OK;
}

static ct_status read_partition(const char *path, const json_t *root, ct_partition_file *f)
{
    ct_partition *p = &f->partition;
    const json_t *time_s = json_object_get(root, "time_s");
    place at = named("micro_batches"), list = named("time_s");
    size_t all;

    CT_TRY(read_whole(path, json_object_get(root, at.text), &at, 1, INT32_MAX, &p->micro_batches));
    CT_TRY(count_list(path, time_s, &list, CT_PARTITION_MOST_STAGES, "stages", &p->n_stage));
    at = inside(&list, 0);
    CT_TRY(count_list(path, json_array_get(time_s, 0), &at, CT_PARTITION_MOST_LAYERS, "times",
                      &p->n_layer));
    all = (size_t)p->n_stage * (size_t)p->n_layer;
    f->times = calloc(3 * all, sizeof(f->times[0]));
    if (f->times == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %d layers", path, p->n_layer);
    p->time_s = f->times;
    p->cut_s = f->times + all;
    p->data_s = f->times + 2 * all;
    CT_TRY(read_rows(path, root, "time_s", p->n_stage, p->n_layer, p->n_layer, f->times));
    CT_TRY(
        read_rows(path, root, "cut_s", p->n_stage - 1, p->n_layer, p->n_layer - 1, f->times + all));
    return read_rows(path, root, "data_s", p->n_stage, p->n_layer, p->n_layer, f->times + 2 * all);
}

ct_status ct_partition_parse(const char *path, const char *text, size_t size,
                             ct_partition_file *out)
{
    ct_partition_file f = { .times = NULL };
    json_t *root = NULL;
    ct_status status;

    CT_TRY(load(path, text, size, &root));
    status = read_partition(path, root, &f);
    json_decref(root);
    if (status == CT_OK)
        *out = f;
    else
        ct_partition_release(&f);
    return status;
}

void ct_partition_release(ct_partition_file *f)
{
    free(f->times);
    *f = (ct_partition_file){ .times = NULL };
}

void ct_partition_answer(const ct_partition *p, double step_s, const int *layers, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);

    ct_json_begin_object(&w, NULL);
    ct_json_add_digits(&w, "step_s", step_s, 17);
    add_whole("layers", layers, isfinite(step_s) ? p->n_stage : 0, &w);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}
