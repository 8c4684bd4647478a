/* HDF5Output: appends the samples of its two bottoms to data sets "data" and "label" of a file,
 * which the first batch creates. Each of several ranks has a file of its own, with its number
 * behind. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/hdf5.h"
#include "layers/types/layer_types.h"

enum { N_SET = 2 };

typedef struct output_state {
    char path[4096];
    hid_t file, set[N_SET]; /* 0: not there yet */
} output_state;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__HDF5OutputParameter *p = l->param->hdf5_output_param;
    const ct_net_env *env = l->env;
    output_state *s = l->state;
    bool job = (env->n_writer > 0);
    int n;

    (void)bottom;
    if ((p == NULL) || (p->file_name == NULL) || (p->file_name[0] == '\0'))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "hdf5_output_param.file_name is missing");
    if ((job ? env->n_writer : env->n_rank) > 1)
        n = snprintf(s->path, sizeof(s->path), "%s.%d", p->file_name,
                     job ? env->writer : env->rank);
    else
        n = snprintf(s->path, sizeof(s->path), "%s", p->file_name);
    if ((n < 0) || ((size_t)n >= sizeof(s->path)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "hdf5_output_param.file_name is too long");
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;

    if ((a->ndim < 1) || (b->ndim < 1) || (a->dim[0] != b->dim[0]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms of shapes %s and %s: the same number of samples is needed",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    return CT_OK;
}

/* A set that grows along its first axis, a batch a chunk. */
static hid_t make_set(hid_t file, const char *name, const ct_shape *s)
{
    hsize_t dim[CT_MAX_DIM], most[CT_MAX_DIM], chunk[CT_MAX_DIM];
    hid_t space, list, set;

    for (int i = 0; i < s->ndim; i++) {
        dim[i] = most[i] = chunk[i] = (hsize_t)s->dim[i];
        if (chunk[i] == 0) chunk[i] = 1;
    }
    dim[0] = 0;
    most[0] = H5S_UNLIMITED;
    space = H5Screate_simple(s->ndim, dim, most);
    list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(list, s->ndim, chunk);
    set = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Pclose(list);
    H5Sclose(space);
    return set;
}

static herr_t append(hid_t set, const ct_blob *b)
{
    const ct_shape *s = &b->data.shape;
    hsize_t size[CT_MAX_DIM], first[CT_MAX_DIM] = { 0 }, count[CT_MAX_DIM];
    hid_t space = H5Dget_space(set), memory;
    herr_t rc;

    H5Sget_simple_extent_dims(space, size, NULL);
    H5Sclose(space);
    for (int i = 0; i < s->ndim; i++) count[i] = (hsize_t)s->dim[i];
    first[0] = size[0];
    size[0] += count[0];
    if ((count[0] == 0) || (H5Dset_extent(set, size) < 0)) return (count[0] == 0) ? 0 : -1;
    space = H5Dget_space(set);
    memory = H5Screate_simple(s->ndim, count, NULL);
    rc = H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, count, NULL);
    if (rc >= 0) rc = H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, ct_blob_data(b));
    H5Sclose(memory);
    H5Sclose(space);
    return rc;
}

static herr_t write_batch(output_state *s, const ct_instance *in)
{
    static const char *const name[N_SET] = { "data", "label" };

    if (s->file <= 0) s->file = H5Fcreate(s->path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (s->file < 0) return -1;
    for (int i = 0; i < N_SET; i++) {
        if (s->set[i] <= 0) s->set[i] = make_set(s->file, name[i], &in->bottom[i]->data.shape);
        if ((s->set[i] < 0) || (append(s->set[i], in->bottom[i]) < 0)) return -1;
    }
    return H5Fflush(s->file, H5F_SCOPE_GLOBAL);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    output_state *s = l->state;
    herr_t rc;

    (void)ex;
    ct_hdf5_lock();
    rc = write_batch(s, in);
    ct_hdf5_unlock();
    if (rc < 0) return CT_LAYER_FAIL(l, CT_ERR_IO, "cannot write to %s", s->path);
    return CT_OK;
}

static void destroy(ct_layer *l)
{
    output_state *s = l->state;

    ct_hdf5_lock();
    for (int i = 0; i < N_SET; i++) {
        if (s->set[i] > 0) H5Dclose(s->set[i]);
    }
    if (s->file > 0) H5Fclose(s->file);
    ct_hdf5_unlock();
}

const ct_layer_ops ct_layer_hdf5_output = {
    .type = "HDF5Output",
    .params = "hdf5_output_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .no_diff_bottom = 3,
    .state_size = sizeof(output_state),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .destroy = destroy,
};
