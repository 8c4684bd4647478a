/* Machines by file or by name. */
#include "topology/machine.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/base/file.h"
#include "topology/names.h"

void ct_machine_destroy(ct_machine *machine)
{
    if (machine == NULL) return;
    ct_names_destroy(machine->names);
    free(machine->node_run);
    free(machine);
}

int64_t ct_machine_product(const ct_machine *m, int first, int last)
{
    int64_t product = 1;

    for (int l = first; l <= last; ++l) {
        if (m->level[l].size == 0) return 0;
        product = (m->level[l].size > INT64_MAX / product) ? INT64_MAX : product * m->level[l].size;
    }
    return product;
}

int64_t ct_machine_n_node(const ct_machine *m)
{
    return ct_machine_product(m, m->node_level + 1, m->n_level - 1);
}

void ct_machine_fill_uplinks(ct_machine *m, const int64_t *n_member)
{
    for (int l = 0; l < m->n_level; ++l) {
        ct_level *at = &m->level[l];
        double own = at->bandwidth;

        if (at->uplink > 0) continue;
        if ((l != 0) && (l != m->node_level + 1)) {
            int64_t n = m->level[l - 1].size;

            if ((n == 0) && (n_member != NULL)) n = n_member[l - 1];
            if ((n == 0) || (m->level[l - 1].uplink <= 0)) continue;
            own = (double)n * m->level[l - 1].uplink;
        }
        if (ct_torus_ports(&at->torus) > 0) own *= ct_torus_ports(&at->torus);
        at->uplink = (at->uplink < 0) ? own / -at->uplink : own;
    }
}

/* Straight lines between the points, which ascend in x; before the first its y, beyond the last
 * `slope`. */
static double between(const double *x, const double *y, int n, double at, double slope)
{
    int i = 1;

    if (at <= x[0]) return y[0];
    if (at >= x[n - 1]) return y[n - 1] + (at - x[n - 1]) * slope;
    while (x[i] < at) i += 1;
    return y[i - 1] + (at - x[i - 1]) / (x[i] - x[i - 1]) * (y[i] - y[i - 1]);
}

double ct_level_message_s(const ct_level *l, ct_pattern pattern, double bytes)
{
    if (l->n_time == 0) return l->latency_s + bytes / l->bandwidth;
    return between(l->time_bytes, l->time_s[pattern], l->n_time, bytes, 1 / l->bandwidth);
}

double ct_shared_memory_s(const ct_shared_memory *m, double bytes)
{
    double cached = (bytes < m->cached) ? bytes : m->cached;
    double s = 2 * m->latency_s + 2 * (bytes - cached) / m->bandwidth;

    if (m->n_time > 0) return between(m->time_bytes, m->time_s, m->n_time, bytes, 2 / m->bandwidth);
    return (cached > 0) ? s + 2 * cached / m->cached_bandwidth : s;
}

int ct_in_network_pieces(const ct_in_network *n, double bytes)
{
    double pieces = 1;

    if (n->bandwidth == 0) return 0;
    if (n->max_bytes > 0) pieces = ceil(bytes / (double)n->max_bytes);
    if (pieces < 1) pieces = 1;
    return (pieces <= CT_MAX_IN_NETWORK) ? (int)pieces : 0;
}

double ct_in_network_s(const ct_in_network *n, double bytes)
{
    return ct_in_network_pieces(n, bytes) * n->latency_s + bytes / n->bandwidth;
}

/* Orders of magnitude (shared memory; a 10 Gbit/s network) that only rank algorithms against each
 * other: static, so that the same job makes the same choices every time. */
void ct_level_guess(const char *name, int above, ct_level *level_p)
{
    ct_level l = { .latency_s = 1e-6, .bandwidth = 6e9 };

    if (above > 0) l = (ct_level){ .latency_s = 2e-5, .bandwidth = 1.2e9 };
    for (int i = 1; i < above; ++i) l.latency_s *= 1.25;
    if (above > 1) l.uplink = -2; /* most networks are thinner between switches than inside */
    for (int i = 0; i > above; --i) l.latency_s *= 0.75;
    snprintf(l.name, sizeof(l.name), "%s", name);
    *level_p = l;
}

/* ---- a spec: what its numbers count */

typedef struct spec_number {
    int64_t n;
    char what[24]; /* "" where it does not say */
} spec_number;

static bool read_name(const char *text, size_t length, char *what, size_t size)
{
    static const struct {
        const char *abbreviation, *name;
    } known[] = {
        { "r", "rank" },       { "numa", "numa" },  { "s", "socket" }, { "n", "node" },
        { "bl", "blade" },     { "ch", "chassis" }, { "rk", "rack" },  { "sw", "switch" },
        { "sn", "supernode" }, { "g", "group" },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        const char *a = known[i].abbreviation, *b = known[i].name;

        if (((strlen(a) == length) && (strncmp(a, text, length) == 0)) ||
            ((strlen(b) == length) && (strncmp(b, text, length) == 0))) {
            snprintf(what, size, "%s", b);
            return true;
        }
    }
    return false;
}

/* "4sn x 256n x 1" into its numbers; 0: it is none. */
static int split_spec(const char *spec, spec_number *number)
{
    const char *p = spec;

    for (int k = 0; k < CT_MAX_LEVEL; ++k) {
        spec_number *at = &number[k];
        size_t length = 0;
        char *end = NULL;

        if (!isdigit((unsigned char)*p)) return 0;
        at->n = strtoll(p, &end, 10);
        if ((at->n < 1) || (at->n > INT_MAX)) return 0;
        for (p = end; isalpha((unsigned char)p[length]) && (p[length] != 'x');) length += 1;
        at->what[0] = '\0';
        if ((length > 0) && !read_name(p, length, at->what, sizeof(at->what))) return 0;
        p += length;
        if (*p == '\0') return k + 1;
        while (*p == ' ') p += 1;
        if (*p++ != 'x') return 0;
        while (*p == ' ') p += 1;
    }
    return 0;
}

/* Names the numbers that do not say what they count; false where that cannot be known. */
static bool name_numbers(spec_number *number, int k, int *node_p)
{
    int node = -1;

    for (int i = 0; i < k - 1; ++i) {
        if (strcmp(number[i].what, "node") == 0) node = i;
        if (strcmp(number[i].what, "rank") == 0) return false;
    }
    if ((node < 0) && (number[k - 2].what[0] == '\0')) {
        node = k - 2;
        snprintf(number[node].what, sizeof(number[node].what), "node");
    }
    if ((number[k - 1].what[0] != '\0') && (strcmp(number[k - 1].what, "rank") != 0)) return false;
    if (node < 0) return false;
    if ((node >= 1) && (number[node - 1].what[0] == '\0'))
        snprintf(number[node - 1].what, sizeof(number[node - 1].what), "switch");
    for (int i = 0; i < k - 1; ++i) {
        if (number[i].what[0] == '\0') return false;
        for (int j = 0; j < i; ++j) {
            if (strcmp(number[i].what, number[j].what) == 0) return false;
        }
    }
    *node_p = node;
    return true;
}

/* "torus:4x2": nodes of one rank. */
static ct_status torus_from_spec(const char *spec, const char *sides, ct_machine **machine_p)
{
    spec_number number[CT_MAX_LEVEL];
    int k = split_spec(sides, number);
    ct_torus torus = { .n_dim = 0 };
    ct_machine *m = NULL;

    for (int d = 0; (d < k) && (d < CT_MAX_TORUS); ++d) {
        if (number[d].what[0] != '\0') k = 0;
        torus.dim[torus.n_dim++] = (int)number[d].n;
    }
    if ((k < 1) || (k > CT_MAX_TORUS) || (ct_torus_nodes(&torus) > INT_MAX))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "topology \"%s\": expected 1 to %d sides such as torus:4x4, of at most %d nodes", spec,
            CT_MAX_TORUS, INT_MAX);
    m = calloc(1, sizeof(*m));
    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a machine");
    m->n_level = 2;
    m->sum_bandwidth = 10e9;
    snprintf(m->name, sizeof(m->name), "%.63s", spec);
    snprintf(m->source, sizeof(m->source), "made up; the figures are guesses");
    ct_level_guess("node", 0, &m->level[0]);
    ct_level_guess("machine", 1, &m->level[1]);
    m->level[0].size = 1;
    m->level[1].size = ct_torus_nodes(&torus);
    m->level[1].torus = torus;
    ct_machine_fill_uplinks(m, NULL);
    *machine_p = m;
    return CT_OK;
}

ct_status ct_machine_from_spec(const char *spec, ct_machine **machine_p)
{
    static const char torus[] = "torus:";
    spec_number number[CT_MAX_LEVEL];
    int k = split_spec(spec, number), node = 0;
    ct_machine *m = NULL;

    if (strncmp(spec, torus, sizeof(torus) - 1) == 0)
        return torus_from_spec(spec, spec + sizeof(torus) - 1, machine_p);
    if ((k < 2) || !name_numbers(number, k, &node))
        return CT_FAIL(CT_ERR_CONFIG,
                       "topology \"%s\": expected NODESxRANKS such as 2x4, or more levels such as "
                       "\"4sn x 256n x 1\" (numa s n bl ch rk sw sn g, the last number: ranks)",
                       spec);
    m = calloc(1, sizeof(*m));
    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a machine");
    m->n_level = k;
    m->node_level = k - 2 - node;
    m->sum_bandwidth = 10e9;
    snprintf(m->name, sizeof(m->name), "%.63s", spec);
    snprintf(m->source, sizeof(m->source), "made up; the figures are guesses");
    for (int l = 0; l < k; ++l) {
        const char *name = (l == k - 1) ? "machine" : number[k - 2 - l].what;

        ct_level_guess(name, l - m->node_level, &m->level[l]);
        m->level[l].size = number[k - 1 - l].n;
    }
    ct_machine_fill_uplinks(m, NULL);
    *machine_p = m;
    return CT_OK;
}

ct_codec_speed ct_coding_estimate(double memory)
{
    double byte_s = (memory > 0) ? 1 / memory : 0;

    return (ct_codec_speed){ .memory = memory,
                             .update_s = 20 * byte_s,
                             .select_s = 6 * byte_s,
                             .pack_s = 24 * byte_s,
                             .add_s = 24 * byte_s,
                             .merge_s = 90 * byte_s,
                             .sign_s = 8 * byte_s,
                             .unsign_s = 4 * byte_s,
                             .factor_s = 16 * byte_s,
                             .column_s = 4 * byte_s,
                             .int8_s = 5 * byte_s,
                             .unint8_s = 7 * byte_s,
                             .int4_s = 4.5 * byte_s,
                             .unint4_s = 6.5 * byte_s };
}

ct_codec_speed ct_machine_codec_speed(const ct_machine *m)
{
    return m->coding.measured ? m->coding : ct_coding_estimate(3 * m->sum_bandwidth);
}

ct_codec_speed ct_codec_speed_at(ct_codec_speed s, double speed)
{
    s.memory *= speed;
    s.update_s /= speed;
    s.select_s /= speed;
    s.pack_s /= speed;
    s.add_s /= speed;
    s.merge_s /= speed;
    s.sign_s /= speed;
    s.unsign_s /= speed;
    s.factor_s /= speed;
    s.column_s /= speed;
    s.int8_s /= speed;
    s.unint8_s /= speed;
    s.int4_s /= speed;
    s.unint4_s /= speed;
    return s;
}

/* ---- by file or by name */

bool ct_machine_is_path(const char *text)
{
    size_t n = strlen(text), k = strlen(".prototxt");
    struct stat st;

    if ((strchr(text, '/') != NULL) || ((n > k) && (strcmp(text + n - k, ".prototxt") == 0)))
        return true;
    return (stat(text, &st) == 0) && S_ISREG(st.st_mode);
}

const char *ct_machine_ready(const char *name)
{
    for (const ct_ready_machine *m = ct_ready_machine_table; m->name != NULL; ++m) {
        if (strcmp(m->name, name) == 0) return m->text;
    }
    return NULL;
}

ct_status ct_machine_fail_unknown(const char *name)
{
    const char *known[64], *near = NULL;
    ct_text list = { 0 };
    ct_status status = CT_ERR_CONFIG;
    int n = 0;

    for (; (n < 64) && (ct_ready_machine_table[n].name != NULL); ++n) {
        known[n] = ct_ready_machine_table[n].name;
        ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", known[n]);
    }
    near = ct_text_nearest(name, known, n);
    if (near != NULL)
        status = CT_FAIL(status, "no machine file or ready machine \"%s\"; did you mean \"%s\"?",
                         name, near);
    else
        status = CT_FAIL(status, "no machine file \"%s\"; ready machines: %s", name,
                         (list.text != NULL) ? list.text : "none");
    ct_text_destroy(&list);
    return status;
}

ct_status ct_machine_read(const char *path_or_name, ct_machine **machine_p)
{
    const char *ready = ct_machine_ready(path_or_name);
    char *text = NULL;
    size_t size = 0;
    ct_status status = CT_OK;

    if (!ct_machine_is_path(path_or_name)) {
        if (ready == NULL) return ct_machine_fail_unknown(path_or_name);
        return ct_machine_parse(path_or_name, ready, strlen(ready), machine_p);
    }
    CT_TRY(ct_settings_read(path_or_name, &text, &size));
    status = ct_machine_parse(path_or_name, text, size, machine_p);
    free(text);
    return status;
}
