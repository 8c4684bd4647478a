#include "framework/base/json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/base/json.h"
#include "framework/base/log.h"

ct_json_writer ct_json_into(ct_text *to)
{
    return (ct_json_writer){ .to = to };
}

ct_json_writer ct_json_members_into(ct_text *to)
{
    return (ct_json_writer){ .to = to, .depth = 1, .base = 1 };
}

static bool misuse(ct_json_writer *w, const char *key, const char *what)
{
    ct_log_at(CT_LOG_ERROR, __FILE__, __LINE__, "JSON writer: %s%s%s", what,
              (key != NULL) ? ": " : "", (key != NULL) ? key : "");
    w->to->failed = true;
    return false;
}

static bool in_list(const ct_json_writer *w)
{
    return ((w->lists >> w->depth) & 1) != 0;
}

static void line_break(ct_json_writer *w)
{
    if (w->breaks) ct_text_add_bytes(w->to, "\n", 1);
    w->breaks = false;
}

/* What stands before a value: comma, line break, key. */
static bool begin_value(ct_json_writer *w, const char *key)
{
    if (w->depth == 0) {
        if (key != NULL) return misuse(w, key, "a key outside of an object");
        if (w->more) return misuse(w, NULL, "a second value behind a whole one");
    } else if (in_list(w)) {
        if (key != NULL) return misuse(w, key, "a key in a list");
    } else if (key == NULL) {
        return misuse(w, NULL, "a member of an object without a key");
    }
    if (w->more) ct_text_add_bytes(w->to, ",", 1);
    line_break(w);
    w->more = true;
    if (key == NULL) return true;
    ct_text_add_json(w->to, key);
    ct_text_add_bytes(w->to, ":", 1);
    return true;
}

static void begin(ct_json_writer *w, const char *key, bool list)
{
    if (w->depth == CT_JSON_MOST_DEPTH) {
        misuse(w, key, "too deep");
        return;
    }
    if (!begin_value(w, key)) return;
    w->depth++;
    w->lists &= ~(UINT64_C(1) << w->depth);
    if (list) w->lists |= UINT64_C(1) << w->depth;
    w->more = false;
    ct_text_add_bytes(w->to, list ? "[" : "{", 1);
}

void ct_json_begin_object(ct_json_writer *w, const char *key)
{
    begin(w, key, false);
}

void ct_json_begin_list(ct_json_writer *w, const char *key)
{
    begin(w, key, true);
}

void ct_json_end(ct_json_writer *w)
{
    if (w->depth == w->base) {
        misuse(w, NULL, "an end where nothing is open");
        return;
    }
    line_break(w);
    ct_text_add_bytes(w->to, in_list(w) ? "]" : "}", 1);
    w->depth--;
    w->more = true;
}

void ct_json_add_text(ct_json_writer *w, const char *key, const char *s)
{
    if (s == NULL)
        ct_json_add_null(w, key);
    else
        ct_json_add_bytes(w, key, s, strlen(s));
}

void ct_json_add_bytes(ct_json_writer *w, const char *key, const char *bytes, size_t n)
{
    if (begin_value(w, key)) ct_text_add_json_bytes(w->to, bytes, n);
}

void ct_json_add_base64(ct_json_writer *w, const char *key, const void *bytes, size_t n)
{
    if (!begin_value(w, key)) return;
    ct_text_add_bytes(w->to, "\"", 1);
    ct_text_add_base64(w->to, bytes, n);
    ct_text_add_bytes(w->to, "\"", 1);
}

void ct_json_add_hash(ct_json_writer *w, const char *key, uint64_t hash)
{
    if (begin_value(w, key)) ct_text_add(w->to, "\"%016" PRIx64 "\"", hash);
}

void ct_json_add_integer(ct_json_writer *w, const char *key, int64_t v)
{
    if (begin_value(w, key)) ct_text_add(w->to, "%" PRId64, v);
}

void ct_json_add_unsigned(ct_json_writer *w, const char *key, uint64_t v)
{
    if (begin_value(w, key)) ct_text_add(w->to, "%" PRIu64, v);
}

void ct_json_add_number(ct_json_writer *w, const char *key, double v)
{
    if (begin_value(w, key)) ct_text_add_number(w->to, v);
}

void ct_json_add_digits(ct_json_writer *w, const char *key, double v, int digits)
{
    if (!isfinite(v))
        ct_json_add_null(w, key);
    else if (begin_value(w, key))
        ct_text_add(w->to, "%.*g", digits, v);
}

void ct_json_add_decimals(ct_json_writer *w, const char *key, double v, int decimals)
{
    if (!isfinite(v))
        ct_json_add_null(w, key);
    else if (begin_value(w, key))
        ct_text_add(w->to, "%.*f", decimals, v);
}

void ct_json_add_bool(ct_json_writer *w, const char *key, bool v)
{
    ct_json_add_made(w, key, v ? "true" : "false");
}

void ct_json_add_null(ct_json_writer *w, const char *key)
{
    ct_json_add_made(w, key, "null");
}

void ct_json_add_made(ct_json_writer *w, const char *key, const char *json)
{
    if (begin_value(w, key)) ct_text_add_bytes(w->to, json, strlen(json));
}

void ct_json_add_members(ct_json_writer *w, const char *members)
{
    if ((members == NULL) || (members[0] == '\0')) return;
    if ((w->depth == 0) || in_list(w)) {
        misuse(w, NULL, "members outside of an object");
        return;
    }
    if (w->more) ct_text_add_bytes(w->to, ",", 1);
    line_break(w);
    w->more = true;
    ct_text_add_bytes(w->to, members, strlen(members));
}

void ct_json_break(ct_json_writer *w)
{
    w->breaks = true;
}
