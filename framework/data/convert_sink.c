#include "framework/data/convert_sink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/augment/boxes.h"
#include "framework/data/transform.h"

const char *ct_convert_backend(const ct_convert_options *o)
{
    return (o->backend != NULL) ? o->backend : "lmdb";
}

ct_status ct_convert_path(const ct_convert_options *o, const char *which, char **path_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, (strcmp(ct_convert_backend(o), "hdf5") == 0) ? "%s/%s.h5" : "%s/%s_lmdb", o->to,
                which);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    *path_p = t.text;
    return CT_OK;
}

ct_status ct_convert_make_folder(const char *path)
{
    char *part = strdup(path);
    struct stat st;
    int why;

    if (part == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0777);
        *slash = '/';
    }
    why = (mkdir(part, 0777) != 0) ? errno : 0;
    if (why == EEXIST) why = ENOTDIR;
    free(part);
    if ((stat(path, &st) != 0) || !S_ISDIR(st.st_mode)) {
        return CT_FAIL(CT_ERR_IO, "cannot make the folder %s: %s", path, strerror(why));
    }
    return CT_OK;
}

ct_status ct_convert_make_parent(const char *to)
{
    const char *slash = strrchr(to, '/');
    char *folder;
    ct_status status;

    if ((slash == NULL) || (slash == to)) return CT_OK;
    folder = strndup(to, (size_t)(slash - to));
    status = (folder != NULL) ? ct_convert_make_folder(folder) : CT_FAIL(CT_ERR_NOMEM, "no memory");
    free(folder);
    return status;
}

ct_status ct_sink_open(ct_sink *s, const ct_convert_options *o, const char *path, const char *mean,
                       int64_t expected)
{
    *s = (ct_sink){ .path = path, .mean_path = mean, .force = o->force };
    if (expected < 1) return CT_FAIL(CT_ERR_DATA, "nothing to write to %s", path);
    if (mean != NULL) CT_TRY(ct_path_check_free(mean, o->force));
    if (o->shards == 0)
        return ct_writer_open(ct_convert_backend(o), path, expected, o->force, &s->writer);
    if (strcmp(ct_convert_backend(o), "lmdb") != 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--shards is for --backend=lmdb; HDF5Data reads a list of files");
    return ct_writer_open_shards(path, expected, o->force, o->shards, o->stripe, &s->writer);
}

static ct_status add_to_mean(ct_sink *s, const ct_record *r, const uint8_t *pixels)
{
    int64_t n = r->channels * r->height * r->width;

    if (s->sum == NULL) {
        s->first = *r;
        s->sum = calloc((size_t)n, sizeof(*s->sum));
        if (s->sum == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the mean");
    }
    if ((r->channels != s->first.channels) || (r->height != s->first.height) ||
        (r->width != s->first.width)) {
        return CT_FAIL(CT_ERR_DATA,
                       "a mean needs images of one shape: %s is %d x %lld x %lld, the first "
                       "%d x %lld x %lld (--resize)",
                       r->key, r->channels, (long long)r->height, (long long)r->width,
                       s->first.channels, (long long)s->first.height, (long long)s->first.width);
    }
    for (int64_t i = 0; i < n; i++) s->sum[i] += pixels[i];
    return CT_OK;
}

ct_status ct_sink_add(ct_sink *s, ct_record *record, const char *name, const uint8_t *pixels)
{
    int digits = (s->writer->expected > 100000000) ? 10 : 8; /* keys sort as numbers do */
    char key[400];                                           /* LMDB allows 511 bytes */

    snprintf(key, sizeof(key), (name != NULL) ? "%0*lld_%s" : "%0*lld", digits, (long long)s->n,
             name);
    record->key = key;
    if (s->mean_path != NULL) {
        CT_TRY(add_to_mean(s, record, (pixels != NULL) ? pixels : record->values));
    }
    CT_TRY(ct_writer_put(s->writer, record));
    if (record->box == NULL) {
        ct_label_count_add(&s->labels, record->label);
    } else {
        for (int64_t i = 0; i < record->n_box; i++)
            ct_label_count_add(&s->labels, (int64_t)record->box[i * CT_BOX_ROW + 1]);
    }
    s->boxes = record->box != NULL;
    s->n++;
    return CT_OK;
}

static ct_status write_mean(const ct_sink *s)
{
    ct_shape shape = { 3, { s->first.channels, s->first.height, s->first.width } };
    int64_t n = ct_shape_count(&shape, 0, -1);
    float *mean = malloc((size_t)n * sizeof(float));
    ct_status status;

    if (mean == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the mean");
    for (int64_t i = 0; i < n; i++) mean[i] = (float)((double)s->sum[i] / (double)s->n);
    status = ct_mean_write(s->mean_path, &shape, mean);
    free(mean);
    return status;
}

ct_status ct_sink_close(ct_sink *s, ct_status status)
{
    bool mean = false;

    if (s->writer == NULL) return status;
    if ((status == CT_OK) && (s->mean_path != NULL)) {
        status = write_mean(s);
        mean = status == CT_OK;
    }
    if (status == CT_OK) {
        status = ct_writer_commit(s->writer);
        if (status == CT_OK) {
            CT_INFO("%s: %lld images", s->path, (long long)s->n);
            ct_label_count_report(&s->labels, s->path, !s->boxes); /* class 0 has none */
        }
    } else {
        ct_writer_abort(s->writer);
    }
    if (mean && (status != CT_OK)) ct_path_remove(s->mean_path);
    ct_label_count_release(&s->labels);
    free(s->sum);
    *s = (ct_sink){ 0 };
    return status;
}

ct_status ct_convert_pair(const ct_convert_options *o, const ct_pair *pair)
{
    static const char *const name[2] = { "train", "test" };
    ct_sink sink[2] = { { 0 }, { 0 } };
    char *path[2] = { NULL, NULL };
    int n_set = pair->single ? 1 : 2;
    bool is_new = (access(o->to, F_OK) != 0);
    ct_status status;

    CT_TRY(ct_convert_make_folder(o->to));
    CT_TRY_GOTO(status, out, ct_convert_path(o, name[0], &path[0]));
    CT_TRY_GOTO(status, out, ct_convert_path(o, name[1], &path[1]));
    for (int i = 0; i < n_set; i++) {
        CT_TRY_GOTO(status, out,
                    ct_sink_open(&sink[i], o, path[i], (i == 0) ? o->mean : NULL, pair->n[i]));
    }
    for (int i = 0; i < n_set; i++) CT_TRY_GOTO(status, out, pair->fill(pair->ctx, i, &sink[i]));
out:
    for (int i = 0; i < 2; i++) {
        status = ct_sink_close(&sink[i], status);
        free(path[i]);
    }
    if ((status != CT_OK) && is_new) (void)rmdir(o->to); /* where nothing is left in it */
    return status;
}
