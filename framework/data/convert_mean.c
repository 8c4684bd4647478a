/* The mean of a data set that is there already, as Caffe's compute_image_mean makes it. */
#include <stdlib.h>
#include <string.h>

#include "framework/data/convert.h"
#include "framework/data/reader.h"
#include "framework/data/transform.h"
#include "framework/data/writer.h"

static ct_status add(const ct_reader *r, const ct_sample *s, int64_t id, double *sum)
{
    const ct_shape *want = &r->field[0];
    int64_t n = ct_shape_count(want, 0, -1);
    bool same = (s->shape.ndim == want->ndim);

    for (int i = 0; same && (i < want->ndim); i++) same = (s->shape.dim[i] == want->dim[i]);
    if (!same) {
        char name[512];

        r->ops->describe(r, id, name, sizeof(name));
        return CT_READER_FAIL(r, CT_ERR_DATA,
                              "a mean needs images of one shape: %s is %s, the first %s", name,
                              ct_shape_str(&s->shape).text, ct_shape_str(want).text);
    }
    for (int64_t i = 0; i < n; i++) sum[i] += (s->u8 != NULL) ? s->u8[i] : (double)s->f32[i];
    return CT_OK;
}

static ct_status sum_all(const ct_reader *r, double *sum)
{
    void *local = NULL;
    ct_sample sample = { 0 };
    ct_status status;

    sample.rest = malloc(((size_t)ct_reader_rest_count(r) + 1) * sizeof(float));
    if (sample.rest == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample");
    status = ct_reader_local(r, &local);
    for (int64_t id = 0; (id < r->count) && (status == CT_OK); id++) {
        status = r->ops->read(r, local, id, &sample);
        if (status == CT_OK) status = add(r, &sample, id, sum);
    }
    ct_reader_local_release(r, local);
    free(sample.rest);
    return status;
}

/* Caffe logs the mean of each channel too: what goes into mean_value. */
static void log_channels(const ct_shape *s, const float *mean)
{
    int64_t n = s->dim[1] * s->dim[2];

    for (int64_t c = 0; c < s->dim[0]; c++) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++) sum += (double)mean[c * n + i];
        CT_INFO("mean value of channel %lld: %g", (long long)c, sum / (double)n);
    }
}

static ct_status write_mean(const ct_reader *r, const ct_convert_options *o, const double *sum)
{
    const ct_shape *shape = &r->field[0];
    int64_t n = ct_shape_count(shape, 0, -1);
    float *mean = malloc((size_t)n * sizeof(float));
    ct_status status;

    if (mean == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the mean");
    for (int64_t i = 0; i < n; i++) mean[i] = (float)(sum[i] / (double)r->count);
    status = ct_mean_write(o->to, shape, mean);
    if (status == CT_OK) {
        CT_INFO("%s: the mean of %lld images of %s", (o->called != NULL) ? o->called : o->to,
                (long long)r->count, ct_shape_str(shape).text);
        log_channels(shape, mean);
    }
    free(mean);
    return status;
}

ct_status ct_convert_mean(const ct_convert_options *o)
{
    static const char *const field[] = { "data" };
    ct_reader_options options = { .who = "cortado convert mean",
                                  .source = o->from,
                                  .n_field = 1,
                                  .field_name = field,
                                  .color = o->gray ? CT_COLOR_GRAY : CT_COLOR_NATIVE };
    ct_reader *r;
    double *sum = NULL;
    ct_status status;

    CT_TRY(ct_path_check_free(o->to, o->force));
    CT_TRY(ct_reader_open((o->backend != NULL) ? o->backend : "lmdb", &options, &r));
    if (r->field[0].ndim != 3) {
        status = CT_READER_FAIL(r, CT_ERR_DATA, "%s holds samples of shape %s, no images", o->from,
                                ct_shape_str(&r->field[0]).text);
        goto out;
    }
    sum = calloc((size_t)ct_shape_count(&r->field[0], 0, -1) + 1, sizeof(*sum));
    status = (sum != NULL) ? sum_all(r, sum) : CT_FAIL(CT_ERR_NOMEM, "no memory for the mean");
    if (status == CT_OK) status = write_mean(r, o, sum);
out:
    free(sum);
    ct_reader_close(r);
    return status;
}
