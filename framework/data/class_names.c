#include "framework/data/class_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/text/unicode.h"

static bool is_utf8(const char *text)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    int n;

    for (; p < end; p += n)
        if (ct_utf8_read(p, end, &n) == CT_NO_CHARACTER) return false;
    return true;
}

bool ct_is_class_name(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ') return false;
    return (*text != '\0') && is_utf8(text);
}

void ct_class_names_release(ct_class_names *l)
{
    free(l->text);
    free(l->name);
    *l = (ct_class_names){ 0 };
}

static int64_t count_lines(const char *text, size_t size)
{
    int64_t n = (size > 0) && (text[size - 1] != '\n');

    for (size_t i = 0; i < size; i++) n += (text[i] == '\n');
    return n;
}

/* Cuts the text into lines. The last one may end without a newline. */
static ct_status take_lines(const char *path, const char *place, size_t size, ct_class_names *l)
{
    char *end = l->text + size;
    int64_t line = 0;

    for (char *at = l->text; at < end; line++) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *last = (newline != NULL) ? newline : end;

        *last = '\0';
        if ((last > at) && (last[-1] == '\r')) *--last = '\0';
        if ((strlen(at) != (size_t)(last - at)) || !is_utf8(at))
            return CT_FAIL(CT_ERR_CONFIG, "%s:%" PRId64 ": no text in UTF-8", path, line + 1);
        if (last == at)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s:%" PRId64 ": empty, expected the name of class %" PRId64, path,
                           line + 1, line);
        if (line < l->n) l->name[line] = at;
        at = (newline != NULL) ? newline + 1 : end;
    }
    if (line == l->n) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s=%s: %" PRId64 " names, expected %" PRId64 ", one for each class of the net",
                   place, path, line, l->n);
}

ct_status ct_class_names_read(const char *path, const char *place, int64_t n, ct_class_names *l)
{
    ct_status status;
    size_t size;

    *l = (ct_class_names){ 0 };
    CT_TRY(ct_settings_read(path, &l->text, &size));
    l->n = (n > 0) ? n : count_lines(l->text, size);
    l->name = calloc((size_t)l->n + 1, sizeof(l->name[0]));
    if (l->name == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " names", l->n);
    else
        status = take_lines(path, place, size, l);
    if (status != CT_OK) ct_class_names_release(l);
    return status;
}

ct_status ct_class_names_copy(char *const *name, int64_t n, ct_class_names *l)
{
    ct_text t = { 0 };
    char *at;

    for (int64_t i = 0; i < n; i++) ct_text_add_bytes(&t, name[i], strlen(name[i]) + 1);
    *l = (ct_class_names){ .name = calloc((size_t)n + 1, sizeof(l->name[0])) };
    if (t.failed || (l->name == NULL)) {
        ct_text_destroy(&t);
        ct_class_names_release(l);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " names", n);
    }
    at = l->text = t.text;
    for (; l->n < n; at += strlen(at) + 1) l->name[l->n++] = at;
    return CT_OK;
}

ct_status ct_class_names_write(const char *path, const ct_class_names *l)
{
    ct_text t = { 0 };
    ct_status status;

    for (int64_t i = 0; i < l->n; i++) ct_text_add(&t, "%s\n", l->name[i]);
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the names of classes")
                      : ct_file_write(path, (t.text != NULL) ? t.text : "", t.length);
    ct_text_destroy(&t);
    return status;
}
