#include "framework/base/json.h"
#include "framework/base/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

ct_status ct_json_read(const char *path, json_t **json_p)
{
    char *data = NULL;
    size_t size = 0;
    json_error_t error;

    CT_TRY(ct_settings_read(path, &data, &size));
    *json_p = json_loadb(data, size, 0, &error);
    free(data);
    if (*json_p == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s:%d:%d: not JSON: %s", path, error.line, error.column,
                       error.text);
    return CT_OK;
}

ct_status ct_json_write(const char *path, const json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9) | JSON_PRESERVE_ORDER);
    ct_status status;

    if (text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    status = ct_file_write(path, text, strlen(text));
    free(text);
    return status;
}

enum { MOST_LINE = 1 << 26 };

ct_status ct_json_lines(const char *path, ct_json_line_fn take, void *ctx)
{
    char *text = NULL, *end;
    size_t size = 0;
    int line = 0;
    ct_status status;

    CT_TRY(ct_file_read(path, &text, &size));
    status = CT_OK;
    for (char *at = text; (status == CT_OK) && ((end = strchr(at, '\n')) != NULL); at = end + 1) {
        json_error_t error;
        json_t *o;

        *end = '\0';
        line++;
        if (end - at > MOST_LINE) {
            status = CT_FAIL(CT_ERR_DATA, "%s:%d: a line of %lld bytes, at most %d are expected",
                             path, line, (long long)(end - at), (int)MOST_LINE);
            break;
        }
        o = json_loads(at, 0, &error);
        if (o == NULL)
            status = CT_FAIL(CT_ERR_DATA, "%s:%d:%d: not JSON: %s", path, line, error.column,
                             error.text);
        else if (!json_is_object(o))
            status = CT_FAIL(CT_ERR_DATA, "%s:%d: expected a JSON object", path, line);
        else
            status = take(ctx, path, line, o);
        json_decref(o);
    }
    free(text);
    return status;
}

static const json_t *find(const json_t *o, const char *name)
{
    const char *dot = strchr(name, '.');
    char first[64];

    if (dot == NULL) return json_object_get(o, name);
    snprintf(first, sizeof(first), "%.*s", (int)(dot - name), name);
    return find(json_object_get(o, first), dot + 1);
}

double ct_json_number(const json_t *o, const char *name, double otherwise)
{
    const json_t *v = find(o, name);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

int ct_json_int(const json_t *o, const char *name, int otherwise)
{
    double v = ct_json_number(o, name, otherwise);

    return ((v > (double)INT_MIN - 1) && (v < (double)INT_MAX + 1)) ? (int)v : otherwise;
}

const char *ct_json_text(const json_t *o, const char *name, const char *otherwise)
{
    const char *v = json_string_value(find(o, name));

    return (v != NULL) ? v : otherwise;
}

void ct_text_add_base64(ct_text *t, const void *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char four[4];

    for (size_t i = 0; i < n; i += 3) {
        size_t some = (n - i < 3) ? n - i : 3;
        unsigned v = (unsigned)from[i] << 16;

        if (some > 1) v |= (unsigned)from[i + 1] << 8;
        if (some > 2) v |= from[i + 2];
        for (int k = 0; k < 4; k++) four[k] = digit[(v >> (18 - 6 * k)) & 63];
        if (some < 3) four[3] = '=';
        if (some < 2) four[2] = '=';
        ct_text_add_bytes(t, four, 4);
    }
}
