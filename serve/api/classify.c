/* POST /classify: the most probable classes of pictures, which are files in a form, or the body. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/base/json_writer.h"
#include "framework/text/unicode.h"
#include "serve/api/multipart.h"
#include "serve/api/transaction.h"

enum { TOP = 5, MOST_TOP = 1000000 };

/* A file, among the bytes of all. */
typedef struct file {
    char name[CT_MULTIPART_NAME]; /* "": it is the body */
    size_t at, size;
} file;

struct ct_classify {
    int64_t top;
    char *bytes;
    size_t size;
    file *file;
    int n, room;
};

void ct_classify_destroy(ct_classify *c)
{
    if (c == NULL) return;
    free(c->bytes);
    free(c->file);
    free(c);
}

size_t ct_classify_bytes(const ct_classify *c)
{
    return c->size;
}

/* ---- the request */

static bool fail(ct_transaction *x, int status, const char *code, const char *what)
{
    ct_transaction_fail(x, status, NULL, code, "%s", what);
    return false;
}

static bool read_top(ct_transaction *x, ct_classify *c)
{
    c->top = TOP;
    for (int i = 0; i < x->request.n_argument; i++) {
        const ct_http_argument *a = &x->request.argument[i];
        const char *text = (a->value != NULL) ? a->value : "";
        size_t n = strspn(text, "0123456789");
        long long v = ((n > 0) && (n < 10) && (text[n] == '\0')) ? strtoll(text, NULL, 10) : 0;

        if (strcmp(a->name, "top_k") != 0) {
            ct_transaction_fail(x, 400, NULL, "unknown_field",
                                "?%.40s is nothing that /classify knows: top_k is", a->name);
            return false;
        }
        if ((v < 1) || (v > MOST_TOP)) {
            ct_transaction_fail(x, 400, "top_k", "wrong_value", "top_k is %.40s, expected 1 to %d",
                                text, MOST_TOP);
            return false;
        }
        c->top = v;
    }
    return true;
}

/* Names go into JSON. */
static void take_name(const char *from, char *to)
{
    const uint8_t *p = (const uint8_t *)from, *end = p + strlen(from);
    int n;

    snprintf(to, CT_MULTIPART_NAME, "%s", from);
    for (; p < end; p += n) {
        if (ct_utf8_read(p, end, &n) == CT_NO_CHARACTER) to[p - (const uint8_t *)from] = '?';
    }
}

static bool add_file(ct_transaction *x, ct_classify *c, const ct_multipart_part *part)
{
    int most = ct_transaction_options(x)->most_inputs;

    if (c->n == most) {
        ct_transaction_fail(x, 422, NULL, "too_many", "more than %d files in a request", most);
        return false;
    }
    if (c->n == c->room) {
        int room = 2 * c->room + 4;
        file *grown = realloc(c->file, (size_t)room * sizeof(*grown));

        if (grown == NULL) return fail(x, 500, "no_memory", "no memory for the files");
        c->file = grown;
        c->room = room;
    }
    c->file[c->n] = (file){ .at = c->size, .size = part->size };
    take_name(part->file, c->file[c->n++].name);
    memcpy(c->bytes + c->size, part->data, part->size);
    c->size += part->size;
    return true;
}

static bool read_form(ct_transaction *x, ct_classify *c)
{
    ct_multipart m;
    ct_multipart_part part;
    const char *wrong = ct_multipart_begin(&m, x->request.type, x->request.body, x->request.size);

    while (wrong == NULL) {
        wrong = ct_multipart_next(&m, &part);
        if ((wrong != NULL) || m.over) break;
        if (!part.is_file)
            return fail(x, 400, "bad_form", "a part of the form is no file: it has no filename");
        if (!add_file(x, c, &part)) return false;
    }
    if (wrong != NULL) return fail(x, 400, "bad_form", wrong);
    return (c->n > 0) || fail(x, 400, "bad_form", "the form has no file");
}

/* Whether the Content-Type is that, whatever its parameters are. */
static bool is_type(const char *type, const char *wanted)
{
    size_t n = strlen(wanted);

    return (strncasecmp(type, wanted, n) == 0) &&
           ((type[n] == '\0') || (type[n] == ';') || (type[n] == ' '));
}

static bool read_body(ct_transaction *x, ct_classify *c)
{
    const char *type = (x->request.type != NULL) ? x->request.type : "";
    const ct_multipart_part whole = { .data = x->request.body, .size = x->request.size };

    c->bytes = malloc(x->request.size + 1);
    if (c->bytes == NULL) return fail(x, 500, "no_memory", "no memory for the files");
    if (is_type(type, "multipart/form-data")) return read_form(x, c);
    if (is_type(type, "image/jpeg") || is_type(type, "image/png")) {
        if (x->request.size == 0) return fail(x, 400, "bad_picture", "the body is empty");
        return add_file(x, c, &whole);
    }
    ct_transaction_fail(x, 415, NULL, "unsupported_type",
                        "Content-Type is %.80s, expected multipart/form-data, image/jpeg or "
                        "image/png",
                        (type[0] != '\0') ? type : "missing");
    return false;
}

/* One row of the model's input. */
static bool make_row(const ct_served_model *m, ct_work *w)
{
    const ct_served_blob *b = &m->input[0];
    size_t n = 1;

    w->kind = CT_WORK_INFER;
    w->tokens = 1;
    w->input = calloc(1, sizeof(*w->input));
    w->output = calloc((size_t)m->n_output, sizeof(*w->output));
    if ((w->input == NULL) || (w->output == NULL)) return false;
    w->input->n_dim = b->n_dim;
    w->input->dim[0] = 1;
    for (int i = 1; i < b->n_dim; i++) {
        w->input->dim[i] = b->dim[i];
        n *= (size_t)b->dim[i];
    }
    w->input->data = malloc(n * sizeof(float));
    return w->input->data != NULL;
}

/* From a decoder's thread. */
static bool prepare(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    const ct_classify *c = x->classify;

    for (int i = 0; i < c->n; i++) {
        const file *f = &c->file[i];
        char why[256];
        ct_status status;

        if (ct_transaction_has_ended(x)) return false;
        if (!make_row(m, &x->set.work[i]))
            return fail(x, 500, "no_memory", "no memory for a picture");
        status = m->decode(m->ctx, c->bytes + f->at, f->size, x->set.work[i].input->data, why,
                           sizeof(why));
        if (status == CT_OK) continue;
        ct_transaction_fail(x,
                            (status == CT_ERR_CONFIG) ? 415
                            : (status == CT_ERR_DATA) ? 422
                                                      : 500,
                            NULL, "bad_picture", "file %d%s%.80s: %s", i + 1,
                            (f->name[0] != '\0') ? ", " : "", f->name, why);
        return false;
    }
    free(x->classify->bytes); /* many may wait for the model */
    x->classify->bytes = NULL;
    return true;
}

/* ---- the reply */

typedef struct candidate {
    float value;
    int64_t of;
} candidate;

/* The largest first, of equal ones the first; what is no number last. */
static int by_value(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (isnan(x->value) != isnan(y->value)) return isnan(x->value) ? 1 : -1;
    if (x->value != y->value) return (x->value < y->value) ? 1 : -1;
    return (x->of > y->of) - (x->of < y->of);
}

static void add_classes(const ct_transaction *x, const float *row, candidate *all,
                        ct_json_writer *w)
{
    const ct_served_model *m = ct_transaction_options(x)->model;

    for (int64_t k = 0; k < m->n_class; k++) all[k] = (candidate){ row[k], k };
    qsort(all, (size_t)m->n_class, sizeof(*all), by_value);
    ct_json_begin_list(w, "classes");
    for (int64_t k = 0; (k < x->classify->top) && (k < m->n_class); k++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "class", all[k].of);
        if (m->label != NULL) ct_json_add_text(w, "label", m->label[all[k].of]);
        ct_json_add_number(w, m->is_probability ? "probability" : "score", (double)all[k].value);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void answer(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    candidate *all = calloc((size_t)m->n_class, sizeof(*all));
    ct_json_writer w = ct_json_into(&x->reply.body);

    if (all == NULL) {
        (void)fail(x, 500, "no_memory", "no memory for the reply");
        return;
    }
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "model", m->name);
    ct_json_begin_list(&w, "pictures");
    for (int i = 0; i < x->set.n; i++) {
        const char *name = x->classify->file[i].name;

        ct_json_begin_object(&w, NULL);
        ct_json_add_text(&w, "file", (name[0] != '\0') ? name : NULL);
        add_classes(x, x->set.work[i].output[0].data, all, &w);
        ct_json_end(&w);
    }
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    free(all);
    ct_transaction_give_json(x);
}

void ct_classify_read(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;

    if (m->n_class == 0) {
        ct_transaction_fail(x, 404, NULL, "not_found", "the model %.80s has no classes of pictures",
                            m->name);
        return;
    }
    x->classify = calloc(1, sizeof(*x->classify));
    if (x->classify == NULL) {
        (void)fail(x, 500, "no_memory", "no memory for a request");
        return;
    }
    if (!read_top(x, x->classify) || !read_body(x, x->classify) ||
        !ct_transaction_make_works(x, x->classify->n))
        return;
    x->prepare = prepare;
    x->answer = answer;
}
