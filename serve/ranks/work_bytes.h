/** @file work_bytes.h  Works of one kind as bytes, and what came out of them as bytes: what goes to
 * a replica on another rank, and back. Both ends are of one program and have the same model, so
 * numbers go as they lie in memory.
 */
#ifndef CT_WORK_BYTES_H
#define CT_WORK_BYTES_H

#include "framework/base/text.h"
#include "serve/api/model.h"

/** Appends what n works of that kind ask. What ran out of memory is told by to->failed. */
void ct_work_bytes_ask(const ct_served_model *m, ct_work_kind kind, ct_work *const *work, int n,
                       ct_text *to);
/** Appends what came out of them. */
void ct_work_bytes_answer(const ct_served_model *m, ct_work_kind kind, ct_work *const *work, int n,
                          ct_text *to);
/** Puts that into the works that asked. CT_ERR_COMM, logged: the bytes are not of these works. */
ct_status ct_work_bytes_take_answer(const ct_served_model *m, ct_work_kind kind,
                                    ct_work *const *work, int n, const char *data, size_t size);

/** Works that were read from bytes, and own what they ask and answer. */
typedef struct ct_works {
    ct_work_kind kind;
    int n;
    ct_work *work, **each; /* each[i] == &work[i] */
    ct_served_values *values;
    float *row;
    int n_value;
} ct_works;

/** CT_ERR_COMM, logged: the bytes are not what such a model is asked. Freed in any case. */
ct_status ct_works_read(const ct_served_model *m, const char *data, size_t size, ct_works *w);
void ct_works_free(ct_works *w);

#endif
