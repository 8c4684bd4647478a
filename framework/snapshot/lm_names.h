/** @file lm_names.h  Weights of language models under the names that others give them, and ours.
 *
 * One table a naming: which of their tensors, for which block, is which array of which layer of the
 * shipped models, or part of it. Hugging Face's GPT-2, Llama and BERT are read and written, ggml's
 * (GGUF) read. Several tensors may make one array (q, k and v; gate and up), one behind the other.
 * Private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_LM_NAMES_H
#define CT_SNAPSHOT_LM_NAMES_H

#include "framework/snapshot/model.h"
#include "framework/snapshot/named_tensor.h"

typedef enum { CT_LM_NONE, CT_LM_GPT2, CT_LM_LLAMA, CT_LM_BERT } ct_lm_family;

/** How a tensor becomes rows of an array. */
typedef enum {
    CT_PART_AS_IT_IS,
    CT_PART_TRANSPOSED, /* Conv1D of GPT-2: inputs x outputs                                     */
    CT_PART_INTERLEAVED /* llama.cpp's q and k: the halves that RoPE rotates stand by turns      */
} ct_part_order;

enum { CT_MAX_PART = 3 };

/** An array of ours in a file: its parts, from the first row on. */
typedef struct ct_weight_origin {
    int n_part;
    struct {
        int tensor;
        ct_part_order order;
        int64_t heads; /* of an interleaved one */
    } part[CT_MAX_PART];
} ct_weight_origin;

/** Tensors of a set as weights: ct_model_array.place is the number of the origin. */
typedef struct ct_weight_map {
    int n, capacity;
    ct_weight_origin *origin;
} ct_weight_map;

/** Adds an array that is one tensor as it is. CT_ERR_NOMEM, CT_ERR_DATA. */
ct_status ct_weight_map_add_own(ct_weight_map *map, const ct_tensor_set *s, int tensor, ct_model *m,
                                size_t layer_length, int index);
/** The values of an array. CT_ERR_NOMEM. */
ct_status ct_weight_map_read(const ct_weight_map *map, const ct_tensor_set *s, int64_t place,
                             float *out);
void ct_weight_map_destroy(ct_weight_map *map);

#endif
