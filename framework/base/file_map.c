#include "framework/base/file_map.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"

/* mmap() refuses a length of 0. */
static const uint8_t nothing[1];

static ct_status map_open(const char *path, int fd, ct_file_map *map_p)
{
    struct stat st;
    void *data;

    if (fstat(fd, &st) != 0) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    if (st.st_size == 0) {
        *map_p = (ct_file_map){ .data = nothing };
        return CT_OK;
    }
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    *map_p = (ct_file_map){ .data = data, .size = st.st_size };
    return CT_OK;
}

ct_status ct_file_map_open(const char *path, ct_file_map *map_p)
{
    int fd = ct_file_open(path);
    ct_status status;

    if (fd < 0) return CT_FAIL(CT_ERR_IO, "%s: %s", path, ct_path_why(path, errno).text);
    status = map_open(path, fd, map_p);
    close(fd);
    return status;
}

void ct_file_map_close(ct_file_map *map)
{
    if (map->size > 0) munmap((void *)(uintptr_t)map->data, (size_t)map->size);
    *map = (ct_file_map){ .data = NULL };
}
