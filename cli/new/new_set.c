#include "cli/new/new.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/data/convert.h"
#include "framework/data/reader.h"

/* "FOLDER/NAME" where that is there; NULL: it is not. */
static ct_status find(const char *folder, const char *name, char **path_p)
{
    ct_text t = { 0 };

    *path_p = NULL;
    ct_text_add(&t, "%s/%s", folder, name);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder);
    if (access(t.text, R_OK) == 0)
        *path_p = t.text;
    else
        ct_text_destroy(&t);
    return CT_OK;
}

static ct_status open_set(const char *path, ct_reader **r_p)
{
    ct_reader_options o = { .who = "--data", .source = path, .n_field = 2 };

    return ct_reader_open("lmdb", &o, r_p);
}

/* The largest label of a set without names, and one more. */
static ct_status count_classes(const ct_reader *r, int64_t *n_p)
{
    void *local = NULL;
    ct_status status = ct_reader_local(r, &local);
    float label[2] = { 0.0f, 0.0f };
    ct_sample sample = { .rest = label };

    for (int64_t i = 0; (i < r->count) && (status == CT_OK); i++) {
        status = r->ops->read(r, local, i, &sample);
        if ((status == CT_OK) && ((label[0] < 0.0f) || (label[0] > 1e6f)))
            status = CT_FAIL(CT_ERR_DATA, "%s: label %g is no class", r->source, (double)label[0]);
        if ((status == CT_OK) && ((int64_t)label[0] >= *n_p)) *n_p = (int64_t)label[0] + 1;
    }
    ct_reader_local_release(r, local);
    return status;
}

static ct_status read_train(const char *classes, ct_new_set *s)
{
    ct_reader *r = NULL;
    ct_status status;

    CT_TRY(open_set(s->train, &r));
    s->n_train = r->count;
    s->shape = r->field[0];
    if (classes != NULL)
        status = ct_class_names_read(classes, "--data", 0, &s->names);
    else
        status = count_classes(r, &s->n_class);
    ct_reader_close(r);
    CT_TRY(status);
    if (classes != NULL) s->n_class = s->names.n;
    if ((s->shape.ndim == 3) && (s->n_class >= 2)) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: samples of shape %s and %" PRId64
                   " classes; expected pictures of two classes at least",
                   s->train, ct_shape_str(&s->shape).text, s->n_class);
}

static ct_status read_test(ct_new_set *s)
{
    ct_reader *r = NULL;

    if (s->test == NULL) return CT_OK;
    CT_TRY(open_set(s->test, &r));
    s->n_test = r->count;
    ct_reader_close(r);
    return CT_OK;
}

static ct_status read_all(const char *folder, const char *given, ct_new_set *s)
{
    char *classes = NULL;
    ct_status status;

    CT_TRY(find(folder, "train_lmdb", &s->train));
    if (s->train == NULL)
        return CT_FAIL(
            CT_ERR_IO,
            "--data=%s: no train_lmdb in it; expected a folder that cortado convert made", given);
    CT_TRY(find(folder, "test_lmdb", &s->test));
    CT_TRY(find(folder, CT_MEAN_FILE, &s->mean));
    CT_TRY(find(folder, CT_CLASS_FILE, &classes));
    status = read_train(classes, s);
    free(classes);
    return (status == CT_OK) ? read_test(s) : status;
}

ct_status ct_new_set_read(const char *folder, ct_new_set *s)
{
    char *absolute = realpath(folder, NULL);
    ct_status status;

    *s = (ct_new_set){ 0 };
    if (absolute == NULL) return CT_FAIL(CT_ERR_IO, "--data=%s: %s", folder, strerror(errno));
    status = read_all(absolute, folder, s);
    free(absolute);
    if (status != CT_OK) ct_new_set_release(s);
    return status;
}

void ct_new_set_release(ct_new_set *s)
{
    free(s->train);
    free(s->test);
    free(s->mean);
    ct_class_names_release(&s->names);
    *s = (ct_new_set){ 0 };
}
