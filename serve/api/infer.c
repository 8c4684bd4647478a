/* POST /v2/models/NAME/infer: KServe's protocol, version 2, with its extension for binary data.
 * https://github.com/kserve/open-inference-protocol */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "serve/api/transaction.h"

static const char *datatype_of(const ct_served_blob *b)
{
    return b->whole ? "INT32" : "FP32";
}

/* ---- metadata */

static void add_shape(ct_json_writer *w, int n_dim, const int64_t *dim)
{
    ct_json_begin_list(w, "shape");
    for (int i = 0; i < n_dim; i++) ct_json_add_integer(w, NULL, dim[i]);
    ct_json_end(w);
}

static void add_blobs(ct_json_writer *w, const char *what, int n, const ct_served_blob *b)
{
    ct_json_begin_list(w, what);
    for (int i = 0; i < n; i++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "name", b[i].name);
        ct_json_add_text(w, "datatype", datatype_of(&b[i]));
        add_shape(w, b[i].n_dim, b[i].dim);
        ct_json_end(w);
    }
    ct_json_end(w);
}

void ct_infer_metadata(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    ct_json_writer w = ct_json_into(&x->reply.body);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "name", m->name);
    ct_json_begin_list(&w, "versions");
    ct_json_add_text(&w, NULL, "1");
    ct_json_end(&w);
    ct_json_add_text(&w, "platform", "cortado");
    add_blobs(&w, "inputs", m->n_input, m->input);
    add_blobs(&w, "outputs", m->n_output, m->output);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

/* ---- an input */

/* Where binary data are read, and how many bytes are left. */
typedef struct binary_part {
    const char *at;
    size_t left;
} binary_part;

static bool fail_input(ct_transaction *x, int status, const char *name, const char *what)
{
    ct_transaction_fail(x, status, NULL, NULL, "input %.80s: %s", name, what);
    return false;
}

static bool read_shape(ct_transaction *x, const json_t *j, const ct_served_blob *b,
                       ct_served_values *v)
{
    const json_t *shape = json_object_get(j, "shape");
    char what[160];

    if (!json_is_array(shape) || (json_array_size(shape) != (size_t)b->n_dim)) {
        snprintf(what, sizeof(what), "shape is no list of %d numbers", b->n_dim);
        return fail_input(x, 400, b->name, what);
    }
    v->n_dim = b->n_dim;
    for (int i = 0; i < b->n_dim; i++) {
        const json_t *entry = json_array_get(shape, (size_t)i);
        int64_t d = json_integer_value(entry);

        if (!json_is_integer(entry) || (d < 1)) {
            snprintf(what, sizeof(what), "shape[%d] is no number above 0", i);
            return fail_input(x, 400, b->name, what);
        }
        if ((b->dim[i] >= 0) && (d != b->dim[i])) {
            snprintf(what, sizeof(what), "shape[%d] is %" PRId64 ", expected %" PRId64, i, d,
                     b->dim[i]);
            return fail_input(x, 400, b->name, what);
        }
        if ((b->dim[i] < 0) && (d > b->most[i])) {
            snprintf(what, sizeof(what), "shape[%d] is %" PRId64 ", at most %" PRId64 " is planned",
                     i, d, b->most[i]);
            return fail_input(x, 422, b->name, what);
        }
        v->dim[i] = d;
    }
    return true;
}

/* Those of a shape that was read: each dimension is at most what the model was planned for. */
static int64_t count_of(const ct_served_values *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->n_dim; i++) n *= v->dim[i];
    return n;
}

static bool check_value(ct_transaction *x, const ct_served_blob *b, double value, int64_t k)
{
    double most = (b->n_id > 0) ? (double)(b->n_id - 1) : 0x1p24;
    char what[160];

    if (!b->whole || ((value >= ((b->n_id > 0) ? 0 : -0x1p24)) && (value <= most))) return true;
    snprintf(what, sizeof(what), "value %" PRId64 " is %.17g, expected %g to %.17g", k, value,
             (b->n_id > 0) ? 0 : -0x1p24, most);
    return fail_input(x, 422, b->name, what);
}

/* Lists within lists, in their order; *k_p counts what is there. */
static bool read_list(ct_transaction *x, const ct_served_blob *b, const json_t *list, int depth,
                      int64_t n, float *data, int64_t *k_p)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *j = json_array_get(list, i);

        if (json_is_array(j) && (depth + 1 < b->n_dim)) {
            if (!read_list(x, b, j, depth + 1, n, data, k_p)) return false;
            continue;
        }
        if (b->whole ? !json_is_integer(j) : !json_is_number(j))
            return fail_input(x, 400, b->name,
                              b->whole ? "data has other things than whole numbers"
                                       : "data has other things than numbers");
        if (*k_p < n) {
            if (!check_value(x, b, json_number_value(j), *k_p)) return false;
            data[*k_p] = (float)json_number_value(j);
        }
        ++*k_p;
    }
    return true;
}

static bool read_data(ct_transaction *x, const ct_served_blob *b, const json_t *list, int64_t n,
                      float *data)
{
    int64_t k = 0;
    char what[160];

    if (!json_is_array(list)) return fail_input(x, 400, b->name, "data is no list of numbers");
    if (!read_list(x, b, list, 0, n, data, &k)) return false;
    if (k == n) return true;
    snprintf(what, sizeof(what), "data has %" PRId64 " values, its shape has %" PRId64, k, n);
    return fail_input(x, 400, b->name, what);
}

/* INT32, INT64 or FP32, the least byte first. */
static bool read_binary(ct_transaction *x, const ct_served_blob *b, const json_t *size, bool wide,
                        int64_t n, binary_part *part, float *data)
{
    size_t each = wide ? 8 : 4;
    char what[160];

    if (!json_is_integer(size) || (json_integer_value(size) != n * (int64_t)each)) {
        snprintf(what, sizeof(what),
                 "binary_data_size is not %" PRId64 ", the bytes that its shape has",
                 n * (int64_t)each);
        return fail_input(x, 400, b->name, what);
    }
    if (part->left < (size_t)n * each)
        return fail_input(x, 400, b->name, "the body has fewer bytes than binary_data_size says");
    for (int64_t k = 0; k < n; k++, part->at += each) {
        int32_t narrow;
        int64_t w;

        if (!b->whole) {
            memcpy(&data[k], part->at, 4);
            continue;
        }
        memcpy(wide ? (void *)&w : (void *)&narrow, part->at, each);
        if (!check_value(x, b, wide ? (double)w : (double)narrow, k)) return false;
        data[k] = wide ? (float)w : (float)narrow;
    }
    part->left -= (size_t)n * each;
    return true;
}

static bool read_datatype(ct_transaction *x, const json_t *j, const ct_served_blob *b, bool *wide_p)
{
    const char *datatype = json_string_value(json_object_get(j, "datatype"));
    char what[160];

    *wide_p = b->whole && (datatype != NULL) && (strcmp(datatype, "INT64") == 0);
    if (*wide_p || ((datatype != NULL) && (strcmp(datatype, datatype_of(b)) == 0))) return true;
    snprintf(what, sizeof(what), "datatype is %.40s, expected %s",
             (datatype != NULL) ? datatype : "missing", b->whole ? "INT32 or INT64" : "FP32");
    return fail_input(x, 400, b->name, what);
}

static bool read_input(ct_transaction *x, const json_t *j, const ct_served_blob *b,
                       binary_part *part, ct_served_values *v)
{
    static const char *const known[] = { "name", "shape", "datatype", "parameters", "data", NULL };
    static const char *const known_parameter[] = { "binary_data_size", NULL };
    const json_t *parameters = json_object_get(j, "parameters");
    const json_t *data = json_object_get(j, "data");
    const json_t *size = json_object_get(parameters, "binary_data_size");
    bool wide;

    if (v->data != NULL) return fail_input(x, 400, b->name, "is there twice");
    if (!ct_transaction_check_members(x, j, "inputs[].", known) ||
        !ct_transaction_check_members(x, parameters, "inputs[].parameters.", known_parameter) ||
        !read_datatype(x, j, b, &wide) || !read_shape(x, j, b, v))
        return false;
    if ((data != NULL) == (size != NULL))
        return fail_input(x, 400, b->name, "expected either data or binary_data_size");
    v->data = calloc((size_t)count_of(v), sizeof(float));
    if (v->data == NULL) return fail_input(x, 500, b->name, "no memory for it");
    return (data != NULL) ? read_data(x, b, data, count_of(v), v->data)
                          : read_binary(x, b, size, wide, count_of(v), part, v->data);
}

/* ---- all inputs */

static int find(const ct_served_blob *b, int n, const json_t *name)
{
    int k = 0;

    if (!json_is_string(name)) return -1;
    while ((k < n) && (strcmp(b[k].name, json_string_value(name)) != 0)) k++;
    return (k < n) ? k : -1;
}

static bool read_inputs(ct_transaction *x, binary_part *part)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    const json_t *list = json_object_get(x->root, "inputs");
    ct_work *w = x->set.work;

    w->input = calloc((size_t)m->n_input, sizeof(*w->input));
    w->output = calloc((size_t)m->n_output, sizeof(*w->output));
    if ((w->input == NULL) || (w->output == NULL)) {
        ct_transaction_fail(x, 500, NULL, NULL, "no memory for a request");
        return false;
    }
    if (!json_is_array(list)) {
        ct_transaction_fail(x, 400, NULL, NULL, "inputs is no list");
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *j = json_array_get(list, i), *name = json_object_get(j, "name");
        int k = find(m->input, m->n_input, name);

        if (k < 0) {
            ct_transaction_fail(x, 400, NULL, NULL, "inputs[%zu]: the model has no input %.80s", i,
                                json_is_string(name) ? json_string_value(name) : "without a name");
            return false;
        }
        if (!read_input(x, j, &m->input[k], part, &w->input[k])) return false;
    }
    for (int k = 0; k < m->n_input; k++)
        if (w->input[k].data == NULL) return fail_input(x, 400, m->input[k].name, "is missing");
    if (part->left == 0) return true;
    ct_transaction_fail(x, 400, NULL, NULL, "%zu bytes behind the inputs belong to none",
                        part->left);
    return false;
}

/* What it counts in a batch: the product of what varies in its first input. */
static int64_t tokens_of(const ct_served_model *m, const ct_work *w)
{
    int64_t n = 1;

    for (int i = 0; i < m->input[0].n_dim; i++)
        if (m->input[0].dim[i] < 0) n *= w->input[0].dim[i];
    return n;
}

/* ---- what is wanted */

static bool read_flag(ct_transaction *x, const json_t *object, const char *name, bool *flag_p)
{
    const json_t *j = json_object_get(object, name);

    if ((j != NULL) && !json_is_boolean(j)) {
        ct_transaction_fail(x, 400, name, NULL, "%s is neither true nor false", name);
        return false;
    }
    if (j != NULL) *flag_p = json_is_true(j);
    return true;
}

static bool read_output(ct_transaction *x, const json_t *j, size_t i, bool binary)
{
    static const char *const known[] = { "name", "parameters", NULL };
    static const char *const known_parameter[] = { "binary_data", NULL };
    const ct_served_model *m = ct_transaction_options(x)->model;
    const json_t *name = json_object_get(j, "name"), *parameters = json_object_get(j, "parameters");
    int k = find(m->output, m->n_output, name);

    if (k < 0) {
        ct_transaction_fail(x, 400, NULL, NULL, "outputs[%zu]: the model has no output %.80s", i,
                            json_is_string(name) ? json_string_value(name) : "without a name");
        return false;
    }
    for (int w = 0; w < x->n_wanted; w++)
        if (x->wanted[w].of == k) {
            ct_transaction_fail(x, 400, NULL, NULL, "output %.80s is there twice",
                                m->output[k].name);
            return false;
        }
    if (!ct_transaction_check_members(x, j, "outputs[].", known) ||
        !ct_transaction_check_members(x, parameters, "outputs[].parameters.", known_parameter) ||
        !read_flag(x, parameters, "binary_data", &binary))
        return false;
    x->wanted[x->n_wanted++] = (ct_wanted_output){ k, binary };
    return true;
}

static bool read_outputs(ct_transaction *x)
{
    static const char *const known[] = { "binary_data_output", NULL };
    const ct_served_model *m = ct_transaction_options(x)->model;
    const json_t *list = json_object_get(x->root, "outputs");
    const json_t *parameters = json_object_get(x->root, "parameters");
    bool binary = false;

    x->wanted = calloc((size_t)m->n_output, sizeof(*x->wanted));
    if (x->wanted == NULL) {
        ct_transaction_fail(x, 500, NULL, NULL, "no memory for a request");
        return false;
    }
    if (!ct_transaction_check_members(x, parameters, "parameters.", known) ||
        !read_flag(x, parameters, "binary_data_output", &binary))
        return false;
    if ((list != NULL) && !json_is_array(list)) {
        ct_transaction_fail(x, 400, NULL, NULL, "outputs is no list");
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_output(x, json_array_get(list, i), i, binary)) return false;
    for (int k = 0; (json_array_size(list) == 0) && (k < m->n_output); k++)
        x->wanted[x->n_wanted++] = (ct_wanted_output){ k, binary };
    return true;
}

/* ---- the reply */

static void add_values(ct_json_writer *w, const ct_served_values *v)
{
    int64_t n = count_of(v);

    ct_json_begin_list(w, "data");
    for (int64_t k = 0; k < n; k++) ct_json_add_number(w, NULL, (double)v->data[k]);
    ct_json_end(w);
}

static void add_output(ct_json_writer *w, const char *name, const ct_served_values *v, bool binary)
{
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "name", name);
    ct_json_add_text(w, "datatype", "FP32");
    add_shape(w, v->n_dim, v->dim);
    if (binary) {
        ct_json_begin_object(w, "parameters");
        ct_json_add_integer(w, "binary_data_size", 4 * count_of(v));
        ct_json_end(w);
    } else {
        add_values(w, v);
    }
    ct_json_end(w);
}

static void answer(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    const ct_served_values *out = x->set.work->output;
    ct_text *to = &x->reply.body;
    ct_json_writer w = ct_json_into(to);
    bool binary = false;

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "model_name", m->name);
    ct_json_add_text(&w, "model_version", "1");
    if (x->id != NULL) ct_json_add_text(&w, "id", x->id);
    ct_json_begin_list(&w, "outputs");
    for (int k = 0; k < x->n_wanted; k++) {
        const ct_wanted_output *o = &x->wanted[k];

        add_output(&w, m->output[o->of].name, &out[o->of], o->binary);
        binary = binary || o->binary;
    }
    ct_json_end(&w);
    ct_json_end(&w);
    if (binary) x->reply.json_length = (int64_t)to->length;
    for (int k = 0; k < x->n_wanted; k++)
        if (x->wanted[k].binary)
            ct_text_add_bytes(to, (const char *)out[x->wanted[k].of].data,
                              4 * (size_t)count_of(&out[x->wanted[k].of]));
    ct_transaction_give_json(x);
    if (binary && (x->reply.status == 200)) x->reply.type = "application/octet-stream";
}

/* How much of the body is JSON: all, unless the header says less. */
static bool split_body(ct_transaction *x, binary_part *part)
{
    const char *text = x->request.json_length;
    size_t n = x->request.size, length = 0;

    *part = (binary_part){ x->request.body, 0 };
    if (text == NULL) return true;
    for (const char *c = text; *c != '\0'; c++) {
        if ((*c < '0') || (*c > '9') || (length > n)) break;
        length = 10 * length + (size_t)(*c - '0');
    }
    if ((text[0] == '\0') || (strspn(text, "0123456789") != strlen(text)) || (length > n)) {
        ct_transaction_fail(
            x, 400, NULL, NULL,
            "Inference-Header-Content-Length is %.40s, expected 0 to %zu, the bytes of "
            "the body",
            text, n);
        return false;
    }
    *part = (binary_part){ x->request.body + length, n - length };
    return true;
}

/* False, and the reply: it is no text. */
static bool read_id(ct_transaction *x)
{
    const json_t *id = json_object_get(x->root, "id");

    if (id == NULL) return true;
    if (!json_is_string(id)) {
        ct_transaction_fail(x, 400, NULL, NULL, "id is no text");
        return false;
    }
    x->id = strdup(json_string_value(id));
    if (x->id != NULL) return true;
    ct_transaction_fail(x, 500, NULL, NULL, "no memory for a request");
    return false;
}

void ct_infer_read(ct_transaction *x)
{
    static const char *const known[] = { "id", "inputs", "outputs", "parameters", NULL };
    const ct_served_model *m = ct_transaction_options(x)->model;
    binary_part part;

    if (m->n_input == 0) {
        ct_transaction_fail(x, 404, NULL, NULL, "the model %.80s takes no blobs", m->name);
        return;
    }
    if (!split_body(x, &part) ||
        !ct_transaction_read_json(x, x->request.body, x->request.size - part.left) ||
        !ct_transaction_check_members(x, x->root, "", known) || !read_id(x))
        return;
    if (!ct_transaction_make_works(x, 1)) return;
    x->set.work->kind = CT_WORK_INFER;
    if (!read_outputs(x) || !read_inputs(x, &part)) return;
    x->set.work->tokens = tokens_of(m, x->set.work);
    if (m->input[0].dim[0] < 0) x->set.work->samples = x->set.work->input[0].dim[0];
    x->answer = answer;
}
