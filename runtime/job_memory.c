#include "runtime/job_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/scratch_file.h"

static const char *folder_of(const Ct__MemoryParameter *p, const char *stage)
{
    const char *temp = getenv("TMPDIR");

    if ((p->path != NULL) && (p->path[0] != '\0')) return p->path;
    if (stage != NULL) return stage;
    return ((temp != NULL) && (temp[0] != '\0')) ? temp : "/tmp";
}

static ct_status open_files(const Ct__MemoryParameter *p, const char *stage, ct_job_memory *m)
{
    const char *folder = folder_of(p, stage);
    bool in_memory = false;

    CT_TRY(ct_scratch_check(folder, &in_memory));
    if (in_memory)
        CT_WARN("memory { path }: \"%s\" lies in memory (tmpfs): files there save none", folder);
    m->folder = strdup(folder);
    if (m->folder == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a folder's name");
    CT_TRY(ct_io_open(&m->io));
    m->files = (ct_storage_files){ .folder = m->folder,
                                   .io = m->io,
                                   .chunk = (int64_t)(ldexp(p->chunk_mb, 20) / sizeof(float)),
                                   .ahead = p->prefetch,
                                   .checksum = (p->checksum != 0) };
    return CT_OK;
}

ct_status ct_job_memory_open(const Ct__SolverParameter *param, const char *stage, ct_job_memory *m)
{
    const Ct__MemoryParameter *p = param->memory;
    ct_status status;
    bool state, weights;

    *m = (ct_job_memory){ .folder = NULL };
    if (p == NULL) return CT_OK;
    state = (p->state == CT__MEMORY_PARAMETER__TIER__FILE);
    weights = (p->weights == CT__MEMORY_PARAMETER__TIER__FILE);
    if (!state && !weights) return CT_OK;
    status = open_files(p, stage, m);
    if (status != CT_OK) {
        ct_job_memory_close(m);
        return status;
    }
    if (state) m->open_state = ct_storage_open_file;
    if (weights) m->open_weights = ct_storage_open_file;
    return CT_OK;
}

void ct_job_memory_close(ct_job_memory *m)
{
    ct_io_close(m->io);
    free(m->folder);
    *m = (ct_job_memory){ .folder = NULL };
}

void ct_job_memory_tell(const ct_job_memory *m)
{
    if (m->folder == NULL) return;
    CT_INFO("memory: %.1f MiB of this rank lie in files in \"%s\", in chunks of %.3g MiB by %s, %s",
            ldexp((double)m->files.file_bytes, -20), m->folder,
            ldexp((double)((m->files.chunk > 0) ? m->files.chunk : (1 << 20)) * sizeof(float), -20),
            ct_io_name(m->io), m->files.direct ? "past the page cache" : "through the page cache");
}

void ct_job_memory_tell_moved(const ct_job_memory *m)
{
    if (m->folder == NULL) return;
    CT_INFO("memory: files were read for %.3f GB and written for %.3f, and waited for for %.3f s",
            1e-9 * (double)m->files.read, 1e-9 * (double)m->files.written, m->files.waited_s);
}
