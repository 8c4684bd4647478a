#include "framework/snapshot/array_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/snapshot/h5.h"

static ct_status put(ct_h5_writer *w, const ct_named_array *a)
{
    ct_text path = { 0 };
    ct_status status;

    ct_text_add(&path, "/%s", a->name);
    status = path.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the name of an array")
                         : ct_h5_put_floats(w, path.text, &a->shape, a->data);
    ct_text_destroy(&path);
    return status;
}

/* Under another name first, so that a file that is there stays until its successor is whole. */
static ct_status finish(ct_h5_writer *w, const char *path)
{
    ct_text part = { 0 };
    uint64_t hash;
    int64_t size;
    ct_status status;

    ct_text_add(&part, "%s.part.%d", path, (int)getpid());
    if (part.failed) {
        ct_text_destroy(&part);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    }
    status = ct_h5_writer_finish(w, part.text, NULL, &hash, &size);
    if ((status == CT_OK) && (rename(part.text, path) != 0)) {
        status = CT_FAIL(CT_ERR_IO, "cannot rename %s to %s", part.text, path);
        unlink(part.text);
    }
    ct_text_destroy(&part);
    return status;
}

ct_status ct_array_file_write(const char *path, const ct_named_array *array, int n)
{
    ct_h5_writer *w = NULL;
    ct_status status = ct_h5_writer_create(false, &w);

    for (int i = 0; (status == CT_OK) && (i < n); i++) status = put(w, &array[i]);
    if (status == CT_OK) status = finish(w, path);
    ct_h5_writer_destroy(w);
    return status;
}
