#include "framework/snapshot/hf_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/proto/message.h"

static ct_status no_memory(const char *file)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for config.json of %s", file);
}

ct_status ct_hf_config_path(const char *weights, char **path_p)
{
    ct_text path = { 0 };

    ct_text_add_bytes(&path, weights, (size_t)(ct_path_base(weights) - weights));
    ct_text_add(&path, "config.json");
    if (path.failed) {
        ct_text_destroy(&path);
        return no_memory(weights);
    }
    *path_p = path.text;
    return CT_OK;
}

ct_status ct_hf_config_read(const char *weights, json_t **config_p)
{
    json_error_t error;
    json_t *config;
    char *path = NULL;

    *config_p = NULL;
    CT_TRY(ct_hf_config_path(weights, &path));
    if (access(path, R_OK) == 0) {
        config = json_load_file(path, 0, &error);
        if (json_is_object(config)) {
            *config_p = config;
        } else {
            CT_WARN("%s:%d: no JSON object, left alone: %s", path, error.line, error.text);
            json_decref(config);
        }
    }
    free(path);
    return CT_OK;
}

/* The shortest decimal that is the same float: 1e-05 in place of 9.99999975e-06. */
static double shortest(double v)
{
    char text[32];

    for (int digits = 6; digits < 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v) return strtod(text, NULL);
    }
    return v;
}

/* ---- GGUF */

/* Keys behind "ARCHITECTURE.", or whole where they begin with "tokenizer."; empty name: none. */
static const struct {
    const char *key;
    const char *gpt2, *llama, *bert;
} gguf_keys[] = {
    { "attention.head_count", "n_head", "num_attention_heads", "num_attention_heads" },
    { "attention.head_count_kv", "", "num_key_value_heads", "" },
    { "context_length", "n_positions", "max_position_embeddings", "max_position_embeddings" },
    { "attention.layer_norm_epsilon", "layer_norm_epsilon", "", "layer_norm_eps" },
    { "attention.layer_norm_rms_epsilon", "", "rms_norm_eps", "" },
    { "rope.freq_base", "", "rope_theta", "" },
    { "tokenizer.ggml.bos_token_id", "bos_token_id", "bos_token_id", "" },
    { "tokenizer.ggml.eos_token_id", "eos_token_id", "eos_token_id", "" },
    { "tokenizer.ggml.padding_token_id", "", "pad_token_id", "pad_token_id" },
};
enum { N_KEY = (int)(sizeof(gguf_keys) / sizeof(gguf_keys[0])) };

static const char *key_in_config(int k, ct_lm_family family)
{
    if (family == CT_LM_GPT2) return gguf_keys[k].gpt2;
    return (family == CT_LM_LLAMA) ? gguf_keys[k].llama : gguf_keys[k].bert;
}

static ct_status add_key(const ct_gguf *g, const char *architecture, int k, ct_lm_family family,
                         json_t *config)
{
    const char *name = key_in_config(k, family), *key = gguf_keys[k].key;
    bool whole = strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0;
    const ct_gguf_value *v;
    ct_text full = { 0 };
    int64_t number;
    double real;

    if (name[0] == '\0') return CT_OK;
    ct_text_add(&full, "%s%s%s", whole ? "" : architecture, whole ? "" : ".", key);
    if (full.failed) return no_memory(g->path);
    v = ct_gguf_find(g, full.text);
    ct_text_destroy(&full);
    if (v == NULL) return CT_OK;
    if (v->count != 1)
        return CT_FAIL(CT_ERR_DATA, "%s: %s has %" PRIu64 " values, expected one for all blocks",
                       g->path, v->key, v->count);
    if (ct_gguf_int(v, 0, &number))
        json_object_set_new(config, name, json_integer(number));
    else if (ct_gguf_float(v, 0, &real))
        json_object_set_new(config, name, json_real(shortest(real)));
    else
        return CT_FAIL(CT_ERR_DATA, "%s: %s is no number", g->path, v->key);
    return CT_OK;
}

ct_status ct_hf_config_of_gguf(const ct_gguf *g, ct_lm_family family, json_t **config_p)
{
    json_t *config = json_object();
    char *architecture = NULL;
    ct_status status;

    if (config == NULL) return no_memory(g->path);
    status = ct_gguf_text(g, "general.architecture", &architecture);
    for (int k = 0; (k < N_KEY) && (status == CT_OK); k++)
        status = add_key(g, architecture, k, family, config);
    free(architecture);
    if (status != CT_OK) {
        json_decref(config);
        return status;
    }
    *config_p = config;
    return CT_OK;
}

static int64_t integer_of(const json_t *config, const char *key)
{
    return json_integer_value(json_object_get(config, key));
}

void ct_hf_config_heads(const json_t *config, int64_t heads[2])
{
    heads[0] = integer_of(config, "n_head");
    if (heads[0] == 0) heads[0] = integer_of(config, "num_attention_heads");
    heads[1] = integer_of(config, "num_key_value_heads");
    if (heads[1] == 0) heads[1] = heads[0];
}

/* ---- what a net's layers say */

/* A number below a message by the names of its fields, separated by dots. Through the descriptor:
 * a field that the schema lacks is one that is not there. */
static bool number_at(const ProtobufCMessage *m, const char *path, double *number_p)
{
    size_t n = strcspn(path, ".");
    const ProtobufCFieldDescriptor *f = (m != NULL) ? ct_field_find(m->descriptor, path, n) : NULL;

    if (f == NULL) return false;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return (path[n] == '.') && (ct_field_count(m, f) > 0) &&
               number_at(ct_field_message(m, f, 0), path + n + 1, number_p);
    if (f->label == PROTOBUF_C_LABEL_REPEATED) return false;
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT:
        *number_p = (double)*(const float *)ct_field_at(m, f, 0);
        return true;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM:
        *number_p = (double)*(const int32_t *)ct_field_at(m, f, 0);
        return true;
    default:
        return false;
    }
}

/* What a layer says stands in config.json under a name. */
typedef struct net_fact {
    ct_lm_family family;
    const char *layer, *path, *name;
    bool real;
} net_fact;

static const net_fact net_facts[] = {
    { CT_LM_GPT2, "h0_attn", "attention_param.num_heads", "n_head", false },
    { CT_LM_GPT2, "h0_ln1", "layer_norm_param.eps", "layer_norm_epsilon", true },
    { CT_LM_LLAMA, "h0_attn", "attention_param.num_heads", "num_attention_heads", false },
    { CT_LM_LLAMA, "h0_attn", "attention_param.num_kv_heads", "num_key_value_heads", false },
    { CT_LM_LLAMA, "h0_attn", "attention_param.rope.base", "rope_theta", true },
    { CT_LM_LLAMA, "h0_norm1", "rms_norm_param.eps", "rms_norm_eps", true },
    { CT_LM_BERT, "h0_attn", "attention_param.num_heads", "num_attention_heads", false },
    { CT_LM_BERT, "ln_emb", "layer_norm_param.eps", "layer_norm_eps", true },
};
enum { N_FACT = (int)(sizeof(net_facts) / sizeof(net_facts[0])) };

static void add_net(const ct_net *net, ct_lm_family family, json_t *config)
{
    for (int k = 0; k < N_FACT; k++) {
        int l = ct_net_find_layer(net, net_facts[k].layer);
        double v;

        if ((net_facts[k].family != family) || (l < 0)) continue;
        if (!number_at(&net->layer[l]->param->base, net_facts[k].path, &v) || (v <= 0)) continue;
        json_object_set_new(config, net_facts[k].name,
                            net_facts[k].real ? json_real(shortest(v))
                                              : json_integer((json_int_t)v));
    }
    for (int l = 0; l < net->n_layer; l++) {
        const Ct__LayerParameter *p = net->layer[l]->param;
        bool tanh = (p->gelu_param != NULL) &&
                    (p->gelu_param->approximate == CT__GELUPARAMETER__APPROXIMATE__TANH);

        if (strcmp(net->layer[l]->ops->type, "GELU") != 0) continue;
        json_object_set_new(config, (family == CT_LM_GPT2) ? "activation_function" : "hidden_act",
                            json_string(tanh ? "gelu_new" : "gelu"));
    }
}

/* ---- what shapes say */

/* Length `axis` of array 0 of a layer; 0: it is not there. */
static int64_t length_of(const ct_model *m, const char *layer, int axis)
{
    int l = ct_model_find(m, layer);

    if ((l < 0) || !m->layer[l].array[0].present || (m->layer[l].array[0].shape.ndim <= axis))
        return 0;
    return m->layer[l].array[0].shape.dim[axis];
}

static int count_blocks(const ct_model *m, const char *layer)
{
    ct_text name = { 0 };
    int n = 0;

    while ((ct_lm_name(layer, n, &name) == CT_OK) && (ct_model_find(m, name.text) >= 0)) n++;
    ct_text_destroy(&name);
    return n;
}

static void set_integer(json_t *config, const char *name, int64_t v)
{
    if (v > 0) json_object_set_new(config, name, json_integer(v));
}

static bool has_own_head(const ct_model *m)
{
    int l = ct_model_find(m, "head");

    return (l >= 0) && m->layer[l].array[0].present && !m->layer[l].array[0].shared;
}

static void add_gpt2(const ct_model *m, json_t *config, json_t *others)
{
    set_integer(config, "vocab_size", length_of(m, "wte", 0));
    set_integer(config, "n_embd", length_of(m, "wte", 1));
    set_integer(config, "n_positions", length_of(m, "wpe", 0));
    set_integer(config, "n_ctx", length_of(m, "wpe", 0));
    set_integer(config, "n_inner", length_of(m, "h0_fc", 0));
    set_integer(config, "n_layer", count_blocks(m, "h%d_fc"));
    json_object_set_new(others, "model_type", json_string("gpt2"));
    json_object_set_new(others, "architectures", json_pack("[s]", "GPT2LMHeadModel"));
    json_object_set_new(others, "activation_function", json_string("gelu_new"));
    json_object_set_new(others, "layer_norm_epsilon", json_real(1e-5));
}

static void add_llama(const ct_model *m, int64_t heads, json_t *config, json_t *others)
{
    int64_t q = length_of(m, "h0_attn_proj", 1), dim = q / heads;

    set_integer(config, "vocab_size", length_of(m, "wte", 0));
    set_integer(config, "hidden_size", length_of(m, "wte", 1));
    set_integer(config, "intermediate_size", length_of(m, "h0_down", 1));
    set_integer(config, "num_hidden_layers", count_blocks(m, "h%d_down"));
    set_integer(config, "head_dim", dim);
    set_integer(config, "num_key_value_heads",
                (dim > 0) ? (length_of(m, "h0_qkv", 0) - q) / 2 / dim : 0);
    json_object_set_new(others, "model_type", json_string("llama"));
    json_object_set_new(others, "architectures", json_pack("[s]", "LlamaForCausalLM"));
    json_object_set_new(others, "hidden_act", json_string("silu"));
    json_object_set_new(others, "rms_norm_eps", json_real(1e-5));
}

static void add_bert(const ct_model *m, json_t *config, json_t *others)
{
    set_integer(config, "vocab_size", length_of(m, "wte", 0));
    set_integer(config, "hidden_size", length_of(m, "wte", 1));
    set_integer(config, "max_position_embeddings", length_of(m, "wpe", 0));
    set_integer(config, "type_vocab_size", length_of(m, "wtt", 0));
    set_integer(config, "intermediate_size", length_of(m, "h0_fc", 0));
    set_integer(config, "num_hidden_layers", count_blocks(m, "h%d_fc"));
    json_object_set_new(others, "model_type", json_string("bert"));
    json_object_set_new(others, "architectures",
                        json_pack("[s]", ct_lm_has_head(m) ? "BertForMaskedLM" : "BertModel"));
    json_object_set_new(others, "hidden_act", json_string("gelu"));
    json_object_set_new(others, "layer_norm_eps", json_real(1e-12));
}

/* Shapes and numbers that are what they are, over what the source said; others where it says none.
 */
static ct_status complete(const ct_model *m, ct_lm_family family, json_t *config)
{
    const char *width = (family == CT_LM_GPT2) ? "h0_proj" : "h0_attn_proj";
    json_t *others = json_object();
    int64_t heads[2];

    ct_hf_config_heads(config, heads);
    if ((heads[0] < 1) || (length_of(m, width, (family == CT_LM_GPT2) ? 0 : 1) % heads[0] != 0)) {
        json_decref(others);
        return CT_FAIL(CT_ERR_DATA, "%s: %" PRId64 " heads do not divide the width", m->file,
                       heads[0]);
    }
    if (family == CT_LM_GPT2) add_gpt2(m, config, others);
    if (family == CT_LM_LLAMA) add_llama(m, heads[0], config, others);
    if (family == CT_LM_BERT) add_bert(m, config, others);
    json_object_del(config, "dtype");
    json_object_set_new(config, "torch_dtype", json_string("float32"));
    json_object_set_new(config, "tie_word_embeddings", json_boolean(!has_own_head(m)));
    json_object_update_missing(config, others);
    json_decref(others);
    return CT_OK;
}

static ct_status write_text(const json_t *config, const char *path)
{
    char *text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    ct_status status;

    if (text == NULL) return no_memory(path);
    status = ct_file_write(path, text, strlen(text));
    free(text);
    if (status == CT_OK) CT_INFO("wrote %s", path);
    return status;
}

ct_status ct_hf_config_write(const ct_model *m, const ct_net *net, const char *weights)
{
    ct_lm_family family = (ct_lm_family)m->written_as;
    json_t *config = (m->config != NULL) ? json_deep_copy(m->config) : json_object();
    char *path = NULL;
    int64_t heads[2];
    ct_status status = CT_OK;

    if (config == NULL) return no_memory(weights);
    if (net != NULL) add_net(net, family, config);
    ct_hf_config_heads(config, heads);
    if (heads[0] == 0) {
        CT_WARN("no config.json for %s: nothing says how many heads attention has; --net names a "
                "net that does",
                weights);
    } else {
        status = complete(m, family, config);
        if (status == CT_OK) status = ct_hf_config_path(weights, &path);
        if (status == CT_OK) status = write_text(config, path);
    }
    free(path);
    json_decref(config);
    return status;
}
