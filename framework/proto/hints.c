/* Fields of NVIDIA's and Intel's forks, and of BVLC's OpenCL branch, that say how a net is run
 * there: engines, types of arithmetic, memory, threads. What comes out does not depend on them, so
 * nets with them are read, and one line a file lists them. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/reader.h"

typedef struct hint {
    const ProtobufCMessageDescriptor *in;
    const char *field, *fork;
} hint;

#define OF(_type) &ct__##_type##__descriptor

/* Those of a fork stand together: so they do in the line. */
static const hint hint_table[] = {
    { OF(net_parameter), "default_forward_type", "NVIDIA" },
    { OF(net_parameter), "default_backward_type", "NVIDIA" },
    { OF(net_parameter), "default_forward_math", "NVIDIA" },
    { OF(net_parameter), "default_backward_math", "NVIDIA" },
    { OF(net_parameter), "default_conv_algos_override", "NVIDIA" },
    { OF(net_parameter), "default_cudnn_math_override", "NVIDIA" },
    { OF(net_parameter), "global_grad_scale", "NVIDIA" },
    { OF(net_parameter), "global_grad_scale_adaptive", "NVIDIA" },
    { OF(net_parameter), "reduce_buckets", "NVIDIA" },
    { OF(net_parameter), "eltwise_mem_sharing", "NVIDIA" },
    { OF(layer_parameter), "forward_type", "NVIDIA" },
    { OF(layer_parameter), "backward_type", "NVIDIA" },
    { OF(layer_parameter), "forward_math", "NVIDIA" },
    { OF(layer_parameter), "backward_math", "NVIDIA" },
    { OF(layer_parameter), "cudnn_math_override", "NVIDIA" },
    { OF(layer_parameter), "debug", "NVIDIA" },
    { OF(convolution_parameter), "cudnn_convolution_algo_seeker", "NVIDIA" },
    { OF(convolution_parameter), "conv_algos_override", "NVIDIA" },
    { OF(dropout_parameter), "engine", "NVIDIA" },
    { OF(dropout_parameter), "random_seed", "NVIDIA" },
    { OF(data_parameter), "parser_threads", "NVIDIA" },
    { OF(data_parameter), "cache", "NVIDIA" },
    { OF(data_parameter), "precache", "NVIDIA" },
    { OF(image_data_parameter), "cache", "NVIDIA" },
    { OF(image_data_parameter), "precache", "NVIDIA" },
    { OF(transformation_parameter), "use_gpu_transform", "NVIDIA" },
    { OF(transformation_parameter), "forward_packing", "NVIDIA" },
    { OF(transformation_parameter), "random_seed", "NVIDIA" },
    { OF(transformation_parameter), "display", "NVIDIA" },
    { OF(solver_parameter), "solver_data_type", "NVIDIA" },
    { OF(solver_parameter), "store_blobs_in_old_format", "NVIDIA" },
    { OF(net_parameter), "engine", "Intel" },
    { OF(net_parameter), "compile_net_state", "Intel" },
    { OF(net_parameter), "multinode", "Intel" },
    { OF(layer_parameter), "multinode", "Intel" },
    { OF(layer_parameter), "mn_activation_param", "Intel" },
    { OF(layer_parameter), "mn_grad_compress_param", "Intel" },
    { OF(layer_parameter), "quantization_param", "Intel" },
    { OF(layer_parameter), "split_param", "Intel" },
    { OF(batch_norm_parameter), "engine", "Intel" },
    { OF(concat_parameter), "engine", "Intel" },
    { OF(concat_parameter), "per_fla_fuse", "Intel" },
    { OF(convolution_parameter), "conv_algorithm", "Intel" },
    { OF(eltwise_parameter), "engine", "Intel" },
    { OF(inner_product_parameter), "engine", "Intel" },
    { OF(re_luparameter), "fuse", "Intel" },
    { OF(solver_parameter), "engine", "Intel" },
    { OF(net_parameter), "device", "the OpenCL branch" },
    { OF(net_parameter), "data_type", "the OpenCL branch" },
    { OF(layer_parameter), "device", "the OpenCL branch" },
    { OF(layer_parameter), "buffer", "the OpenCL branch" },
    { OF(layer_parameter), "bottom_data_type", "the OpenCL branch" },
    { OF(layer_parameter), "compute_data_type", "the OpenCL branch" },
    { OF(layer_parameter), "top_data_type", "the OpenCL branch" },
    { OF(solver_parameter), "device", "the OpenCL branch" },
    { OF(solver_parameter), "data_type", "the OpenCL branch" },
};
enum { N_HINT = sizeof(hint_table) / sizeof(hint_table[0]) };
_Static_assert((int)N_HINT <= (int)CT_MOST_HINTS, "a bit each in ct_prototxt_reader");

static int find(const ct_prototxt_reader *r)
{
    for (int i = 0; i < N_HINT; i++) {
        if ((hint_table[i].in == r->frame->type) &&
            ct_token_is_name(&r->token, hint_table[i].field))
            return i;
    }
    return -1;
}

/* To behind the bracket that closes the one that is the current token. */
static ct_status skip_brackets(ct_prototxt_reader *r)
{
    ct_token open = r->token;
    int depth = 0;

    do {
        if (ct_token_is(&r->token, '{') || ct_token_is(&r->token, '<') ||
            ct_token_is(&r->token, '['))
            depth++;
        if (ct_token_is(&r->token, '}') || ct_token_is(&r->token, '>') ||
            ct_token_is(&r->token, ']'))
            depth--;
        if (r->token.kind == CT_TOKEN_BAD) return ct_prototxt_reader_fail_expected(r, "a field");
        if (r->token.kind == CT_TOKEN_END)
            return ct_prototxt_reader_fail_at(r, open.line, open.column,
                                              "this \"%c\" is not closed; the text ends at line %d",
                                              *open.start, r->token.line);
        ct_prototxt_reader_next(r);
    } while (depth > 0);
    return CT_OK;
}

static ct_status skip_value(ct_prototxt_reader *r)
{
    bool colon = ct_token_is(&r->token, ':');

    if (colon) ct_prototxt_reader_next(r);
    if (ct_token_is(&r->token, '{') || ct_token_is(&r->token, '<') || ct_token_is(&r->token, '['))
        return skip_brackets(r);
    if (!colon) return ct_prototxt_reader_fail_expected(r, "\":\"");
    if (r->token.kind == CT_TOKEN_STRING) {
        while (r->token.kind == CT_TOKEN_STRING) ct_prototxt_reader_next(r);
        return CT_OK;
    }
    if (ct_token_is(&r->token, '-')) ct_prototxt_reader_next(r);
    if ((r->token.kind != CT_TOKEN_NAME) && (r->token.kind != CT_TOKEN_NUMBER))
        return ct_prototxt_reader_fail_expected(r, "a value");
    ct_prototxt_reader_next(r);
    return CT_OK;
}

ct_status ct_hint_skip(ct_prototxt_reader *r, bool *skipped_p)
{
    int i = find(r);

    *skipped_p = (i >= 0);
    if (i < 0) return CT_OK;
    if (ct_source_map_refuses_hints(r->map))
        return ct_prototxt_reader_fail_at(r, r->token.line, r->token.column,
                                          "\"%s\" is a hint for %s's engines, and --strict lets "
                                          "none be ignored; take it out",
                                          hint_table[i].field, hint_table[i].fork);
    r->hint[i] = true;
    r->field = hint_table[i].field;
    ct_prototxt_reader_next(r);
    return skip_value(r);
}

/* Whether the same word stands in the table before, of the fork, and was met. */
static bool is_listed(const ct_prototxt_reader *r, int i)
{
    for (int k = 0; k < i; k++) {
        if (r->hint[k] && (strcmp(hint_table[k].field, hint_table[i].field) == 0) &&
            (strcmp(hint_table[k].fork, hint_table[i].fork) == 0))
            return true;
    }
    return false;
}

void ct_hint_report(const ct_prototxt_reader *r)
{
    const char *fork = NULL;
    ct_text t = { 0 };

    for (int i = 0; i < N_HINT; i++) {
        bool other = (fork == NULL) || (strcmp(fork, hint_table[i].fork) != 0);

        if (!r->hint[i] || is_listed(r, i)) continue;
        if (other && (fork != NULL)) ct_text_add(&t, " (hints for %s's engines)", fork);
        ct_text_add(&t, "%s%s", (fork != NULL) ? ", " : "", hint_table[i].field);
        fork = hint_table[i].fork;
    }
    if ((fork != NULL) && !t.failed)
        CT_INFO("%s: ignored: %s (hints for %s's engines)", r->name, t.text, fork);
    ct_text_destroy(&t);
}
