/* The tables of names. Sources: the state dictionaries of transformers' models gpt2, llama and
 * bert; gguf-py/gguf/constants.py and convert_hf_to_gguf.py of llama.cpp. */
#include <string.h>

#include "framework/snapshot/lm_names.h"

enum { W = CT_ROW_WEIGHT, B = CT_ROW_BIAS, WB = W | B };

static const ct_lm_row gpt2_rows[] = {
    { .theirs = "wte", .ours = "wte", .has = W },
    { .theirs = "wpe", .ours = "wpe", .has = W },
    { .theirs = "h.%d.ln_1", .ours = "h%d_ln1", .has = WB },
    { .theirs = "h.%d.attn.c_attn",
      .ours = "h%d_attn_qkv",
      .has = WB,
      .order = CT_PART_TRANSPOSED },
    { .theirs = "h.%d.attn.c_proj",
      .ours = "h%d_attn_proj",
      .has = WB,
      .order = CT_PART_TRANSPOSED },
    { .theirs = "h.%d.ln_2", .ours = "h%d_ln2", .has = WB },
    { .theirs = "h.%d.mlp.c_fc", .ours = "h%d_fc", .has = WB, .order = CT_PART_TRANSPOSED },
    { .theirs = "h.%d.mlp.c_proj", .ours = "h%d_proj", .has = WB, .order = CT_PART_TRANSPOSED },
    { .theirs = "h.%d.attn.bias", .ours = NULL }, /* masks, which old files have */
    { .theirs = "h.%d.attn.masked_bias", .ours = NULL },
    { .theirs = "ln_f", .ours = "ln_f", .has = WB },
    { .theirs = "lm_head", .ours = "head", .may = W, .bare = true },
};

static const ct_lm_row llama_rows[] = {
    { .theirs = "embed_tokens", .ours = "wte", .has = W },
    { .theirs = "layers.%d.input_layernorm", .ours = "h%d_norm1", .has = W },
    { "layers.%d.self_attn.q_proj", "h%d_qkv", .has = W, .may = B, .part = 0, .n_part = 3 },
    { "layers.%d.self_attn.k_proj", "h%d_qkv", .has = W, .may = B, .part = 1, .n_part = 3 },
    { "layers.%d.self_attn.v_proj", "h%d_qkv", .has = W, .may = B, .part = 2, .n_part = 3 },
    { .theirs = "layers.%d.self_attn.o_proj", .ours = "h%d_attn_proj", .has = W, .may = B },
    { .theirs = "layers.%d.post_attention_layernorm", .ours = "h%d_norm2", .has = W },
    { "layers.%d.mlp.gate_proj", "h%d_gate_up", .has = W, .may = B, .part = 0, .n_part = 2 },
    { "layers.%d.mlp.up_proj", "h%d_gate_up", .has = W, .may = B, .part = 1, .n_part = 2 },
    { .theirs = "layers.%d.mlp.down_proj", .ours = "h%d_down", .has = W, .may = B },
    { .theirs = "layers.%d.self_attn.rotary_emb.inv_freq", .ours = NULL },
    { .theirs = "norm", .ours = "norm_f", .has = W },
    { .theirs = "lm_head", .ours = "head", .may = W, .bare = true },
};

static const ct_lm_row bert_rows[] = {
    { .theirs = "embeddings.word_embeddings", .ours = "wte", .has = W },
    { .theirs = "embeddings.position_embeddings", .ours = "wpe", .has = W },
    { .theirs = "embeddings.token_type_embeddings", .ours = "wtt", .may = W },
    { .theirs = "embeddings.LayerNorm", .ours = "ln_emb", .has = WB },
    { "encoder.layer.%d.attention.self.query", "h%d_qkv", .has = WB, .part = 0, .n_part = 3 },
    { "encoder.layer.%d.attention.self.key", "h%d_qkv", .has = WB, .part = 1, .n_part = 3 },
    { "encoder.layer.%d.attention.self.value", "h%d_qkv", .has = WB, .part = 2, .n_part = 3 },
    { .theirs = "encoder.layer.%d.attention.output.dense", .ours = "h%d_attn_proj", .has = WB },
    { .theirs = "encoder.layer.%d.attention.output.LayerNorm", .ours = "h%d_ln1", .has = WB },
    { .theirs = "encoder.layer.%d.intermediate.dense", .ours = "h%d_fc", .has = WB },
    { .theirs = "encoder.layer.%d.output.dense", .ours = "h%d_proj", .has = WB },
    { .theirs = "encoder.layer.%d.output.LayerNorm", .ours = "h%d_ln2", .has = WB },
    { .theirs = "pooler.dense", .ours = "pooler", .may = WB },
    { "cls.predictions.transform.dense", "mlm_dense", .may = WB, .bare = true },
    { "cls.predictions.transform.LayerNorm", "mlm_ln", .may = WB, .bare = true },
    { "cls.predictions", "head", .may = B, .bare = true },
    { "cls.predictions.decoder", "head", .may = W, .bare = true },
    { .theirs = "cls.predictions.decoder.bias", .ours = NULL, .bare = true }, /* the same again */
    { .theirs = "embeddings.position_ids", .ours = NULL },
};

static const ct_lm_row ggml_gpt2_rows[] = {
    { .theirs = "token_embd", .ours = "wte", .has = W },
    { .theirs = "position_embd", .ours = "wpe", .has = W },
    { .theirs = "blk.%d.attn_norm", .ours = "h%d_ln1", .has = WB },
    { .theirs = "blk.%d.attn_qkv", .ours = "h%d_attn_qkv", .has = WB },
    { .theirs = "blk.%d.attn_output", .ours = "h%d_attn_proj", .has = WB },
    { .theirs = "blk.%d.ffn_norm", .ours = "h%d_ln2", .has = WB },
    { .theirs = "blk.%d.ffn_up", .ours = "h%d_fc", .has = WB },
    { .theirs = "blk.%d.ffn_down", .ours = "h%d_proj", .has = WB },
    { .theirs = "output_norm", .ours = "ln_f", .has = WB },
    { .theirs = "output", .ours = "head", .may = W },
};

static const ct_lm_row ggml_llama_rows[] = {
    { .theirs = "token_embd", .ours = "wte", .has = W },
    { .theirs = "blk.%d.attn_norm", .ours = "h%d_norm1", .has = W },
    { "blk.%d.attn_q", "h%d_qkv", .has = W, .may = B, .part = 0, .n_part = 3,
      .order = CT_PART_INTERLEAVED },
    { "blk.%d.attn_k", "h%d_qkv", .has = W, .may = B, .part = 1, .n_part = 3,
      .order = CT_PART_INTERLEAVED },
    { "blk.%d.attn_v", "h%d_qkv", .has = W, .may = B, .part = 2, .n_part = 3 },
    { .theirs = "blk.%d.attn_output", .ours = "h%d_attn_proj", .has = W, .may = B },
    { .theirs = "blk.%d.ffn_norm", .ours = "h%d_norm2", .has = W },
    { "blk.%d.ffn_gate", "h%d_gate_up", .has = W, .may = B, .part = 0, .n_part = 2 },
    { "blk.%d.ffn_up", "h%d_gate_up", .has = W, .may = B, .part = 1, .n_part = 2 },
    { .theirs = "blk.%d.ffn_down", .ours = "h%d_down", .has = W, .may = B },
    { .theirs = "output_norm", .ours = "norm_f", .has = W },
    { .theirs = "output", .ours = "head", .may = W },
};

static const ct_lm_row ggml_bert_rows[] = {
    { .theirs = "token_embd", .ours = "wte", .has = W },
    { .theirs = "position_embd", .ours = "wpe", .has = W },
    { .theirs = "token_types", .ours = "wtt", .may = W },
    { .theirs = "token_embd_norm", .ours = "ln_emb", .has = WB },
    { "blk.%d.attn_q", "h%d_qkv", .has = WB, .part = 0, .n_part = 3 },
    { "blk.%d.attn_k", "h%d_qkv", .has = WB, .part = 1, .n_part = 3 },
    { "blk.%d.attn_v", "h%d_qkv", .has = WB, .part = 2, .n_part = 3 },
    { .theirs = "blk.%d.attn_output", .ours = "h%d_attn_proj", .has = WB },
    { .theirs = "blk.%d.attn_output_norm", .ours = "h%d_ln1", .has = WB },
    { .theirs = "blk.%d.ffn_up", .ours = "h%d_fc", .has = WB },
    { .theirs = "blk.%d.ffn_down", .ours = "h%d_proj", .has = WB },
    { .theirs = "blk.%d.layer_output_norm", .ours = "h%d_ln2", .has = WB },
};

#define ROWS(_rows) .n_row = (int)(sizeof(_rows) / sizeof((_rows)[0])), .row = (_rows)

static const ct_lm_naming hf_namings[] = {
    { CT_LM_GPT2, "Hugging Face's GPT-2", "transformer.", ROWS(gpt2_rows) },
    { CT_LM_LLAMA, "Hugging Face's Llama", "model.", ROWS(llama_rows) },
    { CT_LM_BERT, "Hugging Face's BERT", "bert.", ROWS(bert_rows) },
};
static const ct_lm_naming ggml_namings[] = {
    { CT_LM_GPT2, "ggml's GPT-2", "", ROWS(ggml_gpt2_rows) },
    { CT_LM_LLAMA, "ggml's Llama", "", ROWS(ggml_llama_rows) },
    { CT_LM_BERT, "ggml's BERT", "", ROWS(ggml_bert_rows) },
};
enum { N_FAMILY = (int)(sizeof(hf_namings) / sizeof(hf_namings[0])) };

static const ct_lm_naming *of_family(const ct_lm_naming *all, ct_lm_family family)
{
    for (int i = 0; i < N_FAMILY; i++)
        if (all[i].family == family) return &all[i];
    return NULL;
}

const ct_lm_naming *ct_lm_naming_hf(ct_lm_family family)
{
    return of_family(hf_namings, family);
}

const ct_lm_naming *ct_lm_naming_ggml(ct_lm_family family)
{
    return of_family(ggml_namings, family);
}

ct_status ct_lm_name(const char *pattern, int block, ct_text *name)
{
    const char *number = strstr(pattern, "%d");

    name->length = 0;
    if (number == NULL)
        ct_text_add(name, "%s", pattern);
    else
        ct_text_add(name, "%.*s%d%s", (int)(number - pattern), pattern, block, number + 2);
    return name->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a name of weights") : CT_OK;
}
