/** @file coded_sparse.h  What a configuration means to topk and redsync. Private to comm/. */
#ifndef CT_CODED_SPARSE_H
#define CT_CODED_SPARSE_H

#include "comm/coded.h"
#include "comm/select.h"
#include "comm/sparse_exchange.h"

/** NULL is "auto". */
bool ct_sparse_is_auto(const char *name);
/** Elements that are selected of n: round(density n), 1 to n. */
int64_t ct_sparse_wanted(const ct_codec_config *c, int64_t n);
/** plain: topk. AUTO: topk's values travel as they are, redsync's in whatever is less. */
ct_wire_form ct_sparse_form(const ct_codec_config *c, int64_t n, bool quantize, bool plain);
/** CT_ERR_CONFIG. */
ct_status ct_sparse_selection(const char *name, ct_select_kind *kind_p);
/** Fits ct_coded_ops.check. */
ct_status ct_sparse_check(const ct_codec_config *c);
int64_t ct_sparse_payload_bytes(const ct_codec_config *c, int64_t n, bool plain);
/** As ct_coded_ops.seconds. */
void ct_sparse_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, bool plain,
                       ct_coded_seconds *out);

/** … of gradients on a device. */
void ct_sparse_device_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n,
                              bool plain, ct_coded_seconds *out);

/** Fit ct_coded_ops.payload_bytes and seconds. */
int64_t ct_topk_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
int64_t ct_redsync_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_topk_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_coded_seconds *out);
void ct_redsync_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                        ct_coded_seconds *out);

#endif
