/* What a `topology:` text says. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/base/name_map.h"
#include "topology/discover.h"
#include "topology/names.h"

static ct_status copy(const char *topology, const char *from, size_t n, char *to, size_t size)
{
    if (n >= size)
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%.40s…\": longer than %zu characters", topology,
                       size - 1);
    memcpy(to, from, n);
    to[n] = '\0';
    return CT_OK;
}

/* "MACHINE,RANKS_PER_NODE,PLACEMENT" */
static ct_status parse_place(const char *topology, const char *rest, ct_topo_text *t)
{
    const char *last = strrchr(rest, ','), *first = last;
    long n = 0;
    char *end = NULL;

    while ((first != NULL) && (first > rest) && (*--first != ',')) continue;
    if ((last == NULL) || (first == rest) || (*first != ','))
        return CT_FAIL(CT_ERR_CONFIG,
                       "topology \"%s\": expected place:MACHINE,RANKS_PER_NODE,PLACEMENT",
                       topology);
    n = isdigit((unsigned char)first[1]) ? strtol(first + 1, &end, 10) : 0;
    if ((n < 1) || (n > 1 << 20) || (end != last))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": \"%.*s\" ranks per node", topology,
                       (int)(last - first - 1), first + 1);
    t->ranks_per_node = (int)n;
    CT_TRY(ct_topo_check_placement(last + 1));
    CT_TRY(copy(topology, rest, (size_t)(first - rest), t->machine, sizeof(t->machine)));
    return copy(topology, last + 1, strlen(last + 1), t->spec, sizeof(t->spec));
}

static const char *behind(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);

    return (strncmp(text, prefix, n) == 0) ? text + n : NULL;
}

/* Other specs start with a number, but so may the name of a file. */
static bool is_spec(const char *text)
{
    if ((behind(text, "map:") != NULL) || (behind(text, "torus:") != NULL)) return true;
    return isdigit((unsigned char)text[0]) &&
           ((strchr(text, '@') != NULL) || !ct_machine_is_path(text));
}

/* "WORD" or "WORD@MACHINE"; false where the text is neither. */
static bool is_word(const char *topology, const char *word)
{
    const char *rest = behind(topology, word);

    return (rest != NULL) && ((*rest == '\0') || (*rest == '@'));
}

static ct_status parse_spec(const char *topology, ct_topo_text *t)
{
    const char *at = strchr(topology, '@');
    size_t n = (at != NULL) ? (size_t)(at - topology) : strlen(topology);

    while ((at != NULL) && (n > 0) && (topology[n - 1] == ' ')) n -= 1;
    CT_TRY(copy(topology, topology, n, t->spec, sizeof(t->spec)));
    if (at == NULL) return CT_OK;
    do {
        at += 1;
    } while (*at == ' ');
    if ((*at == '\0') || (behind(t->spec, "map:") != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": expected SPEC@MACHINE, such as 2x4@%s",
                       topology, ct_ready_machine_table[0].name);
    return copy(topology, at, strlen(at), t->machine, sizeof(t->machine));
}

ct_status ct_topo_text_parse(const char *topology, ct_topo_text *text_p)
{
    const char *conf = behind(topology, "slurm:"), *place = behind(topology, "place:");
    ct_topo_text t = { .kind = CT_TOPO_FILE };

    if (topology[0] == '\0') return CT_FAIL(CT_ERR_CONFIG, "topology \"\": expected \"auto\"");
    if (is_word(topology, "auto") || is_word(topology, "slurm")) {
        t.kind = (topology[0] == 'a') ? CT_TOPO_AUTO : CT_TOPO_SLURM;
        t.needs_names = (t.kind == CT_TOPO_SLURM);
        CT_TRY(parse_spec(topology, &t));
    } else if (conf != NULL) {
        t.kind = CT_TOPO_CONF;
        t.needs_names = true;
        CT_TRY(copy(topology, conf, strlen(conf), t.machine, sizeof(t.machine)));
        if (conf[0] == '\0')
            return CT_FAIL(CT_ERR_CONFIG, "topology \"slurm:\": expected slurm:FILE");
    } else if (place != NULL) {
        t.kind = CT_TOPO_PLACE;
        CT_TRY(parse_place(topology, place, &t));
    } else if (is_spec(topology)) {
        t.kind = CT_TOPO_SPEC;
        CT_TRY(parse_spec(topology, &t));
    } else {
        CT_TRY(copy(topology, topology, strlen(topology), t.machine, sizeof(t.machine)));
    }
    *text_p = t;
    return CT_OK;
}

const char *ct_topo_text_file(const ct_topo_text *text)
{
    if (text->machine[0] == '\0') return NULL;
    if (text->kind == CT_TOPO_CONF) return text->machine;
    return ct_machine_is_path(text->machine) ? text->machine : NULL;
}

ct_status ct_topo_text_machine(const ct_topo_text *text, const char *file, size_t size,
                               ct_machine **machine_p)
{
    const char *name = text->machine;

    *machine_p = NULL;
    if (name[0] == '\0') return CT_OK;
    if (text->kind == CT_TOPO_CONF) return ct_slurm_parse_conf(name, file, size, machine_p);
    if (file != NULL) return ct_machine_parse(name, file, size, machine_p);
    file = ct_machine_ready(name);
    if (file == NULL) return ct_machine_fail_unknown(name);
    return ct_machine_parse(name, file, strlen(file), machine_p);
}

/* ---- SLURM's topology.conf of tree form:
 *     SwitchName=leaf1 Nodes=n[1-16]
 *     SwitchName=spine Switches=leaf[1-4]
 * as a machine. A switch's level is its height over the nodes. */

typedef struct conf_switch {
    char *name, *nodes, *switches; /* NULL: not given */
    int line, parent, height;
} conf_switch;

typedef struct conf {
    const char *file;
    conf_switch *sw;
    int n, at; /* at: the switch in work */
    ct_machine *m;
    ct_name_map by_name; /* numbers of switches */
    int *named;          /* [n] index among the machine's switches */
    int *below, *beside; /* [n] a switch's first one below it, the next one below its own; -1 */
} conf;

static void destroy(conf *c)
{
    for (int i = 0; i < c->n; ++i) {
        free(c->sw[i].name);
        free(c->sw[i].nodes);
        free(c->sw[i].switches);
    }
    free(c->sw);
    free(c->named);
    free(c->below);
    free(c->beside);
    ct_name_map_destroy(&c->by_name);
    ct_machine_destroy(c->m);
}

/* ---- lines */

static ct_status set_word(conf *c, conf_switch *s, const char *key, size_t n_key, const char *value,
                          size_t n_value)
{
    static const struct {
        const char *key;
        size_t offset;
    } known[] = {
        { "SwitchName", offsetof(conf_switch, name) },
        { "Nodes", offsetof(conf_switch, nodes) },
        { "Switches", offsetof(conf_switch, switches) },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        char **word = (char **)(void *)((char *)s + known[i].offset);

        if ((strlen(known[i].key) != n_key) || (strncasecmp(known[i].key, key, n_key) != 0))
            continue;
        if (*word != NULL)
            return CT_FAIL(CT_ERR_CONFIG, "%s:%d: %s is given twice", c->file, s->line,
                           known[i].key);
        *word = strndup(value, n_value);
        return (*word != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for %s", c->file);
    }
    if ((n_key == strlen("LinkSpeed")) && (strncasecmp(key, "LinkSpeed", n_key) == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s:%d: unknown word \"%.*s\"; expected SwitchName, Nodes, Switches", c->file,
                   s->line, (int)n_key, key);
}

/* One line without its comment, KEY=VALUE words. */
static ct_status read_line(conf *c, const char *line, size_t n, int number)
{
    const char *end = line + n;
    conf_switch s = { .line = number, .parent = -1 }, *more = NULL;
    ct_status status = CT_OK;

    for (const char *p = line; (p < end) && (status == CT_OK);) {
        const char *word = p, *equals = NULL;

        if (isspace((unsigned char)*p)) {
            p += 1;
            continue;
        }
        while ((p < end) && !isspace((unsigned char)*p)) p += 1;
        equals = memchr(word, '=', (size_t)(p - word));
        if (equals == NULL)
            status = CT_FAIL(CT_ERR_CONFIG, "%s:%d: expected KEY=VALUE, got \"%.*s\"", c->file,
                             number, (int)(p - word), word);
        else
            status = set_word(c, &s, word, (size_t)(equals - word), equals + 1,
                              (size_t)(p - equals - 1));
    }
    if ((status == CT_OK) && (s.name == NULL) && (s.nodes == NULL) && (s.switches == NULL))
        return CT_OK; /* empty */
    if ((status == CT_OK) && ((s.name == NULL) || ((s.nodes == NULL) == (s.switches == NULL))))
        status = CT_FAIL(CT_ERR_CONFIG, "%s:%d: a switch has a SwitchName, and Nodes or Switches",
                         c->file, number);
    if (status == CT_OK) more = realloc(c->sw, sizeof(*c->sw) * (size_t)(c->n + 1));
    if ((status == CT_OK) && (more == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", c->file);
    if (status != CT_OK) {
        free(s.name);
        free(s.nodes);
        free(s.switches);
        return status;
    }
    c->sw = more;
    c->sw[c->n++] = s;
    return CT_OK;
}

static ct_status read_lines(conf *c, const char *text, size_t size)
{
    const char *end = text + size;
    int number = 1;

    for (const char *p = text; p < end; ++number) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = (newline != NULL) ? newline : end;
        const char *hash = memchr(p, '#', (size_t)(stop - p));

        CT_TRY(read_line(c, p, (size_t)(((hash != NULL) ? hash : stop) - p), number));
        p = stop + 1;
    }
    if (c->n == 0) return CT_FAIL(CT_ERR_CONFIG, "%s: names no switch", c->file);
    return CT_OK;
}

/* ---- the tree */

static ct_status adopt(void *ctx, const char *name)
{
    conf *c = ctx;
    const conf_switch *above = &c->sw[c->at];
    int i = ct_name_map_find(&c->by_name, name, strlen(name));

    if (i < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s:%d: switch \"%s\" has no line of its own", c->file,
                       above->line, name);
    if (c->sw[i].parent >= 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s:%d: switch \"%s\" stands below \"%s\" and \"%s\"",
                       c->file, above->line, name, c->sw[c->sw[i].parent].name, above->name);
    c->sw[i].parent = c->at;
    return CT_OK;
}

static ct_status fail_high(const conf *c)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: more than 4 levels of switches", c->file);
}

enum { MOST_WALK = 64 }; /* up a tree, which may have far fewer levels */

static ct_status join(conf *c)
{
    char what[300];

    for (int i = 0; i < c->n; ++i) {
        int k = ct_name_map_find(&c->by_name, c->sw[i].name, strlen(c->sw[i].name));

        if (k >= 0)
            return CT_FAIL(CT_ERR_CONFIG, "%s:%d: switch \"%s\" is described in line %d too",
                           c->file, c->sw[i].line, c->sw[i].name, c->sw[k].line);
        CT_TRY(ct_name_map_put(&c->by_name, c->sw[i].name, i));
    }
    for (c->at = 0; c->at < c->n; ++c->at) {
        snprintf(what, sizeof(what), "%.250s:%d", c->file, c->sw[c->at].line);
        if (c->sw[c->at].switches != NULL)
            CT_TRY(ct_hostlist_each(c->sw[c->at].switches, what, adopt, c));
    }
    /* heights, from every leaf up; a walk longer than there are switches runs in a circle */
    for (int i = 0; i < c->n; ++i) {
        int height = 0;

        for (int k = i; k >= 0; k = c->sw[k].parent, ++height) {
            if (height > c->n)
                return CT_FAIL(CT_ERR_CONFIG, "%s:%d: switch \"%s\" stands below itself", c->file,
                               c->sw[i].line, c->sw[i].name);
            if ((c->sw[i].nodes != NULL) && (height > c->sw[k].height)) c->sw[k].height = height;
        }
        if (height > MOST_WALK) return fail_high(c);
    }
    return CT_OK;
}

/* The only switch that no other holds, if it holds switches: it is the machine. */
static int only_root(const conf *c)
{
    int root = -1;

    for (int i = 0; i < c->n; ++i) {
        if (c->sw[i].parent >= 0) continue;
        if (root >= 0) return -1;
        root = i;
    }
    return ((root >= 0) && (c->sw[root].switches != NULL)) ? root : -1;
}

static ct_status add_node(void *ctx, const char *name)
{
    conf *c = ctx;

    return ct_names_add_node(c->m->names, name, c->named[c->at]);
}

/* Which switches a switch holds, in the order of their lines. */
static ct_status list_below(conf *c)
{
    size_t bytes = sizeof(int) * (size_t)c->n;

    c->below = malloc(bytes);
    c->beside = malloc(bytes);
    if ((c->below == NULL) || (c->beside == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", c->file);
    for (int i = 0; i < c->n; ++i) c->below[i] = c->beside[i] = -1;
    for (int i = c->n - 1; i >= 0; --i) {
        int parent = c->sw[i].parent;

        if (parent < 0) continue;
        c->beside[i] = c->below[parent];
        c->below[parent] = i;
    }
    return CT_OK;
}

/* Switch i, what it holds below it, depth first. */
static ct_status add_switch(conf *c, int i, int parent)
{
    char what[300];

    c->named[i] = -1; /* the root */
    if (c->sw[i].height + 1 < c->m->n_level - 1)
        CT_TRY(ct_names_add_switch(c->m->names, c->sw[i].name, c->sw[i].height + 1, parent,
                                   &c->named[i]));
    snprintf(what, sizeof(what), "%.250s:%d", c->file, c->sw[i].line);
    c->at = i;
    if (c->sw[i].nodes != NULL) return ct_hostlist_each(c->sw[i].nodes, what, add_node, c);
    for (int k = c->below[i]; k >= 0; k = c->beside[k]) CT_TRY(add_switch(c, k, c->named[i]));
    return CT_OK;
}

static ct_status build(conf *c)
{
    static const char *const above[] = { "node", "switch", "group", "island", "region" };
    int root = only_root(c), height = 0;
    int twice = -1;

    for (int i = 0; i < c->n; ++i) {
        if ((i != root) && (c->sw[i].height > height)) height = c->sw[i].height;
    }
    if (height + 2 > (int)(sizeof(above) / sizeof(above[0]))) return fail_high(c);
    c->m = calloc(1, sizeof(*c->m));
    c->named = calloc((size_t)c->n, sizeof(*c->named));
    if (c->m != NULL) c->m->names = calloc(1, sizeof(*c->m->names));
    if ((c->m == NULL) || (c->m->names == NULL) || (c->named == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", c->file);
    snprintf(c->m->name, sizeof(c->m->name), "slurm");
    snprintf(c->m->source, sizeof(c->m->source), "%.200s; the figures are guesses", c->file);
    c->m->sum_bandwidth = 10e9;
    c->m->n_level = height + 3; /* node, the switches, machine */
    for (int l = 0; l < c->m->n_level; ++l)
        ct_level_guess((l == c->m->n_level - 1) ? "machine" : above[l], l, &c->m->level[l]);
    CT_TRY(list_below(c));
    for (int i = 0; i < c->n; ++i) {
        if (c->sw[i].parent < 0) CT_TRY(add_switch(c, i, -1));
    }
    CT_TRY(ct_names_close(c->m->names, &twice));
    if (twice >= 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: node \"%s\" stands below two switches, one of them %s",
                       c->file, c->m->names->node[twice],
                       c->m->names->sw[c->m->names->node_switch[twice]].name);
    return CT_OK;
}

ct_status ct_slurm_parse_conf(const char *name, const char *text, size_t size,
                              ct_machine **machine_p)
{
    conf c = { .file = name };
    ct_status status = read_lines(&c, text, size);

    if (status == CT_OK) status = join(&c);
    if (status == CT_OK) status = build(&c);
    if (status == CT_OK) {
        *machine_p = c.m;
        c.m = NULL;
    }
    destroy(&c);
    return status;
}
