/** @file emulated_recurrent.cuh  What cuDNN's recurrent layers are here: their weights in an order
 * of their own, with gaps, and what forward leaves for backward. Included by
 * emulated_recurrent*_cudnn.cu.
 */
#ifndef CT_EMULATED_RECURRENT_CUH
#define CT_EMULATED_RECURRENT_CUH

#include "emulated_cudnn.cuh"

enum { CT_EMULATED_LANE = 16 /* a part of the weights begins at so many numbers */ };

struct ct_emulated_rnn {
    bool lstm, tf32;
    cudnnDataType_t type;
    int64_t inputs, hidden;

    int64_t gates() const
    {
        return lstm ? 4 : 1;
    }
    int64_t rows() const
    {
        return gates() * hidden;
    }
    int64_t columns(int64_t id) const
    {
        return (id < gates()) ? inputs : hidden;
    }
    size_t size() const
    {
        return (type == CUDNN_DATA_FLOAT) ? 4 : 2;
    }
    static int64_t padded(int64_t n)
    {
        return (n + CT_EMULATED_LANE - 1) / CT_EMULATED_LANE * CT_EMULATED_LANE;
    }
    /* Biases, then the matrices from the last to the first. */
    int64_t matrix(int64_t id) const
    {
        int64_t at = gates() * padded(hidden);

        for (int64_t k = 2 * gates() - 1; k > id; k--) at += padded(hidden * columns(k));
        return at;
    }
    int64_t bias(int64_t gate) const
    {
        return (gates() - 1 - gate) * padded(hidden);
    }
    int64_t numbers() const
    {
        return matrix(0) + padded(hidden * inputs);
    }
};

struct ct_emulated_sequences {
    cudnnDataType_t type;
    int64_t longest, batch, size;
};

/* In front of what forward leaves: activations, cells, and gradients of sums, in double. */
struct ct_emulated_head {
    uint64_t mark, check;
    int64_t steps, batch;
    int next; /* what it is good for */
};
enum { CT_EMULATED_BY_DATA = 1, CT_EMULATED_BY_WEIGHTS, CT_EMULATED_NOTHING };
static const uint64_t CT_EMULATED_MARK = 0x636f727461646f21u;

struct ct_emulated_pass {
    ct_emulated_rnn r;
    int64_t steps, batch;
    ct_emulated_array of; /* only its type is looked at */
    ct_emulated_head *first;
    double *act, *cell, *d_sums;
    const void *weights;

    int64_t sums_count() const
    {
        return steps * batch * r.rows();
    }
    int64_t cell_count() const
    {
        return (steps + 1) * batch * r.hidden;
    }
    size_t reserve_bytes() const
    {
        return sizeof(ct_emulated_head) +
               (size_t)(2 * sums_count() + cell_count()) * sizeof(double);
    }
    void place(void *reserve)
    {
        first = (ct_emulated_head *)reserve;
        act = (double *)(first + 1);
        cell = act + sums_count();
        d_sums = cell + cell_count();
    }
    /* As products read it. */
    double operand(const void *from, int64_t i) const
    {
        double v = of.get(from, i);
        float f = (float)v;
        uint32_t bits;

        if (!r.tf32) return v;
        memcpy(&bits, &f, sizeof(bits));
        bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
        memcpy(&f, &bits, sizeof(f));
        return (double)f;
    }
    uint64_t checked() const
    {
        const unsigned char *c = (const unsigned char *)act;
        size_t n = (size_t)(sums_count() + cell_count()) * sizeof(double);
        uint64_t sum = 14695981039346656037u;

        for (size_t i = 0; i < n; i++) sum = (sum ^ c[i]) * 1099511628211u;
        return sum;
    }
};

static inline ct_emulated_pass ct_emulated_pass_of(const ct_emulated_rnn *r,
                                                   const ct_emulated_sequences *x)
{
    ct_emulated_pass p = {};

    p.r = *r;
    p.steps = x->longest;
    p.batch = x->batch;
    p.of.type = r->type;
    return p;
}

static inline bool ct_emulated_is_data(const ct_emulated_sequences *d, const ct_emulated_pass &p,
                                       int64_t size)
{
    return (d->type == p.r.type) && (d->longest == p.steps) && (d->batch == p.batch) &&
           (d->size == size);
}

static inline bool ct_emulated_is_state(cudnnTensorDescriptor_t s, const ct_emulated_pass &p)
{
    return (s != NULL) && (s->type == p.r.type) && (s->n == 1) && (s->c == p.batch) &&
           (s->h == p.r.hidden) && (s->w == 1);
}

static inline bool ct_emulated_has_rooms(const ct_emulated_pass &p, size_t weight_bytes,
                                         const void *weights, size_t work_bytes, const void *work,
                                         bool training, size_t reserve_bytes, const void *reserve)
{
    if ((weights == NULL) || (weight_bytes < (size_t)p.r.numbers() * p.r.size()) ||
        (work == NULL) || (work_bytes < 320) || ((uintptr_t)work % 16 != 0) ||
        ((uintptr_t)weights % 16 != 0))
        return false;
    return !training || ((reserve != NULL) && ((uintptr_t)reserve % 16 == 0) &&
                         (reserve_bytes >= p.reserve_bytes()));
}

#endif
