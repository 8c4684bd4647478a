/* Payloads: written, and read one at a time; payload_add.c adds up many. */
#include "comm/sparse/payload_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "framework/base/bf16.h"

const char *ct_payload_name(ct_payload_form form)
{
    static const char *const name[] = { "pairs", "half", "mean" };

    return name[form];
}

size_t ct_payload_bytes(ct_payload_form form, int64_t n, int64_t count)
{
    return ct_payload_size(ct_payload_choose(form, n, count), n, count);
}

void ct_payload_lay_out(const void *payload, ct_payload_code code, int64_t n, int64_t count,
                        ct_payload_view *v)
{
    const char *at = (const char *)payload + CT_PAYLOAD_HEAD;
    size_t entries = (size_t)count;

    *v = (ct_payload_view){ .code = code, .n = n, .count = count };
    if ((code == CT_CODE_HALF) || (code == CT_CODE_MEAN16)) {
        v->per_block = (const uint32_t *)(const void *)at;
        at += sizeof(uint32_t) * (size_t)ct_payload_blocks(n);
        v->index16 = (const uint16_t *)(const void *)at;
        if (code == CT_CODE_HALF)
            v->half = (const uint16_t *)(const void *)(at + sizeof(uint16_t) * entries);
    } else if ((code == CT_CODE_PAIRS) || (code == CT_CODE_MEAN32)) {
        v->index32 = (const uint32_t *)(const void *)at;
        if (code == CT_CODE_PAIRS)
            v->value = (const float *)(const void *)(at + sizeof(uint32_t) * entries);
    } else if (code == CT_CODE_DENSE32) {
        v->value = (const float *)(const void *)at;
    } else {
        v->half = (const uint16_t *)(const void *)at;
    }
}

/* ---- rounding */

float ct_payload_half(float v)
{
    return ct_bf16_to_f32(ct_payload_half_bits(v));
}

static float mean_of(const ct_sparse *s)
{
    double sum = 0;

    for (int64_t j = 0; j < s->count; ++j) sum += (double)s->value[j];
    return (s->count > 0) ? (float)(sum / (double)s->count) : 0;
}

void ct_payload_round(ct_payload_form form, ct_sparse *s, const ct_residual_return *lost)
{
    float mean = (form == CT_PAYLOAD_MEAN) ? mean_of(s) : 0;

    if (form == CT_PAYLOAD_PAIRS) return;
    ct_residual_return_next(lost);
    for (int64_t j = 0; j < s->count; ++j) {
        float v = s->value[j], r = (form == CT_PAYLOAD_MEAN) ? mean : ct_payload_half(v);

        ct_residual_return_add(lost, s->index[j], v - r);
        s->value[j] = r;
    }
}

/* ---- writing */

/* Indices of blocks, and how many of each. */
static void write_blocks(const ct_sparse *s, int64_t first, int64_t last, int64_t start,
                         const ct_payload_view *v)
{
    uint32_t *per_block = (uint32_t *)(uintptr_t)v->per_block;
    uint16_t *index = (uint16_t *)(uintptr_t)v->index16;
    int64_t j = first;

    for (int64_t b = 0; b < ct_payload_blocks(v->n); ++b) {
        int64_t from = start + b * CT_PAYLOAD_BLOCK, begin = j;

        for (; (j < last) && (s->index[j] - from < CT_PAYLOAD_BLOCK); ++j)
            index[j - first] = (uint16_t)(s->index[j] - from);
        per_block[b] = (uint32_t)(j - begin);
    }
}

static void write_dense(const ct_sparse *s, int64_t first, int64_t last, int64_t start,
                        const ct_payload_view *v)
{
    float *f = (float *)(uintptr_t)v->value;
    uint16_t *h = (uint16_t *)(uintptr_t)v->half;

    if (f != NULL)
        memset(f, 0, sizeof(*f) * (size_t)v->n);
    else
        memset(h, 0, sizeof(*h) * (size_t)v->n);
    for (int64_t j = first; j < last; ++j) {
        if (f != NULL)
            f[s->index[j] - start] = s->value[j];
        else
            h[s->index[j] - start] = ct_bf16_from_f32(s->value[j]);
    }
}

size_t ct_payload_pack_part(ct_payload_form form, const ct_sparse *s, int64_t first, int64_t last,
                            int64_t start, int64_t n, void *payload)
{
    int64_t count = last - first;
    ct_payload_code code = ct_payload_choose(form, n, count);
    ct_payload_head head = { .bytes = ct_payload_size(code, n, count),
                             .code = code,
                             .mean =
                                 ((form == CT_PAYLOAD_MEAN) && (count > 0)) ? s->value[first] : 0,
                             .n = n,
                             .count = count };
    ct_payload_view v;

    memcpy(payload, &head, sizeof(head));
    ct_payload_lay_out(payload, code, n, count, &v);
    if ((code == CT_CODE_DENSE32) || (code == CT_CODE_DENSE16)) {
        write_dense(s, first, last, start, &v);
        return head.bytes;
    }
    if (v.index16 != NULL) write_blocks(s, first, last, start, &v);
    for (int64_t j = first; (v.index32 != NULL) && (j < last); ++j)
        ((uint32_t *)(uintptr_t)v.index32)[j - first] = s->index[j] - (uint32_t)start;
    if ((code == CT_CODE_PAIRS) && (count > 0))
        memcpy((float *)(uintptr_t)v.value, s->value + first, sizeof(float) * (size_t)count);
    for (int64_t j = first; (code == CT_CODE_HALF) && (j < last); ++j)
        ((uint16_t *)(uintptr_t)v.half)[j - first] = ct_bf16_from_f32(s->value[j]);
    return head.bytes;
}

size_t ct_payload_pack(ct_payload_form form, const ct_sparse *s, void *payload)
{
    return ct_payload_pack_part(form, s, 0, s->count, 0, s->n, payload);
}

ct_status ct_payload_pack_vector(const float *v, int64_t n, ct_sparse *scratch, void *payload,
                                 size_t *bytes_p)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; ++i) count += (v[i] != 0);
    if (ct_payload_choose(CT_PAYLOAD_PAIRS, n, count) == CT_CODE_DENSE32) {
        ct_payload_head head = { .code = CT_CODE_DENSE32, .n = n, .count = count };

        head.bytes = ct_payload_size(CT_CODE_DENSE32, n, count);
        memcpy(payload, &head, sizeof(head));
        memcpy((char *)payload + CT_PAYLOAD_HEAD, v, sizeof(*v) * (size_t)n);
        *bytes_p = head.bytes;
        return CT_OK;
    }
    scratch->n = n;
    scratch->count = 0; /* nothing in it is to be kept */
    CT_TRY(ct_sparse_reserve(scratch, count));
    for (int64_t i = 0; i < n; ++i) {
        if (v[i] == 0) continue;
        scratch->index[scratch->count] = (uint32_t)i;
        scratch->value[scratch->count++] = v[i];
    }
    *bytes_p = ct_payload_pack(CT_PAYLOAD_PAIRS, scratch, payload);
    return CT_OK;
}

/* ---- reading */

static ct_status check_blocks(const ct_payload_view *v)
{
    int64_t sum = 0;

    for (int64_t b = 0; b < ct_payload_blocks(v->n); ++b) sum += v->per_block[b];
    if (sum != v->count)
        return CT_FAIL(CT_ERR_COMM, "a payload of %lld entries has %lld in its blocks",
                       (long long)v->count, (long long)sum);
    return CT_OK;
}

ct_status ct_payload_open(const void *payload, size_t bytes, int64_t n, ct_payload_view *v)
{
    ct_payload_head head;

    if (bytes < CT_PAYLOAD_HEAD)
        return CT_FAIL(CT_ERR_COMM, "a payload of %zu bytes has no head", bytes);
    memcpy(&head, payload, sizeof(head));
    if ((head.code >= CT_CODE_N) || (head.n != n) || (head.count < 0) || (head.count > n) ||
        (head.bytes != bytes) ||
        (bytes != ct_payload_size((ct_payload_code)head.code, head.n, head.count)))
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of %zu bytes for %lld elements says of itself: %llu bytes, code "
                       "%u, %lld of %lld elements",
                       bytes, (long long)n, (unsigned long long)head.bytes, head.code,
                       (long long)head.count, (long long)head.n);
    ct_payload_lay_out(payload, (ct_payload_code)head.code, n, head.count, v);
    v->mean = head.mean;
    return (v->per_block != NULL) ? check_blocks(v) : CT_OK;
}

ct_status ct_payload_check(const void *payload, size_t bytes, int64_t n)
{
    ct_payload_view v;

    return ct_payload_open(payload, bytes, n, &v);
}

static ct_status read_dense(const ct_payload_view *v, ct_sparse *out)
{
    int64_t count = 0;

    for (int64_t i = 0; i < v->n; ++i) {
        float f = (v->value != NULL) ? v->value[i] : ct_bf16_to_f32(v->half[i]);

        if (f == 0) continue;
        if (count == v->count)
            return CT_FAIL(CT_ERR_COMM, "a dense payload of %lld entries has more",
                           (long long)v->count);
        out->index[count] = (uint32_t)i;
        out->value[count++] = f;
    }
    out->count = count;
    return CT_OK;
}

static void read_values(const ct_payload_view *v, float *value)
{
    if (v->value != NULL) {
        memcpy(value, v->value, sizeof(*value) * (size_t)v->count);
    } else {
        for (int64_t j = 0; j < v->count; ++j)
            value[j] = (v->half != NULL) ? ct_bf16_to_f32(v->half[j]) : v->mean;
    }
}

static void read_blocks(const ct_payload_view *v, uint32_t *index)
{
    int64_t j = 0;

    for (int64_t b = 0; b < ct_payload_blocks(v->n); ++b) {
        for (int64_t end = j + v->per_block[b]; j < end; ++j)
            index[j] = (uint32_t)(b * CT_PAYLOAD_BLOCK + v->index16[j]);
    }
}

ct_status ct_payload_unpack(const void *payload, size_t bytes, int64_t n, ct_sparse *out)
{
    ct_payload_view v;
    int64_t last = -1;

    CT_TRY(ct_payload_open(payload, bytes, n, &v));
    out->n = n;
    out->count = 0;
    CT_TRY(ct_sparse_reserve(out, v.count));
    if ((v.code == CT_CODE_DENSE32) || (v.code == CT_CODE_DENSE16)) return read_dense(&v, out);
    out->count = v.count;
    if (v.count == 0) return CT_OK; /* out may have no buffers yet */
    if (v.index32 != NULL)
        memcpy(out->index, v.index32, sizeof(*out->index) * (size_t)v.count);
    else
        read_blocks(&v, out->index);
    read_values(&v, out->value);
    for (int64_t j = 0; j < v.count; ++j) {
        int64_t i = out->index[j];

        if ((i <= last) || (i >= n))
            return CT_FAIL(CT_ERR_COMM, "a payload names element %lld after %lld, of %lld",
                           (long long)i, (long long)last, (long long)n);
        last = i;
    }
    return CT_OK;
}
