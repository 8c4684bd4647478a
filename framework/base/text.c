#include "framework/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/hash.h"
#include "framework/base/json.h"
#include "framework/base/utf8.h"

static bool reserve(ct_text *t, size_t more)
{
    size_t want = t->length + more + 1, capacity = (t->capacity > 0) ? t->capacity : 64;
    char *grown;

    if (want <= t->capacity) return true;
    while (capacity < want) capacity *= 2;
    grown = realloc(t->text, capacity);
    if (grown == NULL) {
        t->failed = true;
        return false;
    }
    t->text = grown;
    t->capacity = capacity;
    return true;
}

void ct_text_add_bytes(ct_text *t, const char *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    if (n > 0) memcpy(t->text + t->length, bytes, n);
    t->length += n;
    t->text[t->length] = '\0';
}

void ct_text_add(ct_text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if ((n < 0) || !reserve(t, (size_t)n)) {
        t->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(t->text + t->length, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->length += (size_t)n;
}

/* Of ASCII, and stands as it is in a JSON string. */
static bool is_plain(uint8_t c)
{
    return (c >= 0x20) && (c < 0x80) && (c != '"') && (c != '\\');
}

/* Bytes that are no UTF-8 become U+FFFD: a reader of JSON refuses them. */
void ct_text_add_json_bytes(ct_text *t, const char *bytes, size_t n)
{
    const uint8_t *p = (const uint8_t *)((n > 0) ? bytes : ""), *end = p + n; /* else NULL */
    int length;

    ct_text_add_bytes(t, "\"", 1);
    for (const uint8_t *from; p < end; p += length) {
        for (from = p; (p < end) && is_plain(*p); p++) continue;
        ct_text_add_bytes(t, (const char *)from, (size_t)(p - from));
        length = 0;
        if (p == end) continue;
        if (ct_utf8_read(p, end, &length) == CT_NO_CHARACTER)
            ct_text_add_bytes(t, "\xef\xbf\xbd", 3);
        else if ((*p == '"') || (*p == '\\'))
            ct_text_add(t, "\\%c", *p);
        else if (*p < 0x20)
            ct_text_add(t, "\\u%04x", *p);
        else
            ct_text_add_bytes(t, (const char *)p, (size_t)length);
    }
    ct_text_add_bytes(t, "\"", 1);
}

void ct_text_add_json(ct_text *t, const char *s)
{
    ct_text_add_json_bytes(t, s, strlen(s));
}

void ct_text_add_number(ct_text *t, double v)
{
    if (isfinite(v)) {
        ct_text_add(t, "%.9g", v);
    } else {
        ct_text_add(t, "null");
    }
}

void ct_text_destroy(ct_text *t)
{
    free(t->text);
    memset(t, 0, sizeof(*t));
}

enum { MAX_WORD = 64 };

static int smaller(int a, int b)
{
    return (a < b) ? a : b;
}

/* Insertions, deletions, replacements and exchanges of neighbours that make a into b. */
static int edit_distance(const char *a, const char *b)
{
    int d[MAX_WORD + 1][MAX_WORD + 1], la = (int)strlen(a), lb = (int)strlen(b);

    if ((la > MAX_WORD) || (lb > MAX_WORD)) return MAX_WORD;
    for (int j = 0; j <= lb; j++) d[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int x = tolower((unsigned char)a[i - 1]);

        d[i][0] = i;
        for (int j = 1; j <= lb; j++) {
            int y = tolower((unsigned char)b[j - 1]);

            d[i][j] = smaller(smaller(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (x != y));
            if ((i > 1) && (j > 1) && (x == tolower((unsigned char)b[j - 2])) &&
                (y == tolower((unsigned char)a[i - 2])))
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[la][lb];
}

const char *ct_text_nearest(const char *word, const char *const *candidate, int n)
{
    int limit = (int)strlen(word) / 3, best = MAX_WORD;
    const char *nearest = NULL;

    if (limit < 1) limit = 1;
    for (int i = 0; i < n; i++) {
        int d = edit_distance(word, candidate[i]);

        if (d < best) {
            best = d;
            nearest = candidate[i];
        }
    }
    return (best <= limit) ? nearest : NULL;
}

bool ct_text_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return (n >= m) && (strcmp(text + n - m, end) == 0);
}

const char *ct_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (slash != NULL) ? slash + 1 : path;
}

static ct_status read_whole(const char *path, int64_t most, char **data_p, size_t *size_p)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    struct stat st;
    ct_status status = CT_OK;

    if (f == NULL) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    if ((fstat(fileno(f), &st) != 0) || !S_ISREG(st.st_mode)) {
        status = CT_FAIL(CT_ERR_IO, "%s: %s", path,
                         S_ISDIR(st.st_mode) ? "a folder; expected a file" : "not a regular file");
        goto out;
    }
    if (st.st_size > most) {
        status = CT_FAIL(CT_ERR_DATA, "%s: %lld bytes, at most %lld are read of such a file", path,
                         (long long)st.st_size, (long long)most);
        goto out;
    }
    data = malloc((size_t)st.st_size + 1);
    if (data == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
        goto out;
    }
    if (fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
        free(data);
        status = CT_FAIL(CT_ERR_IO, "%s: cannot read %lld bytes", path, (long long)st.st_size);
        goto out;
    }
    data[st.st_size] = '\0';
    *data_p = data;
    *size_p = (size_t)st.st_size;
out:
    fclose(f);
    return status;
}

ct_status ct_file_read(const char *path, char **data_p, size_t *size_p)
{
    return read_whole(path, INT64_MAX - 1, data_p, size_p);
}

ct_status ct_settings_read(const char *path, char **data_p, size_t *size_p)
{
    return read_whole(path, CT_MOST_SETTINGS, data_p, size_p);
}

ct_status ct_file_check_writable(const char *path)
{
    ct_text folder = { 0 };
    const char *slash = strrchr(path, '/');
    struct stat st;
    int reason = 0;

    if (slash == NULL)
        ct_text_add(&folder, ".");
    else
        ct_text_add(&folder, "%.*s", (slash == path) ? 1 : (int)(slash - path), path);
    if (folder.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (access(folder.text, W_OK | X_OK) != 0)
        reason = errno;
    else if ((stat(path, &st) == 0) && S_ISDIR(st.st_mode))
        reason = EISDIR;
    ct_text_destroy(&folder);
    if (reason != 0) return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, strerror(reason));
    return CT_OK;
}

void ct_path_add_own(ct_text *t, const char *path, const char *word)
{
    char host[256] = "";
    ct_hash h;

    (void)gethostname(host, sizeof(host) - 1);
    ct_hash_init(&h);
    ct_hash_add(&h, host, strlen(host));
    ct_text_add(t, "%s.%s.%d-%08" PRIx32, path, word, (int)getpid(), (uint32_t)ct_hash_value(&h));
}

int ct_file_create(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0666);

    if ((fd < 0) && (errno == EEXIST) && (unlink(path) == 0)) fd = open(path, flags, 0666);
    return fd;
}

FILE *ct_file_create_stream(const char *path)
{
    int fd = ct_file_create(path);
    FILE *f = (fd >= 0) ? fdopen(fd, "wb") : NULL;

    if ((fd >= 0) && (f == NULL)) close(fd);
    return f;
}

ct_status ct_file_write(const char *path, const void *data, size_t size)
{
    ct_text temporary = { 0 };
    bool good = false;
    FILE *f;

    ct_path_add_own(&temporary, path, "tmp");
    if (temporary.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    f = ct_file_create_stream(temporary.text);
    if (f != NULL) {
        good = (fwrite(data, 1, size, f) == size) && (fflush(f) == 0) && (fsync(fileno(f)) == 0);
        good = (fclose(f) == 0) && good;
        good = good && (rename(temporary.text, path) == 0);
    }
    if (!good) {
        int reason = errno;

        if (f != NULL) unlink(temporary.text);
        ct_text_destroy(&temporary);
        return CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, strerror(reason));
    }
    ct_text_destroy(&temporary);
    return CT_OK;
}
