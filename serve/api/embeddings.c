/* POST /v1/embeddings, as OpenAI's clients ask for it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json.h"
#include "framework/base/json_writer.h"
#include "serve/api/fields.h"

static bool take_input(ct_transaction *x, const json_t *j, const ct_text_field *field, ct_work *w)
{
    int64_t size = ct_transaction_options(x)->model->embedding_size;

    w->kind = CT_WORK_EMBED;
    if (!ct_fields_tokens(x, j, field, &w->ids)) return false;
    w->tokens = w->ids.n;
    w->row = calloc((size_t)size, sizeof(float));
    if (w->row != NULL) return true;
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for an embedding");
    return false;
}

static bool take_inputs(ct_transaction *x)
{
    ct_text_field field = { .name = "input",
                            .most = ct_transaction_options(x)->model->most_length };
    size_t n;

    if (!ct_fields_texts(x, &field, &n)) return false;
    if (!ct_transaction_make_works(x, (int)n)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!take_input(x, ct_fields_text(x, &field, i), &field, &x->set.work[i])) return false;
    }
    return true;
}

static bool check_format(ct_transaction *x)
{
    const json_t *format = ct_fields_get(x, "encoding_format");
    const json_t *size = ct_fields_get(x, "dimensions");
    const char *text = json_string_value(format);
    int64_t own = ct_transaction_options(x)->model->embedding_size;

    x->base64 = (text != NULL) && (strcmp(text, "base64") == 0);
    if ((format != NULL) && !x->base64 && ((text == NULL) || (strcmp(text, "float") != 0))) {
        ct_transaction_fail(x, 400, "encoding_format", "wrong_value",
                            "encoding_format is neither \"float\" nor \"base64\"");
        return false;
    }
    if ((size == NULL) || (json_is_integer(size) && (json_integer_value(size) == own))) return true;
    ct_transaction_fail(x, 400, "dimensions", "wrong_value",
                        "dimensions: the model's embeddings have %" PRId64 ", and no other number",
                        own);
    return false;
}

/* ---- the reply */

static void add_row(const ct_transaction *x, const float *row, ct_json_writer *w)
{
    int64_t size = ct_transaction_options(x)->model->embedding_size;

    if (x->base64) {
        ct_json_add_base64(w, "embedding", row, (size_t)size * sizeof(float));
        return;
    }
    ct_json_begin_list(w, "embedding");
    for (int64_t i = 0; i < size; i++) ct_json_add_number(w, NULL, (double)row[i]);
    ct_json_end(w);
}

static void answer(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    ct_json_writer w = ct_json_into(&x->reply.body);
    int64_t tokens = 0;

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "object", "list");
    ct_json_begin_list(&w, "data");
    for (int i = 0; i < x->set.n; i++) {
        ct_json_begin_object(&w, NULL);
        ct_json_add_text(&w, "object", "embedding");
        ct_json_add_integer(&w, "index", i);
        add_row(x, x->set.work[i].row, &w);
        ct_json_end(&w);
        tokens += x->set.work[i].ids.n;
    }
    ct_json_end(&w);
    ct_json_add_text(&w, "model", m->name);
    ct_json_begin_object(&w, "usage");
    ct_json_add_integer(&w, "prompt_tokens", tokens);
    ct_json_add_integer(&w, "total_tokens", tokens);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

void ct_embeddings_read(ct_transaction *x)
{
    static const char *const known[] = { "input",      "model", "encoding_format",
                                         "dimensions", "user",  NULL };

    if (ct_transaction_options(x)->model->embedding_size == 0) {
        ct_transaction_fail(x, 404, NULL, "not_found", "the model %.80s makes no embeddings",
                            ct_transaction_options(x)->model->name);
        return;
    }
    if (!ct_transaction_read_json(x, x->request.body, x->request.size) ||
        !ct_transaction_check_members(x, x->root, "", known) || !ct_fields_model(x) ||
        !check_format(x) || !ct_fields_user(x) || !take_inputs(x))
        return;
    x->answer = answer;
}
