#include "serve/api/fields.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a text for each token that it may have. What is longer is refused before it is encoded,
 * which would hold up all other connections. */
enum { TOKEN_BYTES = 256 };

const json_t *ct_fields_get(const ct_transaction *x, const char *name)
{
    const json_t *j = json_object_get(x->root, name);

    return json_is_null(j) ? NULL : j;
}

bool ct_fields_model(ct_transaction *x)
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

bool ct_fields_user(ct_transaction *x)
{
    const json_t *user = ct_fields_get(x, "user");

    if ((user == NULL) || json_is_string(user)) return true;
    ct_transaction_fail(x, 400, "user", "wrong_type", "user is no text");
    return false;
}

/* ---- texts */

bool ct_fields_texts(ct_transaction *x, ct_text_field *field, size_t *n_p)
{
    const json_t *j = json_object_get(x->root, field->name);
    int most = ct_transaction_options(x)->most_inputs;

    field->one = !json_is_array(j) || json_is_integer(json_array_get(j, 0));
    *n_p = field->one ? 1 : json_array_size(j);
    if (j == NULL) {
        ct_transaction_fail(x, 400, field->name, "missing", "%s is missing", field->name);
        return false;
    }
    if (*n_p == 0) {
        ct_transaction_fail(x, 400, field->name, "empty", "%s is empty", field->name);
        return false;
    }
    if (*n_p <= (size_t)most) return true;
    ct_transaction_fail(x, 422, field->name, "too_many",
                        "%s has %zu entries, a request may have at most %d", field->name, *n_p,
                        most);
    return false;
}

const json_t *ct_fields_text(const ct_transaction *x, ct_text_field *field, size_t i)
{
    const json_t *j = json_object_get(x->root, field->name);

    if (field->one)
        snprintf(field->shown, sizeof(field->shown), "%s", field->name);
    else
        snprintf(field->shown, sizeof(field->shown), "%s[%zu]", field->name, i);
    return field->one ? j : json_array_get(j, i);
}

static bool check_length(ct_transaction *x, const ct_text_field *field, const ct_ids *ids)
{
    if (ids->n <= field->most) return true;
    ct_transaction_fail(x, 422, field->name, "too_long",
                        "%s has %" PRId64 " tokens, the model takes at most %" PRId64, field->shown,
                        ids->n, field->most);
    return false;
}

static bool take_text(ct_transaction *x, const json_t *j, const ct_text_field *field, ct_ids *ids)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    size_t n = json_string_length(j);
    char why[256];
    ct_status status;

    if (n == 0) {
        ct_transaction_fail(x, 400, field->name, "empty", "%s is empty", field->shown);
        return false;
    }
    if (n / TOKEN_BYTES >= (uint64_t)field->most) {
        ct_transaction_fail(x, 422, field->name, "too_long",
                            "%s has %zu bytes, too many for %" PRId64 " tokens", field->shown, n,
                            field->most);
        return false;
    }
    if (m->encode == NULL) {
        ct_transaction_fail(x, 400, field->name, "no_tokenizer",
                            "%s is a text, and the server has no tokenizer: expected ids of tokens",
                            field->shown);
        return false;
    }
    status = m->encode(m->ctx, json_string_value(j), n, ids);
    if ((status == CT_OK) && (ids->n == 0)) {
        ct_transaction_fail(x, 400, field->name, "empty", "%s is empty: it has no tokens",
                            field->shown);
        return false;
    }
    if (status == CT_OK) return check_length(x, field, ids);
    ct_log_last_error(why, sizeof(why));
    ct_transaction_fail(x, (status == CT_ERR_DATA) ? 422 : 500, field->name, "not_encoded",
                        "%s: %s", field->shown, why);
    return false;
}

static bool take_id(ct_transaction *x, const json_t *j, const ct_text_field *field, size_t k,
                    ct_ids *ids)
{
    int64_t n_id = ct_transaction_options(x)->model->n_id, value = json_integer_value(j);
    int32_t id = (int32_t)value;

    if (!json_is_integer(j)) {
        ct_transaction_fail(x, 400, field->name, "wrong_type",
                            "entry %zu of %s is no whole number, as ids of tokens are", k,
                            field->shown);
        return false;
    }
    if ((value < 0) || (value >= n_id)) {
        ct_transaction_fail(x, 422, field->name, "out_of_range",
                            "entry %zu of %s is %" PRId64 ", ids are 0 to %" PRId64, k,
                            field->shown, value, n_id - 1);
        return false;
    }
    if (ct_ids_add(ids, &id, 1) == CT_OK) return true;
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for %s", field->shown);
    return false;
}

static bool take_ids(ct_transaction *x, const json_t *j, const ct_text_field *field, ct_ids *ids)
{
    size_t n = json_array_size(j);

    if (n == 0) {
        ct_transaction_fail(x, 400, field->name, "empty", "%s is empty", field->shown);
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        if (k == (size_t)field->most + 1) break; /* too long in any case */
        if (!take_id(x, json_array_get(j, k), field, k, ids)) return false;
    }
    return check_length(x, field, ids);
}

bool ct_fields_tokens(ct_transaction *x, const json_t *j, const ct_text_field *field, ct_ids *ids)
{
    if (json_is_string(j)) return take_text(x, j, field, ids);
    if (json_is_array(j)) return take_ids(x, j, field, ids);
    ct_transaction_fail(x, 400, field->name, "wrong_type",
                        "%s is neither a text nor a list of ids of tokens", field->shown);
    return false;
}

/* ---- numbers */

bool ct_fields_number(ct_transaction *x, const char *name, double least, double most, double *v_p)
{
    const json_t *j = ct_fields_get(x, name);
    double v = json_number_value(j);

    if (j == NULL) return true;
    if (!json_is_number(j) || !(v >= least) || !(v <= most)) {
        ct_transaction_fail(x, 400, name, "wrong_value", "%s is no number from %g to %g", name,
                            least, most);
        return false;
    }
    *v_p = v;
    return true;
}

bool ct_fields_whole(ct_transaction *x, const char *name, int64_t least, int64_t most, int64_t *v_p)
{
    const json_t *j = ct_fields_get(x, name);
    int64_t v = json_integer_value(j);

    if (j == NULL) return true;
    if (!json_is_integer(j) || (v < least) || (v > most)) {
        ct_transaction_fail(x, 400, name, "wrong_value",
                            "%s is no whole number from %" PRId64 " to %" PRId64, name, least,
                            most);
        return false;
    }
    *v_p = v;
    return true;
}

bool ct_fields_flag(ct_transaction *x, const char *name, bool *v_p)
{
    const json_t *j = ct_fields_get(x, name);

    if (j == NULL) return true;
    if (!json_is_boolean(j)) {
        ct_transaction_fail(x, 400, name, "wrong_type", "%s is neither true nor false", name);
        return false;
    }
    *v_p = json_is_true(j);
    return true;
}
