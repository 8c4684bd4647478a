/** @file lm_names.h  Weights of language models under the names that others give them, and ours.
 *
 * One table a naming: which of their tensors, for which block, is which array of which layer of the
 * shipped models, or part of it. Hugging Face's GPT-2, Llama and BERT are read and written, ggml's
 * (GGUF) read. Several tensors may make one array (q, k and v; gate and up), one behind the other.
 * Private to framework/snapshot.
 */
#ifndef CT_SNAPSHOT_LM_NAMES_H
#define CT_SNAPSHOT_LM_NAMES_H

#include "framework/base/text.h"
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

/* arrays of a layer: bits of what a row has */
enum { CT_ROW_WEIGHT = 1, CT_ROW_BIAS = 2 };

/** A tensor of theirs and what it is of ours. Names have %d where the number of the block goes. */
typedef struct ct_lm_row {
    const char *theirs; /* without .weight and .bias                                        */
    const char *ours;   /* a layer; NULL: theirs is the whole name of what is no weight     */
    int has, may;       /* arrays that every such model has, and those that some have       */
    int part, n_part;   /* n_part 0: the whole array; rows of one array stand in a row      */
    ct_part_order order;
    bool bare; /* without the prefix                                               */
} ct_lm_row;

typedef struct ct_lm_naming {
    ct_lm_family family;
    const char *title;  /* for messages                      */
    const char *prefix; /* that names may have, or ""        */
    int n_row;
    const ct_lm_row *row;
} ct_lm_naming;

/** Hugging Face's names of a family, and ggml's; NULL: there are none. */
const ct_lm_naming *ct_lm_naming_hf(ct_lm_family family);
const ct_lm_naming *ct_lm_naming_ggml(ct_lm_family family);
/** Hugging Face's naming that has most names of a sorted set, of its first block; NULL: none has
 *  any. CT_ERR_NOMEM. */
ct_status ct_lm_naming_of(const ct_tensor_set *s, const ct_lm_naming **naming_p);
/** A name of the table as it is for a block. CT_ERR_NOMEM. */
ct_status ct_lm_name(const char *pattern, int block, ct_text *name);

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
/** Adds all arrays that the set has under a naming, and says which of its tensors are none. A head
 *  that a file does not have is the table of tokens again, shared. n_head: heads of q and of k, for
 *  interleaved ones. CT_ERR_DATA where a part misses or does not fit, or none is there. */
ct_status ct_weight_map_add_named(ct_weight_map *map, const ct_tensor_set *s,
                                  const ct_lm_naming *naming, const int64_t n_head[2], ct_model *m);
/** The values of an array. CT_ERR_NOMEM. */
ct_status ct_weight_map_read(const ct_weight_map *map, const ct_tensor_set *s, int64_t place,
                             float *out);
void ct_weight_map_destroy(ct_weight_map *map);

/** The family that a model of our names is of, by its layers. */
ct_lm_family ct_lm_family_of(const ct_model *m);
/** Whether it has a head: that of a BERT decides what Hugging Face calls it. */
bool ct_lm_has_head(const ct_model *m);
/** Writes path itself, synced, with Hugging Face's names of the family m->written_as. CT_ERR_DATA
 *  where arrays are missing, or have no name there. */
ct_status ct_lm_write(const ct_model *m, const char *path, uint64_t *hash_p, int64_t *size_p);

#endif
