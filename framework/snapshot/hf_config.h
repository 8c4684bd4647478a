/** @file hf_config.h  Hugging Face's config.json: what a language model is besides its weights.
 *
 * Facts come from a config.json beside a file of weights, from GGUF's keys, from a net's layers,
 * and of what they give none from shapes. All are kept under config.json's names.
 */
#ifndef CT_SNAPSHOT_HF_CONFIG_H
#define CT_SNAPSHOT_HF_CONFIG_H

#include <jansson.h>

#include "framework/base/gguf.h"
#include "framework/net/net.h"
#include "framework/snapshot/lm_names.h"

/** The file beside `weights`; NULL: none. One that is no JSON object is said and left alone.
 *  CT_ERR_NOMEM. */
ct_status ct_hf_config_read(const char *weights, json_t **config_p);
/** GGUF's keys that have a place there. CT_ERR_DATA. */
ct_status ct_hf_config_of_gguf(const ct_gguf *g, ct_lm_family family, json_t **config_p);
/** Heads of q and of k and v that a config has; 0: it does not say. */
void ct_hf_config_heads(const json_t *config, int64_t heads[2]);

/** Writes DIR/config.json for weights that ct_model_write_as_hf() was called for: what the model's
 *  source says, what the net (NULL: none) says, and shapes. Without a number of heads no file is
 *  written, and that is said. CT_ERR_DATA, CT_ERR_IO. */
ct_status ct_hf_config_write(const ct_model *m, const ct_net *net, const char *weights);
/** The path of config.json beside a file of weights, for free(). CT_ERR_NOMEM. */
ct_status ct_hf_config_path(const char *weights, char **path_p);

#endif
