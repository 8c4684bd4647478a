/* POST /v1/embeddings, as OpenAI's clients ask for it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/transaction.h"

/* Bytes of a text for each token that it may have. What is longer is refused before it is encoded,
 * which would hold up all other connections. */
enum { TOKEN_BYTES = 256 };

/* "input[3]" for messages; "input" where there is one text alone. */
typedef struct input_name {
    char text[32];
} input_name;

static input_name name_of(bool one, size_t i)
{
    input_name n = { "input" };

    if (!one) snprintf(n.text, sizeof(n.text), "input[%zu]", i);
    return n;
}

static bool check_length(ct_transaction *x, const ct_work *w, const input_name *name)
{
    int64_t most = ct_transaction_options(x)->model->most_length;

    if (w->ids.n <= most) return true;
    ct_transaction_fail(x, 422, "input", "too_long",
                        "%s has %" PRId64 " tokens, the model takes at most %" PRId64, name->text,
                        w->ids.n, most);
    return false;
}

static bool take_text(ct_transaction *x, const json_t *j, ct_work *w, const input_name *name)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    size_t n = json_string_length(j);
    char why[256];
    ct_status status;

    if (n == 0) {
        ct_transaction_fail(x, 400, "input", "empty", "%s is empty", name->text);
        return false;
    }
    if (n / TOKEN_BYTES >= (uint64_t)m->most_length) {
        ct_transaction_fail(x, 422, "input", "too_long",
                            "%s has %zu bytes, too many for %" PRId64 " tokens", name->text, n,
                            m->most_length);
        return false;
    }
    if (m->encode == NULL) {
        ct_transaction_fail(x, 400, "input", "no_tokenizer",
                            "%s is a text, and the server has no tokenizer: expected ids of tokens",
                            name->text);
        return false;
    }
    status = m->encode(m->ctx, json_string_value(j), n, &w->ids);
    if ((status == CT_OK) && (w->ids.n == 0)) {
        ct_transaction_fail(x, 400, "input", "empty", "%s is empty: it has no tokens", name->text);
        return false;
    }
    if (status == CT_OK) return check_length(x, w, name);
    ct_log_last_error(why, sizeof(why));
    ct_transaction_fail(x, (status == CT_ERR_DATA) ? 422 : 500, "input", "not_encoded", "%s: %s",
                        name->text, why);
    return false;
}

static bool take_id(ct_transaction *x, const json_t *j, ct_work *w, const input_name *name,
                    size_t k)
{
    int64_t n_id = ct_transaction_options(x)->model->n_id, value = json_integer_value(j);
    int32_t id = (int32_t)value;

    if (!json_is_integer(j)) {
        ct_transaction_fail(x, 400, "input", "wrong_type",
                            "entry %zu of %s is no whole number, as ids of tokens are", k,
                            name->text);
        return false;
    }
    if ((value < 0) || (value >= n_id)) {
        ct_transaction_fail(x, 422, "input", "out_of_range",
                            "entry %zu of %s is %" PRId64 ", ids are 0 to %" PRId64, k, name->text,
                            value, n_id - 1);
        return false;
    }
    if (ct_ids_add(&w->ids, &id, 1) == CT_OK) return true;
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for %s", name->text);
    return false;
}

static bool take_ids(ct_transaction *x, const json_t *j, ct_work *w, const input_name *name)
{
    int64_t most = ct_transaction_options(x)->model->most_length;
    size_t n = json_array_size(j);

    if (n == 0) {
        ct_transaction_fail(x, 400, "input", "empty", "%s is empty", name->text);
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        if (k == (size_t)most + 1) break; /* too long in any case */
        if (!take_id(x, json_array_get(j, k), w, name, k)) return false;
    }
    return check_length(x, w, name);
}

static bool take_input(ct_transaction *x, const json_t *j, ct_work *w, const input_name *name)
{
    int64_t size = ct_transaction_options(x)->model->embedding_size;

    w->kind = CT_WORK_EMBED;
    if (json_is_string(j)) {
        if (!take_text(x, j, w, name)) return false;
    } else if (json_is_array(j)) {
        if (!take_ids(x, j, w, name)) return false;
    } else {
        ct_transaction_fail(x, 400, "input", "wrong_type",
                            "%s is neither a text nor a list of ids of tokens", name->text);
        return false;
    }
    w->tokens = w->ids.n;
    w->row = calloc((size_t)size, sizeof(float));
    if (w->row != NULL) return true;
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for an embedding");
    return false;
}

/* A text, a list of texts, a list of ids, or a list of lists of ids. */
static bool take_inputs(ct_transaction *x)
{
    const json_t *j = json_object_get(x->root, "input");
    int most = ct_transaction_options(x)->most_inputs;
    bool one = !json_is_array(j) || json_is_integer(json_array_get(j, 0));
    size_t n = one ? 1 : json_array_size(j);

    if (j == NULL) {
        ct_transaction_fail(x, 400, "input", "missing", "input is missing");
        return false;
    }
    if (n == 0) {
        ct_transaction_fail(x, 400, "input", "empty", "input is empty");
        return false;
    }
    if (n > (size_t)most) {
        ct_transaction_fail(x, 422, "input", "too_many",
                            "input has %zu entries, a request may have at most %d", n, most);
        return false;
    }
    if (!ct_transaction_make_works(x, (int)n)) return false;
    for (size_t i = 0; i < n; i++) {
        input_name name = name_of(one, i);

        if (!take_input(x, one ? j : json_array_get(j, i), &x->set.work[i], &name)) return false;
    }
    return true;
}

static bool check_model(ct_transaction *x)
{
    const json_t *j = json_object_get(x->root, "model");
    const char *name = ct_transaction_options(x)->model->name;

    if (!json_is_string(j)) {
        ct_transaction_fail(x, 400, "model", "missing", "model is %s: expected \"%.80s\"",
                            (j == NULL) ? "missing" : "no text", name);
        return false;
    }
    if (strcmp(json_string_value(j), name) == 0) return true;
    ct_transaction_fail(x, 404, "model", "model_not_found",
                        "the model %.80s is not here; this server has %.80s", json_string_value(j),
                        name);
    return false;
}

static bool check_format(ct_transaction *x)
{
    const json_t *format = json_object_get(x->root, "encoding_format");
    const json_t *size = json_object_get(x->root, "dimensions");
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

/* OpenAI's word for who asks, which nothing here looks at. */
static bool check_user(ct_transaction *x)
{
    const json_t *user = json_object_get(x->root, "user");

    if ((user == NULL) || json_is_string(user)) return true;
    ct_transaction_fail(x, 400, "user", "wrong_type", "user is no text");
    return false;
}

/* ---- the reply */

static void add_base64(ct_text *to, const unsigned char *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4];

    for (size_t i = 0; i < n; i += 3) {
        size_t some = (n - i < 3) ? n - i : 3;
        unsigned v = (unsigned)bytes[i] << 16;

        if (some > 1) v |= (unsigned)bytes[i + 1] << 8;
        if (some > 2) v |= bytes[i + 2];
        for (int k = 0; k < 4; k++) four[k] = digit[(v >> (18 - 6 * k)) & 63];
        if (some < 3) four[3] = '=';
        if (some < 2) four[2] = '=';
        ct_text_add_bytes(to, four, 4);
    }
}

static void add_row(ct_transaction *x, const float *row)
{
    int64_t size = ct_transaction_options(x)->model->embedding_size;
    ct_text *to = &x->reply.body;

    if (x->base64) {
        ct_text_add(to, "\"");
        add_base64(to, (const unsigned char *)row, (size_t)size * sizeof(float));
        ct_text_add(to, "\"");
        return;
    }
    for (int64_t i = 0; i < size; i++) {
        ct_text_add(to, (i > 0) ? "," : "[");
        ct_text_add_number(to, (double)row[i]);
    }
    ct_text_add(to, "]");
}

static void answer(ct_transaction *x)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    ct_text *to = &x->reply.body;
    int64_t tokens = 0;

    ct_text_add(to, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < x->set.n; i++) {
        ct_text_add(
            to, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", (i > 0) ? "," : "", i);
        add_row(x, x->set.work[i].row);
        ct_text_add(to, "}");
        tokens += x->set.work[i].ids.n;
    }
    ct_text_add(to, "],\"model\":");
    ct_text_add_json(to, m->name);
    ct_text_add(to, ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}\n",
                tokens, tokens);
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
        !ct_transaction_check_members(x, x->root, "", known) || !check_model(x) ||
        !check_format(x) || !check_user(x) || !take_inputs(x))
        return;
    x->answer = answer;
}
