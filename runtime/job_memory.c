#include "runtime/job_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/log.h"
#include "framework/base/scratch_file.h"
#include "framework/solver/update_rule.h"
#include "runtime/update_place.h"

const char *ct_job_memory_folder(const Ct__MemoryParameter *p, const char *stage)
{
    const char *temp = getenv("TMPDIR");

    if ((p->path != NULL) && (p->path[0] != '\0')) return p->path;
    if (stage != NULL) return stage;
    return ((temp != NULL) && (temp[0] != '\0')) ? temp : "/tmp";
}

static int64_t chunk_of(const Ct__MemoryParameter *p)
{
    return (int64_t)(ldexp(p->chunk_mb, 20) / sizeof(float));
}

ct_storage_files ct_job_memory_files(const Ct__MemoryParameter *p)
{
    return (ct_storage_files){ .chunk = chunk_of(p),
                               .ahead = p->prefetch,
                               .checksum = (p->checksum != 0) };
}

static ct_status open_files(const Ct__MemoryParameter *p, const char *stage, ct_job_memory *m)
{
    const char *folder = ct_job_memory_folder(p, stage);
    bool in_memory = false;

    CT_TRY(ct_scratch_check(folder, &in_memory));
    if (in_memory)
        CT_WARN("memory { path }: \"%s\" lies in memory (tmpfs): files there save none", folder);
    m->folder = strdup(folder);
    if (m->folder == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a folder's name");
    CT_TRY(ct_io_open(&m->io));
    m->files = ct_job_memory_files(p);
    m->files.folder = m->folder;
    m->files.io = m->io;
    return CT_OK;
}

static bool is_file(Ct__MemoryParameter__Tier tier)
{
    return tier == CT__MEMORY_PARAMETER__TIER__FILE;
}

static bool is_away(Ct__MemoryParameter__Tier tier)
{
    return (tier == CT__MEMORY_PARAMETER__TIER__HOST) || is_file(tier);
}

/* ---- on a device: states and weights in host memory, or in files */

static ct_status check_device(const ct_job_memory_ask *ask)
{
    const Ct__MemoryParameter *p = ask->param->memory;
    const Ct__CompressionParameter *c = ask->param->compression;
    const char *name = ask->dev->name;
    bool weights = is_away(p->weights);

    if (ask->divided)
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { state, weights } on device %s and --parallel do not go together "
                       "yet: leave them out",
                       name);
    if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { state, weights } on device %s and compression do not go together "
                       "yet: take DEVICE, or no compression",
                       name);
    if (weights && (ask->comm->size > 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "memory { weights } on device %s is for one rank yet: take weights: DEVICE",
                       name);
    return CT_OK;
}

/* Ranks decide by the slowest of them. */
static ct_status find_link(const ct_job_memory_ask *ask, ct_host_link *l)
{
    int64_t slowest[2];

    *l = ct_host_link_assumed;
    if (ask->param->deterministic) return CT_OK;
    CT_TRY(ct_host_link_measure(ask->dev, l));
    slowest[0] = -(int64_t)l->link;
    slowest[1] = -(int64_t)l->host;
    CT_TRY(ct_comm_max(ask->comm, slowest, 2));
    *l = (ct_host_link){ .link = -(double)slowest[0], .host = -(double)slowest[1] };
    return CT_OK;
}

/* States in host memory: what costs less. Norms of a step want the states of whole parameters. */
static ct_status choose_place(const ct_job_memory_ask *ask, ct_job_memory *m)
{
    int n_state = (int)(ct_update_rule_state_bytes(ask->param, 1) / (int64_t)sizeof(float));
    const ct_update_rule *rule = NULL;
    ct_host_link l;
    double device_s, host_s;

    CT_TRY(ct_update_rule_find(ct_update_rule_type(ask->param), &rule));
    if (rule->ratio == CT_UPDATE_RATIO_STEP) {
        m->on_host = true;
        snprintf(m->why, sizeof(m->why), "type %s has norms of whole parameters", rule->type);
        return CT_OK;
    }
    CT_TRY(find_link(ask, &l));
    device_s = ct_update_on_device_s(&l, n_state);
    host_s = ct_update_on_host_s(&l, n_state);
    m->on_host = (host_s < device_s);
    snprintf(m->why, sizeof(m->why),
             "modelled %.3g ms a million parameters on the host, %.3g on the device; copies %.3g "
             "GB/s, host memory %.3g GB/s, %s",
             1e9 * host_s, 1e9 * device_s, 1e-9 * l.link, 1e-9 * l.host,
             ask->param->deterministic ? "assumed" : "measured");
    return CT_OK;
}

static ct_status open_on_device(const ct_job_memory_ask *ask, ct_job_memory *m)
{
    const Ct__MemoryParameter *p = ask->param->memory;

    if (!is_away(p->state) && !is_away(p->weights)) return CT_OK;
    CT_TRY(check_device(ask));
    m->host_piece = chunk_of(p);
    m->rings = (ct_storage_rings){ .chunk = chunk_of(p), .ahead = p->prefetch };
    if (is_away(p->weights) || is_file(p->state)) {
        m->on_host = true;
        snprintf(m->why, sizeof(m->why), "%s there",
                 is_away(p->weights) ? "weights lie" : "states come");
    } else {
        CT_TRY(choose_place(ask, m));
    }
    if (!m->on_host) {
        m->open_state = ct_storage_open_ring;
        m->open_state_ctx = &m->rings;
    }
    return CT_OK;
}

static ct_status open_tiers(const ct_job_memory_ask *ask, ct_job_memory *m)
{
    const Ct__MemoryParameter *p = ask->param->memory;

    if (ask->dev->kind != CT_DEVICE_CPU) CT_TRY(open_on_device(ask, m));
    if (!is_file(p->state) && !is_file(p->weights)) return CT_OK;
    CT_TRY(open_files(p, ask->stage, m));
    if (is_file(p->state)) {
        m->open_state = ct_storage_open_file;
        m->open_state_ctx = &m->files;
    }
    if (is_file(p->weights)) {
        m->open_weights = ct_storage_open_file;
        m->open_weights_ctx = &m->files;
    }
    return CT_OK;
}

ct_status ct_job_memory_open(const ct_job_memory_ask *ask, ct_job_memory *m)
{
    ct_status status;

    *m = (ct_job_memory){ .folder = NULL };
    if (ask->param->memory == NULL) return CT_OK;
    status = open_tiers(ask, m);
    if (status != CT_OK) ct_job_memory_close(m);
    return status;
}

void ct_job_memory_close(ct_job_memory *m)
{
    ct_io_close(m->io);
    free(m->folder);
    *m = (ct_job_memory){ .folder = NULL };
}

static void tell_place(const ct_job_memory *m)
{
    const ct_storage_rings *r = &m->rings;

    if (m->why[0] == '\0') return;
    CT_INFO("memory: the %s updates weights: %s", m->on_host ? "host" : "device", m->why);
    if (r->host_bytes > 0)
        CT_INFO("memory: %.1f MiB of states lie in host memory, and come by %.1f MiB of pinned "
                "memory to %.1f MiB of the device",
                ldexp((double)r->host_bytes, -20), ldexp((double)r->pinned_bytes, -20),
                ldexp((double)r->device_bytes, -20));
}

void ct_job_memory_tell(const ct_job_memory *m)
{
    tell_place(m);
    if (m->folder == NULL) return;
    CT_INFO("memory: %.1f MiB of this rank lie in files in \"%s\", in chunks of %.3g MiB by %s, %s",
            ldexp((double)m->files.file_bytes, -20), m->folder,
            ldexp((double)((m->files.chunk > 0) ? m->files.chunk : (1 << 20)) * sizeof(float), -20),
            ct_io_name(m->io), m->files.direct ? "past the page cache" : "through the page cache");
}

void ct_job_memory_tell_moved(const ct_job_memory *m)
{
    const ct_storage_rings *r = &m->rings;

    if (r->up > 0)
        CT_INFO("memory: states went to the device in %.3f GB and came back in %.3f, and were "
                "waited for for %.3f s",
                1e-9 * (double)r->up, 1e-9 * (double)r->down, r->waited_s);
    if (m->folder == NULL) return;
    CT_INFO("memory: files were read for %.3f GB and written for %.3f, and waited for for %.3f s",
            1e-9 * (double)m->files.read, 1e-9 * (double)m->files.written, m->files.waited_s);
}
