/* Coders: their memory, and the table. */
#include "comm/codec/cuda/coder_cuda.cuh"

#include <cstdlib>

namespace
{
cudaStream_t beside; /* of codecs: one process drives one device */

ct_status stream(const int *n_thread, ct_stream *st_p)
{
    (void)n_thread;
    if (beside == NULL)
        CT_TRY(ct_cuda_check(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), "stream"));
    *st_p = (ct_stream)beside;
    return CT_OK;
}

/* Pieces of the block; with base NULL only their bytes are counted. */
template <class T> void place(char *base, size_t *bytes, int64_t count, T **at)
{
    enum { APART = 256 };

    *at = (T *)(void *)(base + *bytes);
    *bytes = (*bytes + sizeof(T) * (size_t)count + APART - 1) / APART * APART;
}

size_t lay_out(ct_codec_coder *c, char *base)
{
    size_t bytes = 0;

    place(base, &bytes, 1, &c->run);
    place(base, &bytes, 1, &c->kept);
    place(base, &bytes, 2 * c->n_chunk, &c->part);
    place(base, &bytes, c->n_chunk, &c->start);
    place(base, &bytes, c->n_chunk, &c->count);
    place(base, &bytes, c->n_chunk, &c->over);
    place(base, &bytes, c->n_chunk, &c->equal);
    place(base, &bytes, (int64_t)c->room, &c->found_index);
    place(base, &bytes, (int64_t)c->room, &c->found_value);
    place(base, &bytes, c->limit, &c->index);
    place(base, &bytes, c->limit, &c->value);
    place(base, &bytes, 1, &c->note);
    place(base, &bytes, (int64_t)c->stride, &c->payload);
    place(base, &bytes, (int64_t)c->stride * c->s.n_payload, &c->incoming);
    return bytes;
}

void destroy(ct_codec_coder *c)
{
    if (c == NULL) return;
    if (c->block != NULL) (void)ct_cuda_check(cudaFree(c->block), "cudaFree");
    free(c);
}

__global__ void once_kernel(coder_kept *kept)
{
    if (threadIdx.x == 0) kept->clip = 1.0f;
}

ct_status make(ct_codec_coder *c)
{
    int64_t room = 4 * c->limit + 4096;
    void *block = NULL;
    size_t bytes;

    c->n_chunk = (c->s.n + CHUNK - 1) / CHUNK;
    c->room = (unsigned)((room < c->s.n) ? room : c->s.n);
    c->stride = (ct_coder_room(&c->s) + 255) / 256 * 256;
    bytes = lay_out(c, NULL);
    CT_TRY(ct_cuda_check(cudaMalloc(&block, bytes), "cudaMalloc"));
    c->block = (char *)block;
    (void)lay_out(c, c->block);
    CT_TRY(ct_cuda_check(cudaMemset(block, 0, bytes), "cudaMemset"));
    CT_CUDA_RUN(once_kernel, 1, NULL, c->kept);
    CT_TRY(ct_cuda_launched("coder"));
    return ct_cuda_check(cudaStreamSynchronize(NULL), "coder");
}

ct_status create(const ct_coder_setup *setup, ct_codec_coder **c_p)
{
    ct_codec_coder *c = (ct_codec_coder *)calloc(1, sizeof(*c));
    ct_status status;

    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a coder");
    c->s = *setup;
    c->kind = ct_coder_kind(setup);
    c->limit = ct_coder_limit(&c->s);
    status = make(c);
    if (status != CT_OK) {
        destroy(c);
        return status;
    }
    *c_p = c;
    return CT_OK;
}

void *payload(ct_codec_coder *c)
{
    return c->payload;
}

void *note(ct_codec_coder *c)
{
    return c->note;
}

void *incoming(ct_codec_coder *c, int i)
{
    return c->incoming + (size_t)i * c->stride;
}

/* Kernels take both as arguments; memory is as large as k_most needs. */
void want(ct_codec_coder *c, int64_t k)
{
    ct_coder_setup now = c->s;

    now.k = k;
    now.k_most = 0;
    c->s.k = k;
    c->limit = ct_coder_limit(&now);
}

ct_status forget(ct_codec_coder *c, ct_stream st)
{
    return ct_cuda_check(
        cudaMemsetAsync(c->kept->history, 0, sizeof(c->kept->history), (cudaStream_t)st),
        "cudaMemsetAsync");
}
} // namespace

extern "C" {
extern const ct_codec_kernels ct_codec_kernels_cuda;
const ct_codec_kernels ct_codec_kernels_cuda = {
    CT_DEVICE_CUDA,
    stream,
    ct_cuda_follow,
    create,
    destroy,
    ct_coder_clip,
    ct_coder_shrink,
    ct_coder_update,
    ct_coder_select,
    ct_coder_all,
    ct_coder_apart,
    ct_coder_square,
    NULL,
    payload,
    note,
    NULL,
    incoming,
    ct_coder_add,
    ct_coder_put_back,
    want,
    forget,
    ct_coder_sign,
    ct_coder_sign_take,
    ct_coder_sign_add,
    ct_coder_sign_put,
    ct_low_rank_left_cuda,
    ct_low_rank_right_cuda,
    ct_low_rank_product_cuda,
    ct_cast_exponent_cuda,
    ct_cast_encode_cuda,
    ct_cast_decode_cuda,
};
}
