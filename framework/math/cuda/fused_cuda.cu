/* Products by cuBLASLt, with its epilogues. It is column major, as cuBLAS: what it computes is C' =
 * op(B)' op(A)', so its A is B here, its rows are the columns of C, and a vector along its rows is
 * one along a row of C. Operands that are not of 16 bits yet are rounded into the workspace first,
 * as math_cuda.cu does. Vectors are of C's type: a bias of f32 is rounded with a C of 16 bits,
 * and sums, which are f32, are not made beside one. */
#include <cstdio>
#include <cstdlib>
#include <cublasLt.h>

#include "framework/base/memory.h"
#include "framework/math/cuda/math_cuda.h"
#include "framework/math/cuda/narrow.cuh"
#include "framework/math/fused.h"

/* Bits of a row of C. */
static const int64_t BIT_ROW = 128;

typedef struct stored {
    int64_t rows, columns, ld; /* as it lies here */
} stored;

static inline bool narrows(const ct_fused_desc *d)
{
    return ct_operand_size(d->operand) == sizeof(uint16_t);
}

static inline bool lies(const ct_fused_desc *d, unsigned side)
{
    return (d->narrow & side) != 0;
}

/* Whether a run rounds A or B. */
static inline bool rounds(const ct_fused_desc *d, unsigned side)
{
    return narrows(d) && !lies(d, side);
}

static inline stored side(const ct_fused_desc *d, unsigned which, bool turned, int64_t rows,
                          int64_t columns)
{
    stored s = { turned ? columns : rows, turned ? rows : columns, 0 };

    s.ld = rounds(d, which) ? ct_narrow_row(s.columns) : s.columns;
    return s;
}

static inline stored a_of(const ct_fused_desc *d)
{
    return side(d, CT_NARROW_A, d->ta, d->m, d->k);
}

static inline stored b_of(const ct_fused_desc *d)
{
    return side(d, CT_NARROW_B, d->tb, d->k, d->n);
}

static inline bool has_vector(const ct_fused_desc *d)
{
    return (d->behind & (CT_FUSE_BIAS | CT_FUSE_SUMS)) != 0;
}

static inline bool has_bits(const ct_fused_desc *d)
{
    return (d->behind & (CT_FUSE_BITS | CT_FUSE_DRELU)) != 0;
}

static inline int64_t bit_row(const ct_fused_desc *d)
{
    return (d->n + BIT_ROW - 1) / BIT_ROW * BIT_ROW;
}

static inline size_t bits_of(const ct_fused_desc *d)
{
    return (size_t)(d->m * bit_row(d) / 8);
}

static inline bool rounds_bias(const ct_fused_desc *d)
{
    return lies(d, CT_NARROW_C) && ((d->behind & CT_FUSE_BIAS) != 0);
}

/* What it does not do, whether or not its heuristics refuse it; NVIDIA's nvmath-python keeps away
 * from the same. Sums are made of operands as gradients of weights have them, and of more than one
 * number; and neither they nor a ReLU's gradient in depth 1. */
static inline bool is_possible(const ct_fused_desc *d)
{
    bool of_a = (d->behind & CT_FUSE_SUM_A) != 0, of_b = (d->behind & CT_FUSE_SUM_B) != 0;

    if (lies(d, CT_NARROW_C) && ((d->behind & CT_FUSE_SUMS) != 0)) return false;
    if ((d->k == 1) && ((d->behind & (CT_FUSE_DRELU | CT_FUSE_SUMS)) != 0)) return false;
    return !(of_a && (!d->ta || (d->m == 1))) && !(of_b && (d->tb || (d->n == 1)));
}

/* Rows of 16 bits as they lie. */
static inline bool rows_fit(const ct_fused_desc *d)
{
    bool a = !lies(d, CT_NARROW_A) || (a_of(d).columns % 8 == 0);
    bool b = !lies(d, CT_NARROW_B) || (b_of(d).columns % 8 == 0);

    return a && b && (!lies(d, CT_NARROW_C) || (d->n % 8 == 0)) && (narrows(d) || (d->narrow == 0));
}

/* What NVIDIA recommends for Hopper; the layer's scratch memory has room for what is taken. */
static const size_t WORK_MAX = (size_t)32 << 20;
/* Blocks of the memory plan begin so; cuBLASLt wants more of its workspace. */
static const uint32_t ALIGNED = 64;
static const size_t WORK_ALIGNED = 256;

/* The library's handle belongs to the process's device, like cuBLAS's (math_cuda.cu). */
static cublasLtHandle_t handle;

struct ct_fused {
    ct_fused_desc d;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c; /* as the library calls them */
    cublasLtMatmulHeuristicResult_t found[CT_FUSED_MOST];
    char name[CT_FUSED_MOST][CT_FUSED_NAME];
    int n, taken;
    /* What runs: the one taken, or where that fails at its first run, another. */
    mutable int running;
    mutable bool ran, failed[CT_FUSED_MOST];
};

extern "C" ct_status ct_fused_cuda_open(void)
{
    cublasStatus_t st;

    if (handle != NULL) return CT_OK;
    st = cublasLtCreate(&handle);
    if (st == CUBLAS_STATUS_SUCCESS) return CT_OK;
    handle = NULL;
    return CT_FAIL(CT_ERR_DEVICE, "cublasLtCreate: cuBLAS status %d", (int)st);
}

/* ---- descriptions */

static uint32_t epilogue_of(unsigned behind)
{
    switch (behind) {
    case 0:
        return CUBLASLT_EPILOGUE_DEFAULT;
    case CT_FUSE_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case CT_FUSE_RELU:
        return CUBLASLT_EPILOGUE_RELU;
    case CT_FUSE_BIAS | CT_FUSE_RELU:
        return CUBLASLT_EPILOGUE_RELU_BIAS;
    case CT_FUSE_RELU | CT_FUSE_BITS:
        return CUBLASLT_EPILOGUE_RELU_AUX;
    case CT_FUSE_BIAS | CT_FUSE_RELU | CT_FUSE_BITS:
        return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case CT_FUSE_DRELU:
        return CUBLASLT_EPILOGUE_DRELU;
    case CT_FUSE_DRELU | CT_FUSE_SUM_C:
        return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case CT_FUSE_SUM_A:
        return CUBLASLT_EPILOGUE_BGRADB;
    case CT_FUSE_SUM_B:
        return CUBLASLT_EPILOGUE_BGRADA;
    default:
        return 0;
    }
}

template <class V> static bool set(ct_fused *f, cublasLtMatmulDescAttributes_t what, V value)
{
    return cublasLtMatmulDescSetAttribute(f->op, what, &value, sizeof(value)) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Addresses are those of each run; heuristics only look at how far they are aligned. */
static bool describe_behind(ct_fused *f)
{
    void *somewhere = (void *)(uintptr_t)ALIGNED;
    bool good = set(f, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(f->d.behind));

    if (has_vector(&f->d)) good = good && set(f, CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere);
    if (has_bits(&f->d))
        good = good && set(f, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, somewhere) &&
               set(f, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, bit_row(&f->d));
    return good;
}

static bool lay_out(cublasLtMatrixLayout_t *layout_p, cudaDataType_t type, stored s)
{
    return cublasLtMatrixLayoutCreate(layout_p, type, (uint64_t)s.columns, (uint64_t)s.rows,
                                      s.ld) == CUBLAS_STATUS_SUCCESS;
}

static bool describe(ct_fused *f)
{
    const ct_fused_desc *d = &f->d;
    cublasComputeType_t compute =
        (d->operand == CT_OPERAND_TF32) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cudaDataType_t type = !narrows(d)                       ? CUDA_R_32F
                          : (d->operand == CT_OPERAND_BF16) ? CUDA_R_16BF
                                                            : CUDA_R_16F;

    return (cublasLtMatmulDescCreate(&f->op, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS) &&
           set(f, CUBLASLT_MATMUL_DESC_TRANSA, d->tb ? CUBLAS_OP_T : CUBLAS_OP_N) &&
           set(f, CUBLASLT_MATMUL_DESC_TRANSB, d->ta ? CUBLAS_OP_T : CUBLAS_OP_N) &&
           describe_behind(f) && lay_out(&f->a, type, b_of(d)) && lay_out(&f->b, type, a_of(d)) &&
           lay_out(&f->c, lies(d, CT_NARROW_C) ? type : CUDA_R_32F, { d->m, d->n, d->n });
}

/* ---- algorithms */

template <class V>
static unsigned config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    V value = 0;
    size_t written = 0;

    (void)cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, sizeof(value), &written);
    return (unsigned)value;
}

/* The version of the library, then all that can be set of an algorithm. */
static void name_algorithm(const cublasLtMatmulAlgo_t *algo, char *name)
{
    snprintf(name, CT_FUSED_NAME, "lt%zu:%u.%u.%u.%u.%u.%u.%u.%u.%u", cublasLtGetVersion(),
             config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID),
             config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
             config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
             config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
             config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
             config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
             config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
             config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

static bool is_known(const ct_fused *f, const char *name)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->name[i], name) == 0) return true;
    }
    return false;
}

static uint32_t aligned_of(const ct_fused_desc *d)
{
    return (d->aligned > 0) ? (uint32_t)d->aligned : ALIGNED;
}

/* Rounded operands lie in the workspace. */
static bool limit(cublasLtMatmulPreference_t p, const ct_fused_desc *d)
{
    static const cublasLtMatmulPreferenceAttributes_t side[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const bool in_work[] = { rounds(d, CT_NARROW_B), rounds(d, CT_NARROW_A), false, false };
    uint64_t most = WORK_MAX;

    for (int i = 0; i < 4; i++) {
        uint32_t bytes = in_work[i] ? ALIGNED : aligned_of(d);

        if (cublasLtMatmulPreferenceSetAttribute(p, side[i], &bytes, sizeof(bytes)) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
    }
    return cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                                sizeof(most)) == CUBLAS_STATUS_SUCCESS;
}

/* Those that heuristics name, the best first; n stays 0 where there are none. */
static void search(ct_fused *f)
{
    cublasLtMatmulHeuristicResult_t all[CT_FUSED_MOST];
    cublasLtMatmulPreference_t p;
    int n = 0;

    if (cublasLtMatmulPreferenceCreate(&p) != CUBLAS_STATUS_SUCCESS) return;
    if (!limit(p, &f->d) ||
        (cublasLtMatmulAlgoGetHeuristic(handle, f->op, f->a, f->b, f->c, f->c, p, CT_FUSED_MOST,
                                        all, &n) != CUBLAS_STATUS_SUCCESS))
        n = 0;
    (void)cublasLtMatmulPreferenceDestroy(p);
    for (int i = 0; i < n; i++) {
        char name[CT_FUSED_NAME];

        if ((all[i].state != CUBLAS_STATUS_SUCCESS) || (all[i].workspaceSize > WORK_MAX)) continue;
        name_algorithm(&all[i].algo, name);
        if (is_known(f, name)) continue;
        memcpy(f->name[f->n], name, sizeof(name));
        f->found[f->n++] = all[i];
    }
}

static void destroy(ct_fused *f)
{
    if (f == NULL) return;
    if (f->op != NULL) (void)cublasLtMatmulDescDestroy(f->op);
    if (f->a != NULL) (void)cublasLtMatrixLayoutDestroy(f->a);
    if (f->b != NULL) (void)cublasLtMatrixLayoutDestroy(f->b);
    if (f->c != NULL) (void)cublasLtMatrixLayoutDestroy(f->c);
    free(f);
}

static ct_status create(const ct_fused_desc *d, ct_fused **f_p)
{
    ct_fused *f;

    if ((handle == NULL) || (d->m < 1) || (d->n < 1) || (d->k < 1) ||
        (epilogue_of(d->behind) == 0) || !is_possible(d) || !rows_fit(d))
        return CT_UNSUPPORTED;
    f = (ct_fused *)calloc(1, sizeof(*f));
    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a product of cuBLASLt");
    f->d = *d;
    if (describe(f)) search(f);
    if (f->n == 0) {
        destroy(f);
        return CT_UNSUPPORTED;
    }
    *f_p = f;
    return CT_OK;
}

static const char *algorithm(const ct_fused *f, int i)
{
    return ((i >= 0) && (i < f->n)) ? f->name[i] : NULL;
}

static void take(ct_fused *f, int i)
{
    f->taken = f->running = i;
    f->ran = false;
    memset(f->failed, 0, sizeof(f->failed));
}

/* ---- runs */

/* Of the library's own memory: what algorithm i needs, or if it is more, the one that would come
 * first in its place. */
static size_t own_room(const ct_fused *f, int i)
{
    int other = (i == 0) ? 1 : 0;
    size_t own = f->found[i].workspaceSize;

    if ((other < f->n) && (f->found[other].workspaceSize > own))
        own = f->found[other].workspaceSize;
    return own;
}

/* The workspace: the library's, then sums that are to be added, then rounded operands, then a
 * rounded bias. */
typedef struct room {
    size_t sums, a, b, bias, bytes;
} room;

static room room_of(const ct_fused *f, int i)
{
    const ct_fused_desc *d = &f->d;
    stored a = a_of(d), b = b_of(d);
    int64_t most = (d->m > d->n) ? d->m : d->n;
    size_t own = own_room(f, i);
    room r;

    r.sums = (own > 0) ? ct_align_up(own + WORK_ALIGNED) : 0;
    r.a = r.sums +
          (((d->behind & CT_FUSE_SUMS) != 0) ? ct_align_up((size_t)most * sizeof(float)) : 0);
    r.b = r.a + (rounds(d, CT_NARROW_A) ? ct_narrow_bytes(a.rows, a.columns) : 0);
    r.bias = r.b + (rounds(d, CT_NARROW_B) ? ct_narrow_bytes(b.rows, b.columns) : 0);
    r.bytes = r.bias + (rounds_bias(d) ? ct_narrow_bytes(1, d->n) : 0);
    return r;
}

static size_t workspace(const ct_fused *f, int i)
{
    return room_of(f, (i >= 0) ? i : f->taken).bytes;
}

static ct_status reads(const ct_fused_desc *d, unsigned side, ct_stream st, stored s,
                       const float *v, char *there, const void **v_p)
{
    *v_p = rounds(d, side) ? (const void *)there : (const void *)v;
    if (!rounds(d, side)) return CT_OK;
    return ct_cuda_narrow_rows(st, d->operand, s.rows, s.columns, v, s.columns, (uint16_t *)there);
}

static bool is_aligned(const void *at, uint32_t bytes)
{
    return (uintptr_t)at % bytes == 0;
}

static bool all_aligned(const ct_fused_desc *d, const ct_fused_args *g)
{
    const void *const operand[] = { g->a, g->b, g->c };
    const void *const other[] = { g->bias, g->sums, g->bits, g->work };
    bool good = true;

    for (const void *at : operand) good = good && is_aligned(at, aligned_of(d));
    for (const void *at : other) good = good && is_aligned(at, ALIGNED);
    return good;
}

/* Where the library puts sums that it overwrites. */
static float *sums_at(const ct_fused *f, const ct_fused_args *g, const room *r)
{
    return (g->sums_beta == 0.0f) ? g->sums : (float *)((char *)g->work + r->sums);
}

static ct_status point(const ct_fused *f, const ct_fused_args *g, const room *r)
{
    ct_fused *of = (ct_fused *)f; /* the addresses in its description, nothing else */
    bool good = true;

    if ((f->d.behind & CT_FUSE_BIAS) != 0)
        good = set(of, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                   rounds_bias(&f->d) ? (const void *)((char *)g->work + r->bias)
                                      : (const void *)g->bias);
    else if (has_vector(&f->d))
        good = set(of, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (void *)sums_at(f, g, r));
    if (has_bits(&f->d)) good = good && set(of, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g->bits);
    return good ? CT_OK : CT_FAIL(CT_ERR_DEVICE, "cuBLASLt does not take an address");
}

/* Whether it may have been another algorithm's turn, had that been known; nothing of what C was to
 * be added to may be lost. */
static bool is_of_algorithm(cublasStatus_t status, float beta)
{
    if ((status == CUBLAS_STATUS_NOT_SUPPORTED) || (status == CUBLAS_STATUS_ARCH_MISMATCH))
        return true;
    return (beta == 0.0f) &&
           ((status == CUBLAS_STATUS_EXECUTION_FAILED) || (status == CUBLAS_STATUS_ALLOC_FAILED) ||
            (status == CUBLAS_STATUS_INTERNAL_ERROR));
}

/* Another algorithm in place of one that failed at its first run, in the order of the heuristics.
 */
static bool goes_over(const ct_fused *f, ct_stream st, cublasStatus_t status, float beta)
{
    int from = f->running;

    if (f->ran || !is_of_algorithm(status, beta) || !ct_cuda_goes_on((cudaStream_t)st))
        return false;
    f->failed[from] = true;
    for (int i = 0; i < f->n; i++) {
        if (f->failed[i] || (f->found[i].workspaceSize > own_room(f, f->taken))) continue;
        f->running = i;
        CT_WARN("cuBLASLt's algorithm %s does not do a product that its heuristics name it for "
                "(cuBLAS status %d): %s does it from here on",
                f->name[from], (int)status, f->name[i]);
        return true;
    }
    return false;
}

static ct_status run(const ct_fused *f, ct_stream st, const ct_fused_args *g)
{
    const ct_fused_desc *d = &f->d;
    const cublasLtMatmulHeuristicResult_t *how;
    room r = room_of(f, f->taken);
    char *work = (char *)(((uintptr_t)g->work + WORK_ALIGNED - 1) / WORK_ALIGNED * WORK_ALIGNED);
    const float one = 1.0f;
    const void *a, *b;
    cublasStatus_t status;

    if (!all_aligned(d, g))
        return CT_FAIL(CT_ERR_ARG, "a product of cuBLASLt with an operand that is not aligned");
    CT_TRY(reads(d, CT_NARROW_A, st, a_of(d), g->a, (char *)g->work + r.a, &a));
    CT_TRY(reads(d, CT_NARROW_B, st, b_of(d), g->b, (char *)g->work + r.b, &b));
    if (rounds_bias(d))
        CT_TRY(ct_cuda_narrow(st, d->operand, d->n, g->bias, (char *)g->work + r.bias));
    CT_TRY(point(f, g, &r));
    do {
        how = &f->found[f->running];
        status = cublasLtMatmul(handle, f->op, &one, b, f->a, a, f->b, &g->beta, g->c, f->c, g->c,
                                f->c, &how->algo, (how->workspaceSize > 0) ? work : NULL,
                                how->workspaceSize, (cudaStream_t)st);
    } while ((status != CUBLAS_STATUS_SUCCESS) && goes_over(f, st, status, g->beta));
    if (status != CUBLAS_STATUS_SUCCESS)
        return CT_FAIL(CT_ERR_DEVICE, "cublasLtMatmul, %s: cuBLAS status %d", f->name[f->running],
                       (int)status);
    f->ran = true;
    if (((d->behind & CT_FUSE_SUMS) == 0) || (g->sums_beta == 0.0f)) return CT_OK;
    return ct_math_cuda.axpby(st, ((d->behind & CT_FUSE_SUM_A) != 0) ? d->m : d->n, 1.0f,
                              sums_at(f, g, &r), g->sums_beta, g->sums);
}

extern "C" const ct_fused_ops ct_fused_cuda = { "lt", create,    destroy, algorithm,
                                                take, workspace, bits_of, run };
