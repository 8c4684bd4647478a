#include "serve/api/keys.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/base/file.h"

struct ct_api_keys {
    int n;
    unsigned char (*key)[CT_KEY_BYTES + 1]; /* filled up with 0 */
};

static ct_status take_line(const char *path, int line, const char *text, size_t n,
                           ct_api_keys *keys)
{
    while ((n > 0) && ((text[n - 1] == '\r') || (text[n - 1] == ' '))) n--;
    if ((n == 0) || (text[0] == '#')) return CT_OK;
    if (n > CT_KEY_BYTES)
        return CT_FAIL(CT_ERR_CONFIG, "%s:%d: a key of %zu bytes, expected at most %d", path, line,
                       n, CT_KEY_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((text[i] <= ' ') || (text[i] > '~'))
            return CT_FAIL(CT_ERR_CONFIG, "%s:%d: byte %zu of the key is no visible ASCII", path,
                           line, i + 1);
    memcpy(keys->key[keys->n++], text, n);
    return CT_OK;
}

static ct_status take_lines(const char *path, const char *text, size_t size, ct_api_keys *keys)
{
    size_t n_line = 1, at = 0;

    for (size_t i = 0; i < size; i++) n_line += (text[i] == '\n');
    keys->key = calloc(n_line, sizeof(*keys->key));
    if (keys->key == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the keys of %s", path);
    for (int line = 1; at < size; line++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = (end != NULL) ? (size_t)(end - text) - at : size - at;

        CT_TRY(take_line(path, line, text + at, n, keys));
        at += n + 1;
    }
    if (keys->n == 0) return CT_FAIL(CT_ERR_CONFIG, "%s: has no key, expected one a line", path);
    return CT_OK;
}

ct_status ct_api_keys_read(const char *path, ct_api_keys **keys_p)
{
    ct_api_keys *keys = calloc(1, sizeof(*keys));
    ct_status status;
    char *text = NULL;
    size_t size = 0;

    if (keys == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the keys of %s", path);
    status = ct_settings_read(path, &text, &size);
    if (status == CT_OK) status = take_lines(path, text, size, keys);
    free(text);
    if (status != CT_OK) {
        ct_api_keys_destroy(keys);
        return status;
    }
    *keys_p = keys;
    return CT_OK;
}

void ct_api_keys_destroy(ct_api_keys *keys)
{
    if (keys == NULL) return;
    free(keys->key);
    free(keys);
}

bool ct_api_keys_allow(const ct_api_keys *keys, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    unsigned char given[CT_KEY_BYTES + 1] = { 0 };
    unsigned found = 0;
    size_t n;

    if ((authorization == NULL) || (strncasecmp(authorization, scheme, sizeof(scheme) - 1) != 0))
        return false;
    authorization += sizeof(scheme) - 1;
    n = strlen(authorization);
    if ((n == 0) || (n > CT_KEY_BYTES)) return false;
    memcpy(given, authorization, n);
    for (int k = 0; k < keys->n; k++) {
        unsigned differs = 0;

        for (int i = 0; i <= CT_KEY_BYTES; i++) differs |= given[i] ^ keys->key[k][i];
        found |= (differs == 0);
    }
    return found != 0;
}
