#include "serve/api/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Where `what` begins in [at, end); NULL: nowhere. */
static const char *find(const char *at, const char *end, const char *what)
{
    size_t n = strlen(what);

    while ((at != NULL) && ((size_t)(end - at) >= n)) {
        if (memcmp(at, what, n) == 0) return at;
        at = memchr(at + 1, what[0], (size_t)(end - at - 1));
    }
    return NULL;
}

static bool begins(const char *at, const char *end, const char *what)
{
    size_t n = strlen(what);

    return ((size_t)(end - at) >= n) && (memcmp(at, what, n) == 0);
}

/* Of what stands in quotes. Browsers leave any other backslash as it is. */
static bool is_escape(const char *at, const char *end)
{
    return (*at == '\\') && (end - at > 1) && ((at[1] == '"') || (at[1] == '\\'));
}

/* The ';' in front of the next parameter; NULL: there is none. In quotes it is a character. */
static const char *next_parameter(const char *at, const char *end)
{
    bool quoted = false;

    for (; at < end; at++) {
        if (quoted && is_escape(at, end))
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && (*at == ';'))
            return at;
    }
    return NULL;
}

/* The value of parameter `name` in [at, end), behind a ';': as it is, or in quotes. False: it has
 * none, or a longer one than `size`, which is cut. */
static bool take_parameter(const char *at, const char *end, const char *name, char *to, size_t size)
{
    size_t n = strlen(name), k = 0;
    bool quoted, fits = true;

    for (;;) {
        at = next_parameter(at, end);
        if (at == NULL) return false;
        for (at++; (at < end) && ((*at == ' ') || (*at == '\t'));) at++;
        if (((size_t)(end - at) > n) && (strncasecmp(at, name, n) == 0) && (at[n] == '=')) break;
    }
    at += n + 1;
    quoted = (at < end) && (*at == '"');
    for (at += quoted; at < end; at++) {
        if (quoted ? (*at == '"') : ((*at == ';') || (*at == ' ') || (*at == '\t'))) break;
        if (quoted && is_escape(at, end)) at++;
        if (k + 1 < size)
            to[k++] = *at;
        else
            fits = false;
    }
    to[k] = '\0';
    return fits;
}

const char *ct_multipart_begin(ct_multipart *m, const char *type, const char *body, size_t size)
{
    char boundary[CT_MULTIPART_NAME];

    *m = (ct_multipart){ .at = body, .end = body + size };
    if (!take_parameter(type, type + strlen(type), "boundary", boundary, sizeof(boundary)) ||
        (boundary[0] == '\0') || (strlen(boundary) > 70))
        return "the Content-Type multipart/form-data has no boundary of 1 to 70 characters";
    snprintf(m->limit, sizeof(m->limit), "--%s", boundary);
    while ((m->at != NULL) && !begins(m->at, m->end, m->limit)) { /* what stands before the parts */
        m->at = find(m->at, m->end, "\r\n");
        if (m->at != NULL) m->at += 2;
    }
    if (m->at == NULL) return "the body has no part: nowhere does a line begin with the boundary";
    m->at += strlen(m->limit);
    return NULL;
}

/* The header lines of a part, up to the empty one; NULL: it does not come. */
static const char *read_headers(const char *at, const char *end, ct_multipart_part *part)
{
    static const char name[] = "content-disposition:";

    for (;;) {
        const char *line_end = find(at, end, "\r\n");

        if (line_end == NULL) return NULL;
        if (line_end == at) return at + 2;
        if (((size_t)(line_end - at) >= sizeof(name) - 1) &&
            (strncasecmp(at, name, sizeof(name) - 1) == 0)) {
            (void)take_parameter(at, line_end, "filename", part->file, sizeof(part->file));
            part->is_file = (part->file[0] != '\0');
        }
        at = line_end + 2;
    }
}

const char *ct_multipart_next(ct_multipart *m, ct_multipart_part *part)
{
    char limit[sizeof(m->limit) + 2];
    const char *end;

    memset(part, 0, sizeof(*part));
    if (begins(m->at, m->end, "--")) {
        m->over = true;
        return NULL;
    }
    while ((m->at < m->end) && ((*m->at == ' ') || (*m->at == '\t'))) m->at++;
    if (!begins(m->at, m->end, "\r\n")) return "a boundary is followed by other than a new line";
    m->at = read_headers(m->at + 2, m->end, part);
    if (m->at == NULL) return "the headers of a part do not end";
    snprintf(limit, sizeof(limit), "\r\n%s", m->limit);
    end = find(m->at - 2, m->end, limit); /* a part may be empty */
    if (end == NULL) return "the last part does not end with the boundary";
    part->data = m->at;
    part->size = (end > m->at) ? (size_t)(end - m->at) : 0;
    m->at = end + strlen(limit);
    return NULL;
}
