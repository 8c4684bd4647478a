/** @file codec_kernels.h  What codecs do to gradients, where those lie: one table a kind of device.
 *
 * A codec (codec.h) is one state machine over this table. On a device work is queued on a stream of
 * its own, beside the one that computes, and returns at once. On the CPU the stream is synchronous:
 * work is done when the call returns, by as many threads as the stream names. Nothing is allocated
 * in a step. A coder belongs to one parameter. It turns the gradient into a payload (payload.h),
 * the same bytes on every kind of device. It adds payloads to a sum, one after the other, so that
 * all ranks get the same bits. U, V and the gradient stay where they are; the host gets the payload
 * and a ct_coder_note. Of a step only the order matters: copies go through codec_side.h.
 */
#ifndef CT_CODEC_KERNELS_H
#define CT_CODEC_KERNELS_H

#include "comm/codec/low_rank.h"
#include "comm/codec/select.h"
#include "comm/sparse/payload.h"
#include "framework/tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_codec_coder ct_codec_coder;

typedef struct ct_coder_setup {
    ct_select_kind kind;
    int64_t n, k; /* 1 <= k <= n < 2^32 */
    ct_payload_form form;
    int n_payload;  /* most that are added in a step; of other ranks, where `add` takes them */
    int64_t k_most; /* most that `want` asks for; 0: k */
    bool entries;   /* CPU: what is selected is wanted as a list, not as a payload */
} ct_coder_setup;

/** What the host is told with a payload. */
typedef struct ct_coder_note {
    int64_t count;      /* elements selected                                                  */
    int64_t filled;     /* elements of the last sum that are not 0                            */
    int64_t candidates; /* elements compacted on the way                                      */
    uint32_t bad;       /* V is no longer finite                                              */
    uint32_t wrong;     /* a payload of the last sum named elements out of order or beyond n  */
    uint32_t passes;    /* over V                                                             */
    uint32_t unused;
    double update_s, select_s; /* CPU: what the update and the selection took; else 0         */
    uint32_t more[2];
} ct_coder_note;

typedef struct ct_codec_kernels {
    ct_device_kind kind;
    /** The stream of codecs; the same at every call with the same n_thread: the threads that the
     * CPU may use at the moment, borrowed for as long as the stream is used. */
    ct_status (*stream)(const int *n_thread, ct_stream *st_p);
    /** `behind` goes on after all that `first` was given so far. */
    ct_status (*follow)(ct_stream first, ct_stream behind);

    ct_status (*create)(const ct_coder_setup *setup, ct_codec_coder **c_p);
    void (*destroy)(ct_codec_coder *c); /* NULL allowed */
    /** Until the next call gradients count as often as brings the norm of this one down to limit;
     *  0: once. */
    ct_status (*clip)(ct_codec_coder *c, ct_stream st, const float *grad, int64_t n, double limit);
    /** The gradient itself is brought down to that norm; 0: nothing is done. */
    ct_status (*shrink)(ct_codec_coder *c, ct_stream st, float *grad, int64_t n, double limit);
    /** The update alone (ct_momentum_correction_run()). Arrays on the device, here and below; fast
     * where 16-byte aligned. */
    ct_status (*update)(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a);
    /** The update and the selection (ct_selector_run()), and the payload of what is selected; what
     *  its form loses is in V. Where `entries` was asked for and is there, no payload. */
    ct_status (*select)(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int sign);
    /** A dense step (ct_side_dense()) of a V that is known to be zeros, … */
    ct_status (*all)(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, float *out);
    /** … or not known. restart: where it is not, U begins at 0. *empty_p: V is known to be zeros
     *  now. */
    ct_status (*apart)(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a,
                       bool restart, int n_rank, float least, float *out, bool *empty_p);
    /** The sum of v[n]'s squares; waits for it. */
    ct_status (*square)(ct_codec_coder *c, ct_stream st, const float *v, int64_t n, double *sum_p);
    /** The next payloads go there, into ct_coder_room() bytes. NULL: the coder's own place is all
     *  there is. */
    void (*pack_into)(ct_codec_coder *c, void *payload);
    /** Where the payload and the note lie; both are there in the stream's order. */
    void *(*payload)(ct_codec_coder *c);
    void *(*note)(ct_codec_coder *c);
    /** What was selected, as it is: of coders that were asked for it. NULL: payloads are all there
     *  is. */
    ct_sparse *(*entries)(ct_codec_coder *c);
    /** Room for payload i of other ranks: ct_coder_room() bytes. */
    void *(*incoming)(ct_codec_coder *c, int i);
    /** sum[n] = the payloads of so many bytes, in this order. What they say is checked: note.wrong,
     *  or CT_ERR_COMM. */
    ct_status (*add)(ct_codec_coder *c, ct_stream st, const void *const *payload,
                     const size_t *bytes, int n_payload, float *sum);
    /** v[index[j]] += value[j] for each of `count`, no element twice; all on the device. */
    ct_status (*put_back)(ct_codec_coder *c, ct_stream st, const uint32_t *index,
                          const float *value, int64_t count, float *v);
    /** From the next selection on k elements, at most k_most. Without waiting. */
    void (*want)(ct_codec_coder *c, int64_t k);
    /** Forgets thresholds of earlier steps. */
    ct_status (*forget)(ct_codec_coder *c, ct_stream st);

    /* Signs (sign.h). What came in is checked as `add` does. */
    /** The update, and the payloads of all parts but `skip` (-1: none), between heads that are
     *  there; ct_sign_encode(). The note is there, too. */
    ct_status (*sign)(ct_codec_coder *c, ct_stream st, const ct_momentum_correction *a, int parts,
                      int skip, void *payload);
    /** The payload of v[n], which it leaves v. */
    ct_status (*sign_take)(ct_codec_coder *c, ct_stream st, float *v, int64_t n, void *payload);
    /** v[n] = (onto: v +) the payloads, each `stride` bytes behind the last, in this order. */
    ct_status (*sign_add)(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                          int n_payload, bool onto, float *v, int64_t n);
    /** v[n] = what the payloads of its parts say. */
    ct_status (*sign_put)(ct_codec_coder *c, ct_stream st, const void *payload, size_t stride,
                          int parts, float *v, int64_t n);

    /* Thin factors (low_rank.h). */
    /** The update, and P = V Q. */
    ct_status (*left)(ct_codec_coder *c, ct_stream st, const ct_low_rank *s,
                      const ct_momentum_correction *a, const float *q, float *p);
    /** Q = transposed V P; scratch as there. */
    ct_status (*right)(ct_stream st, const ct_low_rank *s, const float *v, const float *p,
                       float *scratch, float *q);
    /** V = P transposed Q; takes: V -= that. */
    ct_status (*product)(ct_stream st, const ct_low_rank *s, const float *p, const float *q,
                         bool takes, float *v);

    /* Casts (cast.h), without a coder. */
    /** *out, on the device, is ct_cast_exponent(). */
    ct_status (*exponent)(ct_stream st, const float *v, int64_t n, uint32_t *out);
    /** out[n] = v[n] as bf16, or as fp16 of scale times it; and back, times scale. */
    ct_status (*encode)(ct_stream st, bool fp16, const float *v, int64_t n, float scale,
                        uint16_t *out);
    ct_status (*decode)(ct_stream st, bool fp16, const uint16_t *in, int64_t n, float scale,
                        float *v);
} ct_codec_kernels;

/** NULL: there is none for this kind of device, or in this build. */
const ct_codec_kernels *ct_codec_kernels_find(ct_device_kind kind);
/** What it does: EXACT (TRIMMED, too, which is a way to find the same), SEARCH or SAMPLED. */
ct_select_kind ct_coder_kind(const ct_coder_setup *setup);
/** Most elements that a coder selects, and most bytes of its payload. */
int64_t ct_coder_limit(const ct_coder_setup *setup);
size_t ct_coder_room(const ct_coder_setup *setup);

extern const ct_codec_kernels ct_codec_kernels_cpu;
/* only in builds with CUDA */
extern const ct_codec_kernels ct_codec_kernels_cuda;

#ifdef __cplusplus
}
#endif

#endif
