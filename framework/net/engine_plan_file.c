/* The text of plans. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/net/engine_plan_impl.h"

#define TITLE "cortado plan 1"
enum { MAX_ROW = 100000, MAX_SECTION = 1000, MAX_LINE = 1000 };

/* ---- reading */

typedef struct reader {
    ct_engine_plan *p;
    const char *path, *at, *end; /* what is left */
    int line;                    /* the one at hand, from 1 */
    int n_row;                   /* of the text so far      */
    int section;                 /* -1: none yet            */
    int n_mine;
} reader;

static ct_status damaged(const reader *r, const char *what)
{
    return CT_FAIL(CT_ERR_DATA, "%s:%d: damaged plan: %s", r->path, r->line, what);
}

/* The next line without its end; false where there is none. A last line must end, too. */
static ct_status next_line(reader *r, char *line, bool *there_p)
{
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    size_t n;

    *there_p = (r->at < r->end);
    if (!*there_p) return CT_OK;
    r->line++;
    if (stop == NULL) return damaged(r, "the last line is cut short");
    n = (size_t)(stop - r->at);
    if (n >= MAX_LINE) return damaged(r, "a line of more than 1000 characters");
    for (size_t i = 0; i < n; i++) {
        if ((r->at[i] < ' ') || (r->at[i] > '~')) return damaged(r, "not plain text");
    }
    memcpy(line, r->at, n);
    line[n] = '\0';
    r->at = stop + 1;
    return CT_OK;
}

/* "text" at *at_p, which moves behind it; quotes and backslashes do not occur in it. */
static bool take_quoted(const char **at_p, char *out, size_t size)
{
    const char *at = *at_p, *stop;

    if (*at != '"') return false;
    stop = strchr(at + 1, '"');
    if ((stop == NULL) || ((size_t)(stop - at) > size)) return false;
    memcpy(out, at + 1, (size_t)(stop - at - 1));
    out[stop - at - 1] = '\0';
    *at_p = stop + 1;
    return true;
}

static bool take_word(const char **at_p, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*at_p, word, n) != 0) return false;
    *at_p += n;
    return true;
}

/* machine "CPU" SIMD threads N version "V" */
static bool parse_machine(const char *at, ct_engine_plan_machine *m)
{
    size_t n;
    char *stop;
    long threads;

    memset(m, 0, sizeof(*m));
    if (!take_word(&at, "machine ") || !take_quoted(&at, m->cpu, sizeof(m->cpu)) ||
        !take_word(&at, " "))
        return false;
    n = strcspn(at, " ");
    if ((n == 0) || (n >= sizeof(m->simd))) return false;
    memcpy(m->simd, at, n);
    at += n;
    if (!take_word(&at, " threads ") || (*at < '1') || (*at > '9')) return false;
    threads = strtol(at, &stop, 10);
    if (threads > 1000000) return false;
    m->threads = (int)threads;
    at = stop;
    return take_word(&at, " version ") && take_quoted(&at, m->version, sizeof(m->version)) &&
           (*at == '\0');
}

static ct_status find_section(reader *r, const ct_engine_plan_machine *m)
{
    ct_engine_plan *p = r->p;
    ct_engine_plan_section *grown;

    for (r->section = 0; r->section < p->n_section; r->section++) {
        if (ct_engine_plan_machine_equal(&p->section[r->section].machine, m)) return CT_OK;
    }
    if (p->n_section >= MAX_SECTION) return damaged(r, "more than 1000 machines");
    grown = realloc(p->section, (size_t)(p->n_section + 1) * sizeof(*grown));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    p->section = grown;
    grown[p->n_section++] = (ct_engine_plan_section){ .machine = *m };
    return CT_OK;
}

/* " NAME MS" of an engine; MS a number or "-". */
static bool take_engine(const char **at_p, ct_engine_plan_entry *row)
{
    ct_engine_plan_engine *e = &row->engine[row->n];
    const char *at = *at_p;
    char *stop;
    size_t n;

    if ((row->n == CT_ENGINE_PLAN_ENGINES) || !take_word(&at, " ")) return false;
    n = strcspn(at, " ");
    if ((n == 0) || (n >= sizeof(e->name)) || (at[n] != ' ')) return false;
    memcpy(e->name, at, n);
    e->name[n] = '\0';
    for (int i = 0; i < row->n; i++) {
        if (strcmp(row->engine[i].name, e->name) == 0) return false;
    }
    at += n + 1;
    if (*at == '-') {
        e->ms = -1.0;
        at++;
    } else {
        if ((*at < '0') || (*at > '9')) return false;
        e->ms = strtod(at, &stop);
        at = stop;
        if (!(e->ms >= 0.0) || !(e->ms < 1e12)) return false;
    }
    if ((*at != ' ') && (*at != '\0')) return false;
    row->n++;
    *at_p = at;
    return true;
}

/* KEY | NAME MS NAME MS … */
static ct_status parse_row(reader *r, const char *line)
{
    const char *bar = strstr(line, " |");
    ct_engine_plan_section *s;
    ct_engine_plan_entry row = { .n = 0 }, *kept;

    if (r->section < 0) return damaged(r, "a row before the first \"machine\"");
    if ((bar == NULL) || (bar == line) || ((size_t)(bar - line) >= sizeof(row.key)))
        return damaged(r, "expected KEY | ENGINE MS …");
    memcpy(row.key, line, (size_t)(bar - line));
    for (bar += 2; *bar != '\0';) {
        if (!take_engine(&bar, &row)) return damaged(r, "expected KEY | ENGINE MS …");
    }
    if (row.n == 0) return damaged(r, "a row without an engine");
    if (++r->n_row > MAX_ROW) return damaged(r, "more than 100000 rows");
    s = &r->p->section[r->section];
    r->n_mine += (r->section == 0);
    if (ct_engine_plan_find(s, row.key) != NULL) return CT_OK;
    kept = ct_engine_plan_add(s);
    if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan");
    *kept = row;
    return CT_OK;
}

static ct_status parse_end(reader *r, const char *line)
{
    char want[32];

    snprintf(want, sizeof(want), "end %d", r->n_row);
    if (strcmp(line, want) != 0) {
        char what[120];

        snprintf(what, sizeof(what), "\"%.40s\", but there are %d rows before it", line, r->n_row);
        return damaged(r, what);
    }
    if (r->at < r->end) {
        r->line++;
        return damaged(r, "something behind \"end\"");
    }
    return CT_OK;
}

static ct_status parse_all(reader *r)
{
    char line[MAX_LINE];
    ct_engine_plan_machine m;
    bool there;

    CT_TRY(next_line(r, line, &there));
    if (!there || (strcmp(line, TITLE) != 0)) {
        r->line = 1;
        return damaged(r, "the first line is not \"" TITLE "\"");
    }
    for (;;) {
        CT_TRY(next_line(r, line, &there));
        if (!there) {
            r->line++;
            return damaged(r, "it ends before \"end ROWS\"");
        }
        if (strncmp(line, "end ", 4) == 0) return parse_end(r, line);
        if ((line[0] == '\0') || (line[0] == '#')) continue;
        if (strncmp(line, "machine ", 8) == 0) {
            if (!parse_machine(line, &m))
                return damaged(r, "expected machine \"CPU\" SIMD threads N version \"V\"");
            CT_TRY(find_section(r, &m));
        } else {
            CT_TRY(parse_row(r, line));
        }
    }
}

/* The rows are somebody else's: whose, in one line. */
static void tell_foreign(const reader *r)
{
    const ct_engine_plan_machine *mine = &r->p->o.machine, *other = NULL;
    bool stale = false;

    for (int i = 1; i < r->p->n_section; i++) {
        const ct_engine_plan_machine *m = &r->p->section[i].machine;
        ct_engine_plan_machine as_mine = *m;

        if (stale || (r->p->section[i].n == 0)) continue;
        other = m;
        memcpy(as_mine.version, mine->version, sizeof(as_mine.version));
        stale = ct_engine_plan_machine_equal(&as_mine, mine);
    }
    if (other == NULL) return;
    if (stale) {
        CT_WARN(
            "plan %s is stale: its rows for this machine are of version %s, this is %s: they are "
            "not used",
            r->path, other->version, mine->version);
    } else {
        CT_WARN("plan %s is of another machine: \"%s\", %s, %d threads; this is \"%s\", %s, %d "
                "threads: its rows are not used",
                r->path, other->cpu, other->simd, other->threads, mine->cpu, mine->simd,
                mine->threads);
    }
}

static ct_status parse(ct_engine_plan *p, const char *path, const char *text, size_t size,
                       bool quiet)
{
    reader r = { .p = p, .path = path, .at = text, .end = text + size, .section = -1 };

    CT_TRY(parse_all(&r));
    if (!quiet && (r.n_mine == 0) && (r.n_row > 0)) tell_foreign(&r);
    return CT_OK;
}

static ct_status read_file(ct_engine_plan *p, const char *path, bool quiet)
{
    char *data = NULL;
    size_t size = 0;
    ct_status status;

    CT_TRY(ct_file_read(path, &data, &size));
    status = parse(p, path, data, size, quiet);
    free(data);
    return status;
}

ct_status ct_engine_plan_parse(ct_engine_plan *p, const char *path, const char *text, size_t size)
{
    return parse(p, path, text, size, false);
}

ct_status ct_engine_plan_read(ct_engine_plan *p, const char *path)
{
    return read_file(p, path, false);
}

/* ---- writing */

static void add_machine(ct_text *t, const ct_engine_plan_machine *m)
{
    ct_text_add(t, "machine \"%s\" %s threads %d version \"%s\"\n", m->cpu, m->simd, m->threads,
                m->version);
}

static void add_row(ct_text *t, const ct_engine_plan_entry *row)
{
    ct_text_add(t, "%s |", row->key);
    for (int i = 0; i < row->n; i++) {
        const ct_engine_plan_engine *e = &row->engine[i];

        if (e->ms < 0.0) {
            ct_text_add(t, " %s -", e->name);
        } else {
            ct_text_add(t, " %s %.6g", e->name, e->ms);
        }
    }
    ct_text_add(t, "\n");
}

/* asked: only rows that somebody asked for. */
static int add_section(ct_text *t, const ct_engine_plan_section *s, bool asked)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        if (asked && (s->row[i].n_asked == 0)) continue;
        if (n++ == 0) add_machine(t, &s->machine);
        add_row(t, &s->row[i]);
    }
    return n;
}

void ct_engine_plan_text(const ct_engine_plan *p, ct_text *out)
{
    int n = 0;

    for (int i = 0; i < p->section[0].n; i++) n += (p->section[0].row[i].n_asked > 0);
    if (n == 0) return;
    ct_text_add(out, TITLE "\n");
    n = add_section(out, &p->section[0], true);
    ct_text_add(out, "end %d\n", n);
}

static bool outdated(const ct_engine_plan *p, const ct_engine_plan_machine *m)
{
    const ct_engine_plan_machine *mine = &p->o.machine;

    return (strcmp(m->cpu, mine->cpu) == 0) && (strcmp(m->simd, mine->simd) == 0) &&
           (m->threads == mine->threads) && (strcmp(m->version, mine->version) != 0);
}

ct_status ct_engine_plan_write(ct_engine_plan *p, const char *path)
{
    ct_text t = { 0 };
    ct_status status;
    int n = 0;

    if (p->tally.n_timed == 0) return CT_OK;
    /* others may have completed it meanwhile; a file that is damaged now was not when it was read
     */
    if (access(path, F_OK) == 0) CT_TRY(read_file(p, path, true));
    ct_text_add(&t, TITLE "\n");
    for (int i = 0; i < p->n_section; i++) {
        if (!outdated(p, &p->section[i].machine)) n += add_section(&t, &p->section[i], false);
    }
    ct_text_add(&t, "end %d\n", n);
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                      : ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}
