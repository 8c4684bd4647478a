/** @file segment.cuh  Candidates of a chunk, one after the other in a segment. Private to
 * comm/cuda. */
#ifndef CT_SEGMENT_CUH
#define CT_SEGMENT_CUH

#include "comm/codec/cuda/coder_cuda.cuh"

/* Where candidates go. */
struct segments {
    const float *v;
    unsigned room;
    unsigned *start, *count; /* of chunks */
    unsigned *index;
    float *value;
};

static inline segments segments_of(const ct_codec_coder *c, const float *v)
{
    segments l = { v, c->room, c->start, c->count, c->found_index, c->found_value };

    return l;
}

/* Bit c: element c is over the bound. */
static __device__ inline unsigned four_over(const four_floats &x, ct_select_key key, int32_t bound)
{
    unsigned yes = 0;

    for (int c = 0; c < FOUR; c++) yes |= (unsigned)(ct_select_key_of(x.x[c], key) > bound) << c;
    return yes;
}

/* Writes a chunk's candidates: bit 4 r + c of mask is element 128 r + 4 lane + c of the chunk. */
static __device__ inline void write_segment(const float *v, int64_t first, uint64_t mask,
                                            unsigned at, unsigned *index, float *value)
{
    uint64_t any = ct_warp_or(mask);

    while (any != 0) {
        int r = ct_first_bit(any) / FOUR;
        unsigned mine = (unsigned)(mask >> (FOUR * r)) & 15u, place = at, all = 0;
        int64_t i = first + r * FOUR * CT_WARP + FOUR * (int64_t)ct_lane();

        for (int c = 0; c < FOUR; c++) {
            unsigned lanes = ct_warp_ballot((mine >> c) & 1u);

            place += (unsigned)ct_popc(lanes & ct_lanes_before());
            all += (unsigned)ct_popc(lanes);
        }
        for (int c = 0; c < FOUR; c++) {
            if (((mine >> c) & 1u) == 0) continue;
            index[place] = (unsigned)(i + c);
            value[place++] = v[i + c];
        }
        at += all;
        any &= ~((uint64_t)15 << (FOUR * r));
    }
}

/* The mask's elements get a segment, where there is room. A warp does it together. */
static __device__ inline void keep_segment(coder_run *run, const segments &l, int64_t c,
                                           uint64_t mask)
{
    unsigned total = (unsigned)(ct_popc((unsigned)mask) + ct_popc((unsigned)(mask >> 32))), at = 0;

    total = ct_warp_add(total);
    if (ct_lane() == 0) {
        at = atomicAdd(&run->cursor, total);
        l.start[c] = at;
        l.count[c] = total;
        if ((uint64_t)at + total > l.room) run->overflow = 1;
    }
    at = ct_warp_from(at, 0);
    if ((total > 0) && ((uint64_t)at + total <= l.room))
        write_segment(l.v, c * CHUNK, mask, at, l.index, l.value);
}

#endif
