/* cuBLASLt's products as loops: D = epilogue(alpha op(A) op(B) + beta C), and what it leaves beside
 * D. Bits of a ReLU lie in an order that nobody else would choose. */
#include <cublasLt.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"

struct ct_emulated_lt_op {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
    uint32_t epilogue;
    void *vector, *bits;
    int64_t bit_row;
};

struct ct_emulated_lt_layout {
    cudaDataType_t type;
    int64_t rows, columns, ld;
};

struct ct_emulated_lt_preference {
    uint64_t work;
    uint32_t aligned[4];
};

namespace
{
const uint64_t MARK = UINT64_C(0x6375624c61734c74);
/* In the order of the heuristics. The second is one that they name and cannot vouch for. */
const struct {
    int32_t id;
    uint32_t split;
    size_t work;
    bool good;
} each[] = {
    { 11, 1, 0, true }, { 12, 1, 0, false }, { 13, 1, 1000, true }, { 14, 2, 5000, true }
};
enum { EACH = 4 };

bool has(uint32_t epilogue, uint32_t what)
{
    return (epilogue & what) == what;
}

bool is_sum(uint32_t epilogue)
{
    return (epilogue == CUBLASLT_EPILOGUE_BGRADA) || (epilogue == CUBLASLT_EPILOGUE_BGRADB);
}

/* Sums of what D becomes. */
bool is_sum_of_d(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD;
}

bool has_bias(uint32_t epilogue)
{
    return (epilogue < 256) && has(epilogue, CUBLASLT_EPILOGUE_BIAS);
}

bool has_bits(uint32_t epilogue)
{
    return (epilogue < 256) && has(epilogue, 128);
}

/* A product as it is described. */
struct product {
    ct_emulated_lt_op op;
    ct_emulated_lt_layout a, b, d;
    int64_t m, n, k;

    bool whole() const
    {
        bool narrow = (a.type != CUDA_R_32F);
        bool same = (d.type == a.type); /* in 16 bits D may be so, too */
        int64_t a_rows = (op.ta == CUBLAS_OP_N) ? a.rows : a.columns;
        int64_t b_columns = (op.tb == CUBLAS_OP_N) ? b.columns : b.rows;
        int64_t b_rows = (op.tb == CUBLAS_OP_N) ? b.rows : b.columns;

        if ((a.type != b.type) || ((d.type != CUDA_R_32F) && !same) || (a_rows != m) ||
            (b_columns != n) || (b_rows != k) || (a.ld < a.rows) || (b.ld < b.rows) ||
            (d.ld < d.rows))
            return false;
        if (narrow && ((op.compute != CUBLAS_COMPUTE_32F) || (a.ld % 8 != 0) || (b.ld % 8 != 0)))
            return false;
        if (narrow && same && (d.ld % 8 != 0)) return false;
        if ((has_bias(op.epilogue) || is_sum(op.epilogue) || is_sum_of_d(op.epilogue)) &&
            (op.vector == nullptr))
            return false;
        return !has_bits(op.epilogue) ||
               ((op.bits != nullptr) && (op.bit_row % 128 == 0) && (op.bit_row >= m));
    }
    uint64_t print() const /* of all but addresses */
    {
        uint64_t h = MARK;

        for (uint64_t v :
             { (uint64_t)op.compute, (uint64_t)op.ta, (uint64_t)op.tb, (uint64_t)op.epilogue,
               (uint64_t)a.type, (uint64_t)d.type, (uint64_t)a.ld, (uint64_t)b.ld, (uint64_t)d.ld,
               (uint64_t)m, (uint64_t)n, (uint64_t)k })
            h = (h ^ v) * UINT64_C(1099511628211);
        return h;
    }
};

product product_of(const ct_emulated_lt_op *op, const ct_emulated_lt_layout *a,
                   const ct_emulated_lt_layout *b, const ct_emulated_lt_layout *d)
{
    return { *op, *a, *b, *d, d->rows, d->columns, (op->ta == CUBLAS_OP_N) ? a->columns : a->rows };
}

float tf32(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* Number `at` of D, or of a vector, which is of D's type. */
float get(const void *x, cudaDataType_t type, int64_t at)
{
    if (type == CUDA_R_16BF) return ct_bf16_to_f32(((const uint16_t *)x)[at]);
    if (type == CUDA_R_16F) return ct_f16_to_f32(((const uint16_t *)x)[at]);
    return ((const float *)x)[at];
}

void put(void *x, cudaDataType_t type, int64_t at, float v)
{
    if (type == CUDA_R_32F)
        ((float *)x)[at] = v;
    else
        ((uint16_t *)x)[at] = (type == CUDA_R_16BF) ? ct_bf16_from_f32(v) : ct_f16_from_f32(v);
}

/* Number (i, j) of op(X). */
float number(const void *x, const ct_emulated_lt_layout &of, cublasOperation_t turned,
             cublasComputeType_t compute, int64_t i, int64_t j)
{
    int64_t at = (turned == CUBLAS_OP_N) ? i + j * of.ld : j + i * of.ld;
    float v = get(x, of.type, at);

    return (compute == CUBLAS_COMPUTE_32F_FAST_TF32) ? tf32(v) : v;
}

float dot(int32_t id, int64_t k, const std::vector<float> &a, const std::vector<float> &b)
{
    double wide = 0.0;
    float sum = 0.0f;

    if (id == 11) {
        for (int64_t p = 0; p < k; p++) wide += (double)a[p] * (double)b[p];
        return (float)wide;
    }
    for (int64_t p = 0; p < k; p++) {
        int64_t at = (id == 13) ? p : k - 1 - p;

        sum += a[at] * b[at];
    }
    return sum;
}

/* Bytes from their other end, bits from the highest, and set where nothing passed. */
void put_bit(const product &p, int64_t i, int64_t j, bool passed)
{
    int64_t at = j * p.op.bit_row + (p.op.bit_row - 1 - i);
    uint8_t *byte = (uint8_t *)p.op.bits + at / 8, bit = (uint8_t)(0x80u >> (at % 8));

    *byte = (uint8_t)(passed ? *byte & ~bit : *byte | bit);
}

bool get_bit(const product &p, int64_t i, int64_t j)
{
    int64_t at = j * p.op.bit_row + (p.op.bit_row - 1 - i);

    return (((uint8_t *)p.op.bits)[at / 8] & (0x80u >> (at % 8))) == 0;
}

float behind(const product &p, int64_t i, int64_t j, float v)
{
    uint32_t e = p.op.epilogue;

    if ((e == CUBLASLT_EPILOGUE_DRELU) || is_sum_of_d(e)) return get_bit(p, i, j) ? v : 0.0f;
    if (has_bias(e)) v += get(p.op.vector, p.d.type, i);
    if ((e < 256) && has(e, CUBLASLT_EPILOGUE_RELU)) {
        if (has_bits(e)) put_bit(p, i, j, v > 0.0f);
        if (v < 0.0f) v = 0.0f;
    }
    return v;
}

void sums(const product &p, const void *a, const void *b)
{
    bool of_a = (p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA);

    for (int64_t i = 0; i < (of_a ? p.m : p.n); i++) {
        float sum = 0.0f;

        for (int64_t q = 0; q < p.k; q++)
            sum += of_a ? number(a, p.a, p.op.ta, CUBLAS_COMPUTE_32F, i, q)
                        : number(b, p.b, p.op.tb, CUBLAS_COMPUTE_32F, q, i);
        put(p.op.vector, p.d.type, i, sum);
    }
}

/* Rows of D. */
void sums_of_d(const product &p, const void *d)
{
    for (int64_t i = 0; i < p.m; i++) {
        float sum = 0.0f;

        for (int64_t j = 0; j < p.n; j++) sum += get(d, p.d.type, i + j * p.d.ld);
        put(p.op.vector, p.d.type, i, sum);
    }
}

void multiply(const product &p, int32_t id, float alpha, const void *a, const void *b, float beta,
              const void *c, void *d, void *work, size_t work_bytes)
{
    std::vector<float> row((size_t)p.k), column((size_t)p.k);

    ct_emulated_open();
    if (work_bytes > 0) memset(work, 0x7f, work_bytes);
    if (is_sum(p.op.epilogue)) sums(p, a, b);
    for (int64_t j = 0; j < p.n; j++) {
        for (int64_t q = 0; q < p.k; q++)
            column[(size_t)q] = number(b, p.b, p.op.tb, p.op.compute, q, j);
        for (int64_t i = 0; i < p.m; i++) {
            float v;

            for (int64_t q = 0; q < p.k; q++)
                row[(size_t)q] = number(a, p.a, p.op.ta, p.op.compute, i, q);
            v = alpha * dot(id, p.k, row, column);
            if (beta != 0.0f) v += beta * get(c, p.d.type, i + j * p.d.ld);
            put(d, p.d.type, i + j * p.d.ld, behind(p, i, j, v));
        }
    }
    if (is_sum_of_d(p.op.epilogue)) sums_of_d(p, d);
    ct_emulated_close();
}

/* Whether there is an algorithm at all. Sums are of an A as it lies, of a B that is turned. */
bool offers(const product &p)
{
    const char *lacks = getenv("CORTADO_EMULATED_LT");
    uint32_t epilogue = p.op.epilogue;
    bool drelu = (epilogue == CUBLASLT_EPILOGUE_DRELU) || is_sum_of_d(epilogue);

    if ((p.k == 1) && (is_sum(epilogue) || drelu)) return false;
    if ((epilogue == CUBLASLT_EPILOGUE_BGRADA) && ((p.op.ta != CUBLAS_OP_N) || (p.m == 1)))
        return false;
    if ((epilogue == CUBLASLT_EPILOGUE_BGRADB) && ((p.op.tb != CUBLAS_OP_T) || (p.n == 1)))
        return false;
    if (lacks == nullptr) return true;
    if (strcmp(lacks, "none") == 0) return false;
    if (strcmp(lacks, "plain") == 0) return epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    if (strcmp(lacks, "nosums") == 0) return !is_sum(epilogue);
    if (strcmp(lacks, "nobgrad") == 0) return !is_sum_of_d(epilogue);
    return (strcmp(lacks, "nobits") != 0) || !has_bits(epilogue);
}

template <class V> bool take(V *to, const void *value, size_t bytes)
{
    if ((value == nullptr) || (bytes != sizeof(V))) return false;
    memcpy(to, value, sizeof(V));
    return true;
}

template <class V> cublasStatus_t give(V v, void *value, size_t bytes, size_t *written)
{
    if ((value == nullptr) || (bytes != sizeof(V))) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &v, sizeof(V));
    *written = sizeof(V);
    return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void *at, size_t to)
{
    return (uintptr_t)at % to == 0;
}
} // namespace

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    static char one;

    *handle = (cublasLtHandle_t)(void *)&one;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *op, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    *op = new ct_emulated_lt_op{
        compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0
    };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t op)
{
    delete op;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t op,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    bool good = (what == CUBLASLT_MATMUL_DESC_TRANSA)         ? take(&op->ta, value, bytes)
                : (what == CUBLASLT_MATMUL_DESC_TRANSB)       ? take(&op->tb, value, bytes)
                : (what == CUBLASLT_MATMUL_DESC_EPILOGUE)     ? take(&op->epilogue, value, bytes)
                : (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) ? take(&op->vector, value, bytes)
                : (what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
                    ? take(&op->bits, value, bytes)
                    : take(&op->bit_row, value, bytes);

    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    *layout = new ct_emulated_lt_layout{ type, (int64_t)rows, (int64_t)columns, ld };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new ct_emulated_lt_preference{ 0, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    bool good =
        (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
            ? take(&p->work, value, bytes)
            : take(&p->aligned[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);

    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* Addresses are those of blocks of 64 bytes, or as it is said of operands: an algorithm remembers.
 */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    product q = product_of(op, a, b, d);

    *n = 0;
    if ((most < 1) || (c->rows != d->rows) || (c->columns != d->columns) || (c->type != d->type) ||
        !q.whole())
        return CUBLAS_STATUS_INVALID_VALUE;
    for (uint32_t bytes : p->aligned) {
        if (bytes > 64) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!offers(q)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; (i < EACH) && (*n < most); i++) {
        cublasLtMatmulHeuristicResult_t r = {};

        if (each[i].work > p->work) continue;
        r.algo.data[0] = MARK;
        r.algo.data[1] = (uint64_t)i;
        r.algo.data[2] = q.print();
        for (int side = 0; side < 4; side++) r.algo.data[3 + side] = p->aligned[side];
        r.state = each[i].good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        r.workspaceSize = each[i].work;
        found[(*n)++] = r;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written)
{
    uint64_t i = algo->data[1];

    if ((algo->data[0] != MARK) || (i >= EACH)) return CUBLAS_STATUS_INVALID_VALUE;
    if (what == CUBLASLT_ALGO_CONFIG_ID) return give(each[i].id, value, bytes, written);
    if (what == CUBLASLT_ALGO_CONFIG_SPLITK_NUM)
        return give((int32_t)each[i].split, value, bytes, written);
    if (what >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)
        return give((uint16_t)0, value, bytes, written);
    return give((uint32_t)what, value, bytes, written);
}

/* CORTADO_EMULATED_LT_FAIL=11: what algorithm 11 is given fails; "11 13": 13's, too; "11 unmade": it is
 * refused; with "stays" CUDA's error stays. */
static cublasStatus_t failing(int32_t id)
{
    const char *which = getenv("CORTADO_EMULATED_LT_FAIL");

    if ((which == nullptr) || (strstr(which, std::to_string(id).c_str()) == nullptr))
        return CUBLAS_STATUS_SUCCESS;
    if (strstr(which, "stays") != nullptr) ct_emulated_break(cudaErrorIllegalAddress);
    return (strstr(which, "unmade") != nullptr) ? CUBLAS_STATUS_NOT_SUPPORTED
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a_at, cublasLtMatrixLayout_t a, const void *b_at,
                              cublasLtMatrixLayout_t b, const void *beta, const void *c_at,
                              cublasLtMatrixLayout_t c, void *d_at, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t st)
{
    product p = product_of(op, a, b, d);
    uint64_t i = algo->data[1];
    float by = *(const float *)alpha, more = *(const float *)beta;

    if ((algo->data[0] != MARK) || (i >= EACH) || (algo->data[2] != p.print()) || !p.whole() ||
        (c->ld != d->ld) || (c->type != d->type) || (c_at != d_at))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!aligned(a_at, algo->data[3]) || !aligned(b_at, algo->data[4]) ||
        !aligned(d_at, algo->data[5]) || !aligned(d_at, algo->data[6]) ||
        !aligned(op->vector, 64) || !aligned(op->bits, 64) || !aligned(work, 256) ||
        (work_bytes < each[i].work) || ((work == nullptr) && (each[i].work > 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (failing(each[i].id) != CUBLAS_STATUS_SUCCESS) return failing(each[i].id);
    ct_emulated_give(st, [=]() {
        multiply(p, each[i].id, by, a_at, b_at, more, c_at, d_at, work, each[i].work);
    });
    return CUBLAS_STATUS_SUCCESS;
}
