/* A machine as its file, a prototxt: read and checked, written. */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/name_map.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"
#include "topology/names.h"
#include "topology/node_class.h"

static const double MOST = 1e9; /* of any figure in its unit, and 1 / it the least */

enum { CT_MOST_TORUS_SIDE = 1 << 20 };

typedef struct reader {
    const ct_source_map *map;
    ct_machine *m;
    int n_child[CT_MAX_LEVEL]; /* of the fullest switch of each level: what the names say */
    ct_name_map switches;
} reader;

/* "FILE:LINE: …" of the message. */
__attribute__((format(printf, 3, 4))) static ct_status fail_at(const reader *r, const void *message,
                                                               const char *fmt, ...)
{
    ct_place place = ct_source_map_find(r->map, message);
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (place.line == 0) return CT_FAIL(CT_ERR_CONFIG, "%s: %s", place.file, text);
    return CT_FAIL(CT_ERR_CONFIG, "%s:%d: %s", place.file, place.line, text);
}

/* ---- levels */

/* A figure that must be given and above 0 (or_zero: or 0). */
static ct_status check_figure(const reader *r, const Ct__MachineLevelParameter *p,
                              const char *field, bool given, double v, bool or_zero)
{
    if (!given) return fail_at(r, p, "level \"%s\": %s must be given", p->name, field);
    if (!isfinite(v) || (v < 0) || (!or_zero && (v == 0)))
        return fail_at(r, p, "level \"%s\": %s is %g; it must be %s 0", p->name, field, v,
                       or_zero ? "at least" : "above");
    if ((v > MOST) || ((v != 0) && (v < 1 / MOST)))
        return fail_at(r, p, "level \"%s\": %s is %g, which no machine has", p->name, field, v);
    return CT_OK;
}

static ct_status read_uplink(const reader *r, const Ct__MachineLevelParameter *p, ct_level *l)
{
    if (p->has_uplink_gbs && p->has_oversubscription)
        return fail_at(r, p, "level \"%s\": uplink_gbs and oversubscription say the same; give one",
                       p->name);
    l->uplink = 0;
    if (p->has_uplink_gbs) {
        CT_TRY(check_figure(r, p, "uplink_gbs", true, p->uplink_gbs, false));
        l->uplink = p->uplink_gbs * 1e9;
    }
    if (p->has_oversubscription) {
        CT_TRY(check_figure(r, p, "oversubscription", true, p->oversubscription, false));
        l->uplink = -p->oversubscription;
    }
    return CT_OK;
}

/* Bytes and microseconds of the i-th of a list of times. */
static ct_status check_time(const reader *r, const char *whose, Ct__MessageTimeParameter **time,
                            int i)
{
    const Ct__MessageTimeParameter *t = time[i];
    static const char *const name[] = { "us", "shift_us", "one_way_us" };
    const double us[] = { t->us, t->has_shift_us ? t->shift_us : t->us,
                          t->has_one_way_us ? t->one_way_us : t->us };

    if ((t->bytes < 1) || ((i > 0) && (t->bytes <= time[i - 1]->bytes)))
        return fail_at(r, t, "%s: a time of %lld bytes; bytes ascend from 1", whose,
                       (long long)t->bytes);
    for (size_t k = 0; k < sizeof(us) / sizeof(us[0]); ++k) {
        if (!isfinite(us[k]) || (us[k] <= 0) || (us[k] > MOST))
            return fail_at(r, t, "%s: %s of %lld bytes is %g; it must be above 0", whose, name[k],
                           (long long)t->bytes, us[k]);
    }
    return CT_OK;
}

static ct_status check_times(const reader *r, const char *whose, Ct__MessageTimeParameter **time,
                             size_t n)
{
    if (n > CT_MAX_TIME)
        return fail_at(r, time[CT_MAX_TIME], "%s: more than %d times", whose, CT_MAX_TIME);
    for (int i = 0; i < (int)n; ++i) CT_TRY(check_time(r, whose, time, i));
    return CT_OK;
}

static ct_status read_times(const reader *r, const Ct__MachineLevelParameter *p, ct_level *l)
{
    char whose[sizeof(l->name) + 16];

    snprintf(whose, sizeof(whose), "level \"%s\"", l->name);
    CT_TRY(check_times(r, whose, p->time, p->n_time));
    l->n_time = (int)p->n_time;
    for (int i = 0; i < l->n_time; ++i) {
        const Ct__MessageTimeParameter *t = p->time[i];

        l->time_bytes[i] = (double)t->bytes;
        l->time_s[CT_PATTERN_SWAP][i] = t->us / 1e6;
        l->time_s[CT_PATTERN_SHIFT][i] = (t->has_shift_us ? t->shift_us : t->us) / 1e6;
        l->time_s[CT_PATTERN_ONE_WAY][i] = (t->has_one_way_us ? t->one_way_us : t->us) / 1e6;
    }
    return CT_OK;
}

static ct_status read_torus(const reader *r, const Ct__MachineLevelParameter *p, ct_level *l)
{
    if (p->n_torus > CT_MAX_TORUS)
        return fail_at(r, p, "level \"%s\": a torus of %zu dimensions; 1 to %d are known", p->name,
                       p->n_torus, CT_MAX_TORUS);
    for (size_t d = 0; d < p->n_torus; ++d) {
        if ((p->torus[d] < 1) || (p->torus[d] > CT_MOST_TORUS_SIDE))
            return fail_at(r, p, "level \"%s\": torus is %d along a dimension; it must be 1 to %d",
                           p->name, p->torus[d], CT_MOST_TORUS_SIDE);
        l->torus.dim[l->torus.n_dim++] = p->torus[d];
    }
    CT_TRY(check_figure(r, p, "hop_us", true, p->hop_us, true));
    l->hop_s = p->hop_us / 1e6;
    if (p->hop_us > p->latency_us)
        return fail_at(r, p, "level \"%s\": hop_us is %g, more than latency_us, %g", p->name,
                       p->hop_us, p->latency_us);
    if (l->torus.n_dim == 0)
        return p->has_hop_us
                   ? fail_at(r, p, "level \"%s\": hop_us says nothing without torus", p->name)
                   : CT_OK;
    if (p->pairwise)
        return fail_at(r, p, "level \"%s\": either pairwise or a torus; give one", p->name);
    if (p->n_time > 0)
        return fail_at(r, p, "level \"%s\": times are those of a fit; there is none of a torus",
                       p->name);
    if (ct_torus_nodes(&l->torus) > INT_MAX)
        return fail_at(r, p, "level \"%s\": a torus of more than %d nodes", p->name, INT_MAX);
    if (l->size == 0) l->size = ct_torus_nodes(&l->torus);
    if (l->size != ct_torus_nodes(&l->torus))
        return fail_at(r, p, "level \"%s\": size is %lld, but its torus has %lld nodes", p->name,
                       (long long)l->size, (long long)ct_torus_nodes(&l->torus));
    return CT_OK;
}

static ct_status read_level(const reader *r, const Ct__MachineLevelParameter *p, ct_level *l)
{
    if ((p->name == NULL) || (p->name[0] == '\0'))
        return fail_at(r, p, "a level has no name, such as \"node\"");
    if (strlen(p->name) >= sizeof(l->name))
        return fail_at(r, p, "level \"%s\": its name is longer than %zu characters", p->name,
                       sizeof(l->name) - 1);
    strcpy(l->name, p->name);
    if ((p->size < 0) || (p->size > INT_MAX))
        return fail_at(r, p, "level \"%s\": size is %lld; it must be 0 (as many as come) to %d",
                       p->name, (long long)p->size, INT_MAX);
    l->size = p->size;
    CT_TRY(check_figure(r, p, "latency_us", p->has_latency_us, p->latency_us, true));
    CT_TRY(check_figure(r, p, "bandwidth_gbs", p->has_bandwidth_gbs, p->bandwidth_gbs, false));
    CT_TRY(check_figure(r, p, "bus_gbs", true, p->bus_gbs, true));
    CT_TRY(check_figure(r, p, "burst_mb", true, p->burst_mb, true));
    CT_TRY(check_figure(r, p, "residual", true, p->residual, true));
    CT_TRY(read_uplink(r, p, l));
    CT_TRY(read_times(r, p, l));
    l->latency_s = p->latency_us / 1e6;
    l->bandwidth = p->bandwidth_gbs * 1e9;
    l->bus = p->bus_gbs * 1e9;
    l->burst = p->burst_mb * 1e6;
    l->residual = p->residual;
    l->pairwise = (p->pairwise != 0);
    return read_torus(r, p, l);
}

static ct_status fail_no_node(const reader *r, const Ct__MachineParameter *p)
{
    static const char *const node[] = { "node" };

    for (size_t l = 0; l < p->n_level; ++l) {
        if (ct_text_nearest(p->level[l]->name, node, 1) != NULL)
            return fail_at(r, p->level[l], "no level is named \"node\"; is \"%s\" meant?",
                           p->level[l]->name);
    }
    return fail_at(r, p->level[0],
                   "no level is named \"node\": which vertices share memory is not known");
}

static ct_status read_levels(reader *r, const Ct__MachineParameter *p)
{
    ct_machine *m = r->m;

    if ((p->n_level < 2) || (p->n_level > CT_MAX_LEVEL))
        return fail_at(r, (p->n_level > 0) ? (const void *)p->level[0] : (const void *)p,
                       "a machine has 2 to %d levels, a node and a machine at least; %zu are given",
                       CT_MAX_LEVEL, p->n_level);
    m->n_level = (int)p->n_level;
    m->node_level = -1;
    for (int l = 0; l < m->n_level; ++l) {
        CT_TRY(read_level(r, p->level[l], &m->level[l]));
        if (strcmp(m->level[l].name, "node") == 0) m->node_level = l;
        for (int k = 0; k < l; ++k) {
            if (strcmp(m->level[k].name, m->level[l].name) == 0)
                return fail_at(r, p->level[l], "two levels are named \"%s\"", m->level[l].name);
        }
        if (m->level[l].pairwise && ((m->node_level < 0) || (m->node_level == l)))
            return fail_at(r, p->level[l], "level \"%s\": only levels above the node are pairwise",
                           m->level[l].name);
        if ((m->level[l].torus.n_dim > 0) && ((m->node_level < 0) || (m->node_level != l - 1)))
            return fail_at(r, p->level[l],
                           "level \"%s\": only the level right after the node is a torus",
                           m->level[l].name);
    }
    if (m->node_level < 0) return fail_no_node(r, p);
    if (m->node_level == m->n_level - 1)
        return fail_at(r, p->level[m->node_level],
                       "the last level is the machine; \"node\" must stand before it");
    return CT_OK;
}

/* ---- names */

typedef struct node_list {
    reader *r;
    const void *message;
    int at, n; /* the switch they are under, how many so far */
} node_list;

static ct_status add_node(void *ctx, const char *name)
{
    node_list *list = ctx;

    list->n += 1;
    return ct_names_add_node(list->r->m->names, name, list->at);
}

/* "FILE:LINE" of the message. */
static void say_place(const reader *r, const void *message, char *text, size_t size)
{
    ct_place place = ct_source_map_find(r->map, message);

    if (place.line == 0)
        snprintf(text, size, "%s", place.file);
    else
        snprintf(text, size, "%.250s:%d", place.file, place.line);
}

static ct_status add_nodes(reader *r, const void *message, char **nodes, size_t n_nodes, int at)
{
    node_list list = { r, message, at, 0 };
    int level = r->m->node_level + 1;
    char what[300];

    say_place(r, message, what, sizeof(what));
    for (size_t i = 0; i < n_nodes; ++i) CT_TRY(ct_hostlist_each(nodes[i], what, add_node, &list));
    if (list.n > r->n_child[level]) r->n_child[level] = list.n;
    return CT_OK;
}

static ct_status add_switch(reader *r, const Ct__MachineSwitchParameter *p, int level, int parent)
{
    const char *name = (p->name != NULL) ? p->name : "";
    int lowest = r->m->node_level + 1, at = 0;

    if (name[0] == '\0') return fail_at(r, p, "a switch has no name");
    if (level < lowest)
        return fail_at(r, p, "switch \"%s\": there is no level between it and the nodes", name);
    if ((level == lowest) ? (p->n_switch_ > 0) : (p->n_nodes > 0))
        return fail_at(r, p, "switch \"%s\" is of level \"%s\" and holds %s, not %s", name,
                       r->m->level[level].name, (level == lowest) ? "nodes" : "switches",
                       (level == lowest) ? "switches" : "nodes");
    if ((p->n_switch_ == 0) && (p->n_nodes == 0))
        return fail_at(r, p, "switch \"%s\" holds nothing", name);
    if (ct_name_map_find(&r->switches, name, strlen(name)) >= 0)
        return fail_at(r, p, "two switches are named \"%s\"", name);
    CT_TRY(ct_names_add_switch(r->m->names, name, level, parent, &at));
    CT_TRY(ct_name_map_put(&r->switches, name, at));
    if ((int)p->n_switch_ > r->n_child[level]) r->n_child[level] = (int)p->n_switch_;
    for (size_t i = 0; i < p->n_switch_; ++i) CT_TRY(add_switch(r, p->switch_[i], level - 1, at));
    return add_nodes(r, p, p->nodes, p->n_nodes, at);
}

/* A size that the names show; one that was given must hold them. */
static ct_status check_sizes(reader *r, const Ct__MachineParameter *p)
{
    for (int l = r->m->node_level + 1; l < r->m->n_level; ++l) {
        ct_level *level = &r->m->level[l];

        if ((level->size != 0) && (level->size < r->n_child[l]))
            return fail_at(r, p->level[l], "level \"%s\": size is %lld, but one holds %d by name",
                           level->name, (long long)level->size, r->n_child[l]);
        if (level->size == 0) level->size = r->n_child[l];
    }
    return CT_OK;
}

static const Ct__MachineSwitchParameter *find_switch(Ct__MachineSwitchParameter *const *p, size_t n,
                                                     const char *name)
{
    for (size_t i = 0; i < n; ++i) {
        const Ct__MachineSwitchParameter *below;

        if (strcmp(p[i]->name, name) == 0) return p[i];
        below = find_switch(p[i]->switch_, p[i]->n_switch_, name);
        if (below != NULL) return below;
    }
    return NULL;
}

/* Of node i an earlier one has the name: told at the switch of the later one. */
static ct_status fail_twice(const reader *r, const Ct__MachineParameter *p, int i)
{
    const ct_machine_names *names = r->m->names;
    const void *at = p;

    if (names->node_switch[i] >= 0)
        at = find_switch(p->switch_, p->n_switch_, names->sw[names->node_switch[i]].name);
    return fail_at(r, at, "node \"%s\" stands in two places", names->node[i]);
}

static ct_status read_names(reader *r, const Ct__MachineParameter *p)
{
    int top = r->m->n_level - 1, twice = -1;

    if ((p->n_switch_ == 0) && (p->n_nodes == 0)) return CT_OK;
    if ((p->n_nodes > 0) && (top != r->m->node_level + 1))
        return fail_at(r, p, "nodes stand below a switch of level \"%s\", not right below the %s",
                       r->m->level[r->m->node_level + 1].name, r->m->level[top].name);
    r->m->names = calloc(1, sizeof(*r->m->names));
    if (r->m->names == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names");
    r->n_child[top] = (int)p->n_switch_;
    for (size_t i = 0; i < p->n_switch_; ++i) CT_TRY(add_switch(r, p->switch_[i], top - 1, -1));
    CT_TRY(add_nodes(r, p, p->nodes, p->n_nodes, -1));
    if ((p->n_switch_ > 0) && (r->m->level[r->m->node_level + 1].torus.n_dim > 0))
        return fail_at(r, p->switch_[0],
                       "nodes of a torus stand below no switch: list them by `nodes`, "
                       "in the order of their places, the last dimension fastest");
    CT_TRY(ct_names_close(r->m->names, &twice));
    if (twice >= 0) return fail_twice(r, p, twice);
    return check_sizes(r, p);
}

/* ---- classes of nodes */

/* What plans of memory want to know. */
static ct_status read_tiers(const reader *r, const Ct__NodeClassParameter *p, ct_node_class *c)
{
    const struct {
        const char *name;
        bool given;
        double value, most;
    } f[] = { { "gpus", p->has_gpus && (p->gpus != 0), p->gpus, 1024 },
              { "gpu_memory_gib", p->has_gpu_memory_gib, p->gpu_memory_gib, MOST },
              { "gpu_gbs", p->has_gpu_gbs, p->gpu_gbs, MOST },
              { "host_gbs", p->has_host_gbs, p->host_gbs, MOST },
              { "file_read_gbs", p->has_file_read_gbs, p->file_read_gbs, MOST },
              { "file_write_gbs", p->has_file_write_gbs, p->file_write_gbs, MOST },
              { "gpu_tflops", p->has_gpu_tflops, p->gpu_tflops, MOST },
              { "gpu_half_tflops", p->has_gpu_half_tflops, p->gpu_half_tflops, MOST },
              { "gpu_usable", true, p->gpu_usable, 1 },
              { "memory_usable", true, p->memory_usable, 1 } };

    for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); ++i) {
        double v = f[i].value;

        if (f[i].given && (!isfinite(v) || (v < 1 / MOST) || (v > f[i].most)))
            return fail_at(r, p, "node_class \"%s\": %s is %g; it must be above 0, and at most %g",
                           p->name, f[i].name, v, f[i].most);
    }
    if ((p->gpus > 0) && !p->has_gpu_memory_gib)
        return fail_at(r, p, "node_class \"%s\": gpus needs gpu_memory_gib", p->name);
    c->gpus = p->gpus;
    c->gpu_memory = ldexp(p->gpu_memory_gib, 30);
    c->gpu_link = p->gpu_gbs * 1e9;
    c->host_bandwidth = p->host_gbs * 1e9;
    c->file_read = p->file_read_gbs * 1e9;
    c->file_write = p->file_write_gbs * 1e9;
    c->gpu_flop = p->gpu_tflops * 1e12;
    c->gpu_half_flop = (p->has_gpu_half_tflops ? p->gpu_half_tflops : p->gpu_tflops) * 1e12;
    c->gpu_usable = p->gpu_usable;
    c->memory_usable = p->memory_usable;
    return CT_OK;
}

static ct_status read_class(const reader *r, const Ct__NodeClassParameter *p, ct_node_class *c)
{
    const struct {
        const char *name;
        bool given;
        double value;
    } f[] = { { "speed", p->has_speed, p->speed },
              { "memory_gib", p->has_memory_gib, p->memory_gib },
              { "inside_gbs", p->has_inside_gbs, p->inside_gbs },
              { "inject_gbs", p->has_inject_gbs, p->inject_gbs } };

    if ((p->name == NULL) || (p->name[0] == '\0')) return fail_at(r, p, "a node_class has no name");
    if (strlen(p->name) >= sizeof(c->name))
        return fail_at(r, p, "node_class \"%s\": its name is longer than %zu characters", p->name,
                       sizeof(c->name) - 1);
    if (strpbrk(p->name, "\"\\\n") != NULL)
        return fail_at(r, p, "a node_class has quotes, backslashes or line ends in its name");
    for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); ++i) {
        double v = f[i].value;

        if (f[i].given && (!isfinite(v) || (v < 1 / MOST) || (v > MOST)))
            return fail_at(r, p, "node_class \"%s\": %s is %g; it must be above 0, and at most %g",
                           p->name, f[i].name, v, MOST);
    }
    if ((p->profile != NULL) &&
        ((strlen(p->profile) >= sizeof(c->profile)) || (strpbrk(p->profile, "\"\\\n") != NULL)))
        return fail_at(r, p,
                       "node_class \"%s\": profile has more than %zu characters, or quotes, "
                       "backslashes or line ends",
                       p->name, sizeof(c->profile) - 1);
    strcpy(c->name, p->name);
    if (p->profile != NULL) strcpy(c->profile, p->profile);
    c->speed = p->speed;
    c->memory = ldexp(p->memory_gib, 30);
    c->inside = p->inside_gbs * 1e9;
    c->inject = p->inject_gbs * 1e9;
    return read_tiers(r, p, c);
}

typedef struct class_list {
    const reader *r;
    const Ct__NodeClassParameter *p;
    int64_t n_node; /* of the machine */
    int at;         /* the class      */
} class_list;

static ct_status add_named(void *ctx, const char *name)
{
    const class_list *list = ctx;
    const ct_machine_names *names = list->r->m->names;
    int node = ct_names_find(names, name);
    const char *near = NULL;

    if (node >= 0) return ct_node_runs_add(list->r->m, node, node, list->at);
    near = ct_text_nearest(name, (const char *const *)names->node, names->n_node);
    return fail_at(list->r, list->p, "node_class \"%s\": the file names no node \"%s\"%s%s%s",
                   list->p->name, name, (near != NULL) ? "; did you mean \"" : "",
                   (near != NULL) ? near : "", (near != NULL) ? "\"?" : "");
}

static ct_status add_numbered(const class_list *list, const char *nodes)
{
    const char *name = list->p->name, *rest = nodes;
    int64_t first = 0, last = 0;

    do {
        if (!ct_node_numbers_next(&rest, &first, &last))
            return fail_at(list->r, list->p,
                           "node_class \"%s\": nodes \"%s\": expected numbers such as \"0-3,8\"",
                           name, nodes);
        if (last < first)
            return fail_at(list->r, list->p,
                           "node_class \"%s\": nodes \"%s\": %lld-%lld runs backwards", name, nodes,
                           (long long)first, (long long)last);
        if (last >= list->n_node)
            return fail_at(list->r, list->p,
                           "node_class \"%s\": there is no node %lld: the machine has %lld, from 0",
                           name, (long long)last, (long long)list->n_node);
        CT_TRY(ct_node_runs_add(list->r->m, first, last, list->at));
    } while (*rest != '\0');
    return CT_OK;
}

/* "3", "3 and 2 more", or a name. */
static const char *name_fault(const reader *r, const ct_node_fault *fault, char *text, size_t size)
{
    int64_t more = fault->last - fault->first;
    char number[24];

    snprintf(number, sizeof(number), "%lld", (long long)fault->first);
    snprintf(text, size, "%s", (r->m->names != NULL) ? r->m->names->node[fault->first] : number);
    if (more > 0)
        snprintf(text + strlen(text), size - strlen(text), " and %lld more", (long long)more);
    return text;
}

static ct_status close_classes(const reader *r, const Ct__MachineParameter *p, int64_t n_node)
{
    ct_node_fault fault = ct_node_runs_close(r->m, n_node);
    char text[300];

    if (fault.kind == CT_NODES_MISSING)
        return fail_at(r, p->node_class[p->n_node_class - 1],
                       "no node_class has node %s; every node is of one",
                       name_fault(r, &fault, text, sizeof(text)));
    if ((fault.kind == CT_NODES_TWICE) && (fault.a == fault.b))
        return fail_at(r, p->node_class[fault.b], "node_class \"%s\" has node %s twice",
                       r->m->node_class[fault.b].name, name_fault(r, &fault, text, sizeof(text)));
    if (fault.kind == CT_NODES_TWICE)
        return fail_at(r, p->node_class[fault.b], "node_class \"%s\" and \"%s\" both have node %s",
                       r->m->node_class[fault.a].name, r->m->node_class[fault.b].name,
                       name_fault(r, &fault, text, sizeof(text)));
    return CT_OK;
}

static ct_status read_classes(reader *r, const Ct__MachineParameter *p)
{
    ct_machine *m = r->m;
    class_list list = { .r = r, .n_node = ct_machine_n_node(m) };
    char what[300];

    if (p->n_node_class == 0) return CT_OK;
    if (m->names != NULL) list.n_node = m->names->n_node;
    if (p->n_node_class > CT_MAX_NODE_CLASS)
        return fail_at(r, p->node_class[CT_MAX_NODE_CLASS], "more than %d classes of nodes",
                       CT_MAX_NODE_CLASS);
    if ((p->n_node_class == 1) && (p->node_class[0]->n_nodes == 0)) { /* all nodes, however many */
        CT_TRY(read_class(r, p->node_class[0], &m->node_class[0]));
        m->n_node_class = 1;
        return CT_OK;
    }
    if (list.n_node == 0)
        return fail_at(r, p->node_class[0],
                       "node_class needs the number of nodes: name them, or give every level after "
                       "\"node\" a size");
    for (list.at = 0; list.at < (int)p->n_node_class; ++list.at) {
        list.p = p->node_class[list.at];
        CT_TRY(read_class(r, list.p, &m->node_class[list.at]));
        for (int k = 0; k < list.at; ++k) {
            if (strcmp(m->node_class[k].name, list.p->name) == 0)
                return fail_at(r, list.p, "two classes of nodes are named \"%s\"", list.p->name);
        }
        if (list.p->n_nodes == 0)
            return fail_at(r, list.p, "node_class \"%s\" has no nodes", list.p->name);
        say_place(r, list.p, what, sizeof(what));
        for (size_t i = 0; i < list.p->n_nodes; ++i)
            CT_TRY((m->names != NULL) ? ct_hostlist_each(list.p->nodes[i], what, add_named, &list)
                                      : add_numbered(&list, list.p->nodes[i]));
    }
    m->n_node_class = (int)p->n_node_class;
    return close_classes(r, p, list.n_node);
}

/* Sizes that are missing where something is computed from them. */
static ct_status check_open(const reader *r, const Ct__MachineParameter *p)
{
    const ct_machine *m = r->m;

    for (int l = m->node_level + 1; l < m->n_level; ++l) {
        if (m->level[l].pairwise && (m->level[l].size < 2))
            return fail_at(r, p->level[l], "level \"%s\": pairwise needs a size of 2 at least",
                           m->level[l].name);
        if ((m->level[l].uplink < 0) && (l > m->node_level + 1) && (m->level[l - 1].size == 0))
            return fail_at(r, p->level[l],
                           "level \"%s\": oversubscription needs the size of level \"%s\"",
                           m->level[l].name, m->level[l - 1].name);
    }
    if (ct_machine_product(m, 0, m->n_level - 1) > INT_MAX)
        return fail_at(r, p->level[m->n_level - 1], "the machine has room for more than %d ranks",
                       INT_MAX);
    return CT_OK;
}

static ct_status read_shared(const reader *r, const Ct__SharedMemoryParameter *p,
                             ct_shared_memory *s)
{
    static const char *const field[] = { "latency_us", "cached_gbs", "cached_mb", "gbs",
                                         "residual" };
    const double v[] = { p->latency_us, p->cached_gbs, p->cached_mb, p->gbs, p->residual };

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); ++i) {
        if (!isfinite(v[i]) || (v[i] < 0) || (v[i] > MOST))
            return fail_at(r, p, "shared: %s is %g; it must be 0 to %g", field[i], v[i], MOST);
    }
    if ((p->gbs == 0) || ((p->cached_mb > 0) && (p->cached_gbs == 0)))
        return fail_at(r, p, "shared: gbs, and with cached_mb cached_gbs too, must be above 0");
    s->latency_s = p->latency_us / 1e6;
    s->cached_bandwidth = p->cached_gbs * 1e9;
    s->cached = p->cached_mb * 1e6;
    s->bandwidth = p->gbs * 1e9;
    s->residual = p->residual;
    CT_TRY(check_times(r, "shared", p->time, p->n_time));
    s->n_time = (int)p->n_time;
    for (int i = 0; i < s->n_time; ++i) {
        s->time_bytes[i] = (double)p->time[i]->bytes;
        s->time_s[i] = p->time[i]->us / 1e6;
    }
    return CT_OK;
}

static ct_status read_coding(const reader *r, const Ct__CodingParameter *p, ct_codec_speed *s)
{
    const ct_codec_speed guess = ct_coding_estimate(p->memory_gbs * 1e9);
    const struct {
        const char *name;
        double value;
    } f[] = { { "memory_gbs", p->memory_gbs }, { "update_ns", p->update_ns },
              { "select_ns", p->select_ns },   { "pack_ns", p->pack_ns },
              { "add_ns", p->add_ns },         { "merge_ns", p->merge_ns },
              { "sign_ns", p->sign_ns },       { "unsign_ns", p->unsign_ns },
              { "factor_ns", p->factor_ns },   { "column_ns", p->column_ns },
              { "int8_ns", p->int8_ns },       { "unint8_ns", p->unint8_ns },
              { "int4_ns", p->int4_ns },       { "unint4_ns", p->unint4_ns },
              { "one_core", p->one_core } };

    for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); ++i) {
        double v = f[i].value;

        if (!isfinite(v) || (v < 0) || (v > MOST) || ((i == 0) && (v < 1 / MOST)))
            return fail_at(r, p, "coding: %s is %g; it must be %s 0, and at most %g", f[i].name, v,
                           (i == 0) ? "above" : "at least", MOST);
    }
    *s = (ct_codec_speed){ .memory = p->memory_gbs * 1e9,
                           .update_s = p->update_ns / 1e9,
                           .select_s = p->select_ns / 1e9,
                           .pack_s = p->pack_ns / 1e9,
                           .add_s = p->add_ns / 1e9,
                           .merge_s = p->merge_ns / 1e9,
                           .sign_s = p->has_sign_ns ? p->sign_ns / 1e9 : guess.sign_s,
                           .unsign_s = p->has_unsign_ns ? p->unsign_ns / 1e9 : guess.unsign_s,
                           .factor_s = p->has_factor_ns ? p->factor_ns / 1e9 : guess.factor_s,
                           .column_s = p->has_column_ns ? p->column_ns / 1e9 : guess.column_s,
                           .int8_s = p->has_int8_ns ? p->int8_ns / 1e9 : guess.int8_s,
                           .unint8_s = p->has_unint8_ns ? p->unint8_ns / 1e9 : guess.unint8_s,
                           .int4_s = p->has_int4_ns ? p->int4_ns / 1e9 : guess.int4_s,
                           .unint4_s = p->has_unint4_ns ? p->unint4_ns / 1e9 : guess.unint4_s,
                           .one_core = p->one_core,
                           .measured = true };
    if ((p->one_core > 0) && (p->one_core < 1))
        return fail_at(r, p, "coding: one_core is %g; it must be at least 1, or 0: not known",
                       p->one_core);
    return CT_OK;
}

static ct_status read_in_network(const reader *r, const Ct__InNetworkParameter *p, ct_in_network *n)
{
    const struct {
        const char *name;
        bool given;
        double value;
    } f[] = { { "bandwidth_gbs", p->has_bandwidth_gbs, p->bandwidth_gbs },
              { "latency_us", p->has_latency_us, p->latency_us } };

    for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); ++i) {
        if (!f[i].given) return fail_at(r, p, "in_network: %s must be given", f[i].name);
        if (!isfinite(f[i].value) || (f[i].value < 1 / MOST) || (f[i].value > MOST))
            return fail_at(r, p, "in_network: %s is %g; it must be above 0, and at most %g",
                           f[i].name, f[i].value, MOST);
    }
    if ((p->max_bytes < 0) || (p->max_bytes % 8 != 0))
        return fail_at(r, p, "in_network: max_bytes is %lld; it must be 0 or a multiple of 8",
                       (long long)p->max_bytes);
    *n = (ct_in_network){ .bandwidth = p->bandwidth_gbs * 1e9,
                          .latency_s = p->latency_us / 1e6,
                          .max_bytes = p->max_bytes };
    return CT_OK;
}

static ct_status read_machine(reader *r, const Ct__MachineParameter *p)
{
    ct_machine *m = r->m;

    if (!isfinite(p->sum_gbs) || (p->sum_gbs < 0) || (p->sum_gbs > MOST))
        return fail_at(r, &p->sum_gbs, "sum_gbs is %g; it must be 0 to %g", p->sum_gbs, MOST);
    if (p->name != NULL) snprintf(m->name, sizeof(m->name), "%s", p->name);
    snprintf(m->source, sizeof(m->source), "%s", (p->source != NULL) ? p->source : "");
    m->sum_bandwidth = p->sum_gbs * 1e9;
    if (p->shared != NULL) CT_TRY(read_shared(r, p->shared, &m->shared));
    if (p->in_network != NULL) CT_TRY(read_in_network(r, p->in_network, &m->in_network));
    if (p->coding != NULL) CT_TRY(read_coding(r, p->coding, &m->coding));
    CT_TRY(read_levels(r, p));
    CT_TRY(read_names(r, p));
    CT_TRY(check_open(r, p));
    CT_TRY(read_classes(r, p));
    ct_machine_fill_uplinks(m, NULL);
    return CT_OK;
}

ct_status ct_machine_parse(const char *name, const char *text, size_t size, ct_machine **machine_p)
{
    ct_source_map *map = NULL;
    ProtobufCMessage *message = NULL;
    ct_status status = CT_OK;
    reader r = { 0 };

    CT_TRY(ct_source_map_create(&map));
    CT_TRY_GOTO(
        status, done,
        ct_prototxt_parse(&ct__machine_parameter__descriptor, name, text, size, map, &message));
    r.map = map;
    r.m = calloc(1, sizeof(*r.m));
    if (r.m == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a machine");
        goto done;
    }
    snprintf(r.m->name, sizeof(r.m->name), "%.63s", ct_path_base(name)); /* where it gives none */
    status = read_machine(&r, (const Ct__MachineParameter *)(const void *)message);
    if (status == CT_OK)
        *machine_p = r.m;
    else
        ct_machine_destroy(r.m);

done:
    if (message != NULL) protobuf_c_message_free_unpacked(message, NULL);
    ct_source_map_destroy(map);
    ct_name_map_destroy(&r.switches);
    return status;
}

/* ---- writing */

/* 12 digits are more than anybody measures, and survive the way from one unit to the other. */
static double tidy(double v)
{
    char text[40];

    snprintf(text, sizeof(text), "%.12g", v);
    return strtod(text, NULL);
}

typedef struct times {
    Ct__MessageTimeParameter time[CT_MAX_TIME], *pointer[CT_MAX_TIME];
} times;

static void fill_time(double bytes, double seconds, times *t, int i)
{
    ct__message_time_parameter__init(&t->time[i]);
    t->time[i].has_bytes = t->time[i].has_us = 1;
    t->time[i].bytes = (int64_t)bytes;
    t->time[i].us = tidy(seconds * 1e6);
    t->pointer[i] = &t->time[i];
}

static void fill_times(const ct_level *l, times *t)
{
    for (int i = 0; i < l->n_time; ++i) {
        Ct__MessageTimeParameter *p = &t->time[i];
        double swap = l->time_s[CT_PATTERN_SWAP][i];
        double shift = l->time_s[CT_PATTERN_SHIFT][i], way = l->time_s[CT_PATTERN_ONE_WAY][i];

        fill_time(l->time_bytes[i], swap, t, i);
        p->has_shift_us = (shift != swap);
        p->shift_us = p->has_shift_us ? tidy(shift * 1e6) : 0;
        p->has_one_way_us = (way != swap);
        p->one_way_us = p->has_one_way_us ? tidy(way * 1e6) : 0;
    }
}

static void fill_level(const ct_level *l, Ct__MachineLevelParameter *p, times *t)
{
    ct__machine_level_parameter__init(p);
    fill_times(l, t);
    p->n_time = (size_t)l->n_time;
    p->time = t->pointer;
    p->name = (char *)(uintptr_t)l->name; /* only read */
    p->has_size = (l->size != 0);
    p->size = l->size;
    p->has_latency_us = p->has_bandwidth_gbs = 1;
    p->latency_us = tidy(l->latency_s * 1e6);
    p->bandwidth_gbs = tidy(l->bandwidth / 1e9);
    p->has_uplink_gbs = (l->uplink > 0);
    p->uplink_gbs = p->has_uplink_gbs ? tidy(l->uplink / 1e9) : 0;
    p->has_oversubscription = (l->uplink < 0);
    p->oversubscription = p->has_oversubscription ? tidy(-l->uplink) : 0;
    p->has_pairwise = p->pairwise = l->pairwise;
    p->n_torus = (size_t)l->torus.n_dim;
    p->torus = (int32_t *)(uintptr_t)l->torus.dim; /* only read */
    p->has_hop_us = (l->hop_s > 0);
    p->hop_us = tidy(l->hop_s * 1e6);
    p->has_bus_gbs = (l->bus > 0);
    p->bus_gbs = tidy(l->bus / 1e9);
    p->has_burst_mb = (l->burst > 0);
    p->burst_mb = tidy(l->burst / 1e6);
    p->has_residual = (l->residual > 0);
    p->residual = tidy(l->residual);
}

static void fill_shared(const ct_shared_memory *s, Ct__SharedMemoryParameter *p, times *t)
{
    ct__shared_memory_parameter__init(p);
    for (int i = 0; i < s->n_time; ++i) fill_time(s->time_bytes[i], s->time_s[i], t, i);
    p->n_time = (size_t)s->n_time;
    p->time = t->pointer;
    p->has_latency_us = p->has_cached_gbs = p->has_cached_mb = p->has_gbs = p->has_residual = 1;
    p->latency_us = tidy(s->latency_s * 1e6);
    p->cached_gbs = tidy(s->cached_bandwidth / 1e9);
    p->cached_mb = tidy(s->cached / 1e6);
    p->gbs = tidy(s->bandwidth / 1e9);
    p->residual = tidy(s->residual);
}

static void fill_coding(const ct_codec_speed *s, Ct__CodingParameter *p)
{
    ct__coding_parameter__init(p);
    p->has_memory_gbs = p->has_update_ns = p->has_select_ns = 1;
    p->has_pack_ns = p->has_add_ns = p->has_merge_ns = 1;
    p->memory_gbs = tidy(s->memory / 1e9);
    p->update_ns = tidy(s->update_s * 1e9);
    p->select_ns = tidy(s->select_s * 1e9);
    p->pack_ns = tidy(s->pack_s * 1e9);
    p->add_ns = tidy(s->add_s * 1e9);
    p->merge_ns = tidy(s->merge_s * 1e9);
    p->has_sign_ns = p->has_unsign_ns = p->has_factor_ns = p->has_column_ns = 1;
    p->sign_ns = tidy(s->sign_s * 1e9);
    p->unsign_ns = tidy(s->unsign_s * 1e9);
    p->factor_ns = tidy(s->factor_s * 1e9);
    p->column_ns = tidy(s->column_s * 1e9);
    p->has_int8_ns = p->has_unint8_ns = p->has_int4_ns = p->has_unint4_ns = 1;
    p->int8_ns = tidy(s->int8_s * 1e9);
    p->unint8_ns = tidy(s->unint8_s * 1e9);
    p->int4_ns = tidy(s->int4_s * 1e9);
    p->unint4_ns = tidy(s->unint4_s * 1e9);
    p->has_one_core = (s->one_core > 0);
    p->one_core = tidy(s->one_core);
}

static void fill_in_network(const ct_in_network *n, Ct__InNetworkParameter *p)
{
    ct__in_network_parameter__init(p);
    p->has_bandwidth_gbs = p->has_latency_us = 1;
    p->bandwidth_gbs = tidy(n->bandwidth / 1e9);
    p->latency_us = tidy(n->latency_s * 1e6);
    p->has_max_bytes = (n->max_bytes > 0);
    p->max_bytes = n->max_bytes;
}

static void indent(ct_text *out, int depth)
{
    ct_text_add(out, "%*s", 2 * depth, "");
}

/* Nodes right below `at` stand together, as the reader put them. */
static void write_nodes(const ct_machine_names *n, int at, int depth, ct_text *out)
{
    int first = 0, last = 0;

    while ((first < n->n_node) && (n->node_switch[first] != at)) first += 1;
    for (last = first; (last < n->n_node) && (n->node_switch[last] == at);) last += 1;
    if (first == last) return;
    indent(out, depth);
    ct_text_add(out, "nodes: \"");
    ct_hostlist_add(out, n->node + first, last - first);
    ct_text_add(out, "\"\n");
}

static void add_switches(const ct_machine_names *n, int parent, int depth, ct_text *out)
{
    for (int i = 0; i < n->n_switch; ++i) {
        if (n->sw[i].parent != parent) continue;
        indent(out, depth);
        ct_text_add(out, "switch {\n");
        indent(out, depth + 1);
        ct_text_add(out, "name: \"%s\"\n", n->sw[i].name);
        write_nodes(n, i, depth + 1, out);
        add_switches(n, i, depth + 1, out);
        indent(out, depth);
        ct_text_add(out, "}\n");
    }
}

static void write_tiers(const ct_node_class *c, ct_text *out)
{
    const struct {
        const char *name;
        double value, unset;
    } f[] = { { "gpus", c->gpus, 0 },
              { "gpu_memory_gib", ldexp(c->gpu_memory, -30), 0 },
              { "gpu_gbs", c->gpu_link / 1e9, 0 },
              { "host_gbs", c->host_bandwidth / 1e9, 0 },
              { "file_read_gbs", c->file_read / 1e9, 0 },
              { "file_write_gbs", c->file_write / 1e9, 0 },
              { "gpu_tflops", c->gpu_flop / 1e12, 0 },
              { "gpu_half_tflops", c->gpu_half_flop / 1e12, c->gpu_flop / 1e12 },
              { "gpu_usable", c->gpu_usable, 1 },
              { "memory_usable", c->memory_usable, 1 } };

    for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); ++i) {
        if ((f[i].value != f[i].unset) && (f[i].value > 0))
            ct_text_add(out, "  %s: %.12g\n", f[i].name, f[i].value);
    }
}

static void write_classes(const ct_machine *m, ct_text *out)
{
    bool all = (m->n_node_class == 1) && (m->n_node_run == 0);

    for (int i = 0; (all || (m->n_node_run > 0)) && (i < m->n_node_class); ++i) {
        const ct_node_class *c = &m->node_class[i];

        ct_text_add(out, "node_class {\n  name: \"%s\"\n", c->name);
        if (!all) {
            ct_text_add(out, "  nodes: \"");
            ct_machine_list_nodes(m, i, out);
            ct_text_add(out, "\"\n");
        }
        ct_text_add(out, "  speed: %.12g\n", c->speed);
        if (c->memory > 0) ct_text_add(out, "  memory_gib: %.12g\n", ldexp(c->memory, -30));
        if (c->inside > 0) ct_text_add(out, "  inside_gbs: %.12g\n", c->inside / 1e9);
        if (c->inject > 0) ct_text_add(out, "  inject_gbs: %.12g\n", c->inject / 1e9);
        if (c->profile[0] != '\0') ct_text_add(out, "  profile: \"%s\"\n", c->profile);
        write_tiers(c, out);
        ct_text_add(out, "}\n");
    }
}

ct_status ct_machine_write(const ct_machine *m, ct_text *out)
{
    Ct__MachineLevelParameter level[CT_MAX_LEVEL], *pointer[CT_MAX_LEVEL];
    times time[CT_MAX_LEVEL], sums;
    Ct__MachineParameter p = CT__MACHINE_PARAMETER__INIT;
    Ct__SharedMemoryParameter shared;
    Ct__InNetworkParameter in_network;
    Ct__CodingParameter coding;

    p.name = (char *)(uintptr_t)m->name;
    if (m->source[0] != '\0') p.source = (char *)(uintptr_t)m->source;
    p.has_sum_gbs = (m->sum_bandwidth > 0);
    p.sum_gbs = tidy(m->sum_bandwidth / 1e9);
    p.n_level = (size_t)m->n_level;
    p.level = pointer;
    for (int l = 0; l < m->n_level; ++l) {
        fill_level(&m->level[l], &level[l], &time[l]);
        pointer[l] = &level[l];
    }
    fill_shared(&m->shared, &shared, &sums);
    if (m->shared.bandwidth > 0) p.shared = &shared;
    fill_in_network(&m->in_network, &in_network);
    if (m->in_network.bandwidth > 0) p.in_network = &in_network;
    fill_coding(&m->coding, &coding);
    if (m->coding.measured) p.coding = &coding;
    CT_TRY(ct_prototxt_write(&p.base, out));
    if (m->names != NULL) {
        write_nodes(m->names, -1, 0, out);
        add_switches(m->names, -1, 0, out);
    }
    write_classes(m, out);
    return out->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a machine's text") : CT_OK;
}
