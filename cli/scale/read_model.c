#include "cli/scale/read_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ct_status set_field(const char *option, const char *text, const char *name, size_t n,
                           double v, ct_read_model *m)
{
    static const char *const field[] = { "bytes", "node", "file", "total", "files" };
    double *const to[] = { &m->sample_bytes, &m->node, &m->file, &m->total };

    for (size_t i = 0; i < 5; i++) {
        if ((strlen(field[i]) != n) || (strncmp(name, field[i], n) != 0)) continue;
        if (i == 4) {
            if ((v != floor(v)) || (v > 1e6)) break;
            m->files = (int64_t)v;
        } else {
            *to[i] = (i == 0) ? v : v * 1e9;
        }
        return CT_OK;
    }
    return CT_FAIL(
        CT_ERR_CONFIG,
        "--%s=%s: \"%.*s\": expected bytes (of a sample), node, file, total (GB/s), files "
        "(a whole number)",
        option, text, (int)n, name);
}

ct_status ct_read_model_parse(const char *option, const char *text, ct_read_model *m)
{
    ct_read_model r = *m;

    if (r.files == 0) r.files = 1;
    for (const char *at = text;;) {
        size_t n = strcspn(at, "=,");
        char *end = NULL;
        double v = (at[n] == '=') ? strtod(at + n + 1, &end) : 0;

        if ((end == NULL) || (end == at + n + 1) || ((*end != ',') && (*end != '\0')) ||
            !isfinite(v) || (v <= 0))
            return CT_FAIL(CT_ERR_CONFIG,
                           "--%s=%s: expected NAME=NUMBER above 0, as in "
                           "bytes=750000,node=1.2,file=0.5,files=32",
                           option, text);
        CT_TRY(set_field(option, text, at, n, v, &r));
        if (*end == '\0') break;
        at = end + 1;
    }
    if (r.sample_bytes <= 0)
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: bytes of a sample are missing", option, text);
    if ((r.node <= 0) && (r.file <= 0) && (r.total <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: no bandwidth: node, file or total", option, text);
    *m = r;
    return CT_OK;
}

ct_read_times ct_read_model_run(const ct_read_model *m, int64_t nodes, double node_batch)
{
    double bytes = m->sample_bytes * node_batch;
    int64_t batches = (nodes + m->files - 1) / m->files;
    ct_read_times t = { .bound = "node" };

    t.readers = (m->files == 1 || 2 * batches > nodes) ? nodes : 2 * batches;
    if (m->node > 0) t.node_s = bytes / m->node;
    if (m->file > 0) t.file_s = bytes * (double)batches / m->file;
    if (m->total > 0) t.total_s = bytes * (double)nodes / m->total;
    t.read_s = t.node_s;
    if (t.file_s > t.read_s) {
        t.read_s = t.file_s;
        t.bound = "file";
    }
    if (t.total_s > t.read_s) {
        t.read_s = t.total_s;
        t.bound = "system";
    }
    return t;
}
