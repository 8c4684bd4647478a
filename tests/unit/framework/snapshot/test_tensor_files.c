/* Weights in .safetensors and GGUF: forged and damaged files, others' names in nets, what is
 * missing. Values against the packages that others use: tests/cli/test_tensors.sh. */
#include "tests/test.h"
#include "framework/base/file.h"
#include "tests/solver_harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

static const char *at(const char *name)
{
    static char path[4][160];
    static int turn;
    char *p = path[turn++ % 4];

    snprintf(p, sizeof(path[0]), "%s/%s", test_solver_dir(), name);
    return p;
}

static ct_status open_all(const char *file)
{
    ct_model *m = NULL;
    ct_status status = ct_model_open(file, &m);

    if (status == CT_OK) status = ct_model_load(m);
    ct_model_close(m);
    return status;
}

/* ---- forged files ---- */

/* A header and n bytes of data behind it; length: what the file says of the header, -1: the truth.
 */
static void write_file(const char *path, const char *header, int64_t length, size_t n)
{
    size_t size = strlen(header);
    uint64_t said = (length >= 0) ? (uint64_t)length : size;
    char bytes[4096];

    assert_true(8 + size + n <= sizeof(bytes));
    memcpy(bytes, &said, 8);
    memcpy(bytes + 8, header, size);
    for (size_t i = 0; i < n; i++) bytes[8 + size + i] = (char)i;
    assert_int_equal(ct_file_write(path, bytes, 8 + size + n), CT_OK);
}

#define TENSOR(_name, _dtype, _shape, _range)                                                      \
    "'" _name "':{'dtype':'" _dtype "','shape':[" _shape "],'data_offsets':[" _range "]}"

static const struct {
    const char *header; /* with ' for " */
    int64_t length;
    size_t n;
    const char *why;
} forged[] = {
    { "{" TENSOR("a/0", "F32", "2", "0,8") "," TENSOR("b/0", "F32", "2", "4,12") "}", -1, 12,
      "the tensors \"a/0\" and \"b/0\" share bytes" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "," TENSOR("b/0", "F32", "2", "0,8") "}", -1, 8,
      "share bytes" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "}", -1, 7,
      "ends at byte 8 of the data, of which the "
      "file has 7" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "}", -1, 12, "4 of its 12 bytes of data belong to no" },
    { "{" TENSOR("a/0", "F32", "2", "4,12") "}", -1, 12, "4 of its 12 bytes of data belong to no" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "}", 90, 8, "a header of 90 bytes in a file of 7" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "}", INT64_MAX, 8, "a header of 9223372036854775807" },
    { "{" TENSOR("a/0", "F32", "4611686018427387904", "0,8") "}", -1, 8, "too large to be" },
    { "{" TENSOR("a/0", "F32", "576460752303423488", "0,8") "}", -1, 8,
      "wants 576460752303423488" },
    { "{" TENSOR("a/0", "F32", "4294967296,4294967296", "0,8") "}", -1, 8, "too large to be" },
    { "{" TENSOR("a/0", "F32", "0,4611686018427387904,4611686018427387904", "0,0") "}", -1, 0,
      "too large to be" },
    { "{" TENSOR("a/0", "F32", "2", "0,4611686018427387904") "}", -1, 8,
      "ends at byte 46116860184" },
    { "{" TENSOR("a/0", "F32", "2", "8,0") "}", -1, 8, "expected data_offsets" },
    { "{" TENSOR("a/0", "F32", "2", "-8,0") "}", -1, 8, "expected data_offsets" },
    { "{" TENSOR("a/0", "F32", "2", "0") "}", -1, 8, "expected data_offsets" },
    { "{" TENSOR("a/0", "F32", "-2", "0,8") "}", -1, 8, "no length of an axis" },
    { "{" TENSOR("a/0", "F32", "2.5", "0,8") "}", -1, 8, "no length of an axis" },
    { "{" TENSOR("a/0", "F32", "3", "0,8") "}", -1, 8,
      "has 8 bytes, its shape 3 (3) of F32 wants" },
    { "{" TENSOR("a/0", "F31", "2", "0,8") "}", -1, 8, "has the dtype F31, which is not known" },
    { "{" TENSOR("a/0", "I64", "1", "0,8") "}", -1, 8, "a/0 is of type I64, which weights cannot" },
    { "{" TENSOR("a/0", "F32", "1,1,1,1,1,1,1,1,2", "0,8") "}", -1, 8, "has 9 axes" },
    { "{" TENSOR("a/0", "F32", "2", "0,8") "," TENSOR("a/0", "F32", "2", "8,16") "}", -1, 16,
      "no JSON object: duplicate object key" },
    { "{'a/0':7}", -1, 0, "expected an object" },
    { "{'a/0':{'dtype':7}}", -1, 0, "expected a text as its dtype" },
    { "{'a\\n/0':{}}", -1, 0, "has control characters" },
    { "{'a/0':", -1, 0, "the header is no JSON object" },
    { "[]", -1, 0, "the header is no JSON object: it is another value" },
    { "{}", -1, 0, "holds no tensors" },
    { "{" TENSOR("what", "F32", "2", "0,8") "}", -1, 8,
      "holds no weights: its first tensor is "
      "\"what\"" },
    { "{" TENSOR("a/9", "F32", "2", "0,8") "}", -1, 8, "holds no weights" },
};

/* ' stands for " in the texts above. */
static const char *quoted(const char *text, char *to, size_t size)
{
    assert_true(strlen(text) < size);
    for (size_t i = 0; i <= strlen(text); i++) to[i] = (text[i] == '\'') ? '"' : text[i];
    return to;
}

static void write_quoted(const char *path, const char *header, int64_t length, size_t n)
{
    char text[2048];

    write_file(path, quoted(header, text, sizeof(text)), length, n);
}

static void test_forged(void **state)
{
    static const char above[] = "{\"weight_map\": {\"a\": \"..\"}}";

    (void)state;
    for (size_t k = 0; k < sizeof(forged) / sizeof(forged[0]); k++) {
        const char *path = at("forged.safetensors");

        write_quoted(path, forged[k].header, forged[k].length, forged[k].n);
        test_log_all_stop();
        test_log_all_start();
        if (open_all(path) != CT_ERR_DATA) fail_msg("%s was read", forged[k].header);
        test_log_holds(forged[k].why);
    }
    assert_int_equal(ct_file_write(at("short.safetensors"), "12", 2), CT_OK);
    assert_int_equal(open_all(at("short.safetensors")), CT_ERR_DATA);
    test_log_holds("begins with a length of 8 bytes, this one has 2");
    assert_int_equal(ct_file_write(at("a.index.json"), "{\"a\": 1}", 8), CT_OK);
    assert_int_equal(open_all(at("a.index.json")), CT_ERR_DATA);
    test_log_holds("no index of shards: it has no weight_map");
    assert_int_equal(ct_file_write(at("b.index.json"), above, sizeof(above) - 1), CT_OK);
    assert_int_equal(open_all(at("b.index.json")), CT_ERR_DATA);
    test_log_holds("b.index.json: weight_map names a shard that is no file beside it");
}

/* An empty array, a scalar and one that is not aligned; what is left out. */
static void test_odd_shapes(void **state)
{
    ct_model *m = NULL;
    float v[2];

    (void)state;
    write_quoted(
        at("odd.safetensors"),
        "{" TENSOR("e/0", "F32", "0,3", "0,0") "," TENSOR("n", "U8", "3", "0,3") "," TENSOR(
            "s/1", "F32", "", "3,7") "," TENSOR("u/0", "F16", "1,2", "7,11") "}",
        -1, 11);
    assert_int_equal(ct_model_open(at("odd.safetensors"), &m), CT_OK);
    test_log_holds("n is no LAYER/INDEX of weights, left out");
    assert_int_equal(ct_model_load(m), CT_OK);
    assert_int_equal(m->n_layer, 3);
    assert_int_equal(ct_model_get(m, ct_model_find(m, "s"), 1, v), CT_OK);
    assert_memory_equal(v, "\3\4\5\6", 4);
    assert_int_equal(ct_model_get(m, ct_model_find(m, "u"), 0, v), CT_OK);
    assert_true(v[0] == (float)(1 + 7 / 1024.0) * 0x1p-13f); /* 0x0807 */
    ct_model_close(m);
}

/* What weights cannot have takes its bytes all the same. */
static void test_types_left_out(void **state)
{
    static const struct {
        const char *name;
        int bytes;
    } type[] = { { "I64", 8 }, { "I32", 4 }, { "I16", 2 }, { "I8", 1 },  { "U64", 8 },
                 { "U32", 4 }, { "U16", 2 }, { "U8", 1 },  { "BOOL", 1 } };

    (void)state;
    for (size_t k = 0; k < sizeof(type) / sizeof(type[0]); k++) {
        int n = 2 * type[k].bytes;
        ct_model *m = NULL;
        char header[256], expected[4] = { (char)n, (char)(n + 1), (char)(n + 2), (char)(n + 3) };
        float v;

        snprintf(header, sizeof(header),
                 "{" TENSOR("n", "%s", "2", "0,%d") "," TENSOR("s/0", "F32", "1", "%d,%d") "}",
                 type[k].name, n, n, n + 4);
        write_quoted(at("types.safetensors"), header, -1, (size_t)n + 4);
        assert_int_equal(ct_model_open(at("types.safetensors"), &m), CT_OK);
        assert_int_equal(ct_model_load(m), CT_OK);
        assert_int_equal(ct_model_get(m, ct_model_find(m, "s"), 0, &v), CT_OK);
        assert_memory_equal(&v, expected, 4);
        ct_model_close(m);
    }
}

/* A file named twice is read once; a name may begin with dots. */
static void test_shards(void **state)
{
    static const char index[] = "{'weight_map': {'a/0': 'x.safetensors', 'a/1': 'x.safetensors', "
                                "'b/0': '..y.safetensors'}}";
    ct_model *m = NULL;
    char text[256];

    (void)state;
    write_quoted(at("x.safetensors"),
                 "{" TENSOR("a/0", "F32", "1", "0,4") "," TENSOR("a/1", "F32", "1", "4,8") "}", -1,
                 8);
    write_quoted(at("..y.safetensors"), "{" TENSOR("b/0", "F32", "1", "0,4") "}", -1, 4);
    (void)quoted(index, text, sizeof(text));
    assert_int_equal(ct_file_write(at("c.index.json"), text, strlen(text)), CT_OK);
    assert_int_equal(ct_model_open(at("c.index.json"), &m), CT_OK);
    assert_int_equal(ct_model_load(m), CT_OK);
    assert_int_equal(m->n_layer, 2);
    assert_true(ct_model_find(m, "b") >= 0);
    ct_model_close(m);
}

/* ---- damaged files ---- */

enum { N_DAMAGED = 1500 }; /* of each file */

/* Fixed numbers, one after the other. */
typedef struct draws {
    uint64_t n;
} draws;

static uint64_t draw(draws *d, uint64_t below)
{
    return ct_rng_key(25, d->n++, 0) % below;
}

static void damage(uint8_t *data, size_t *size, draws *d)
{
    static const uint64_t numbers[] = { 0,          1,          255,
                                        0x7fffffff, 0xffffffff, UINT64_C(1) << 62,
                                        INT64_MAX,  UINT64_MAX };
    int times = 1 + (int)draw(d, 4);

    for (int k = 0; k < times; k++) {
        size_t front = (*size < 1200) ? *size : 1200; /* most of what is said stands there */
        size_t i = (size_t)draw(d, front);

        switch (draw(d, 5)) {
        case 0:
            data[i] = (uint8_t)draw(d, 256);
            break;
        case 1:
            data[i] ^= (uint8_t)(1u << draw(d, 8));
            break;
        case 2:
            if (i + 8 <= *size) memcpy(data + i, &numbers[draw(d, 8)], 8);
            break;
        case 3: /* a digit of a JSON number, a letter of a name */
            if (data[i] >= '0') data[i] = (uint8_t)('0' + draw(d, 10));
            break;
        default:
            if (draw(d, 8) == 0) *size = 1 + (size_t)draw(d, *size);
        }
    }
}

/* ct_file_write() waits for the disk, and so do some file systems where a file is overwritten. */
static void write_quickly(const char *path, const void *data, size_t n)
{
    FILE *f;

    unlink(path);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Values that a file of `size` bytes gave: 4 bits make one at most, and a head may be the table of
 * tokens once more. */
static void check_bounded(ct_model *m, size_t size)
{
    int64_t n = 0;

    for (int l = 0; l < m->n_layer; l++)
        for (int i = 0; i < m->layer[l].n_array; i++)
            if (m->layer[l].array[i].present)
                n += ct_shape_count(&m->layer[l].array[i].shape, 0, -1);
    assert_true((n >= 0) && (n <= 2 * 2 * (int64_t)size));
    assert_int_equal(ct_model_load(m), CT_OK);
}

static void test_damaged(void **state)
{
    static const char *const files[] = { "model_llama.gguf", "model_llama_q8.gguf",
                                         "model_llama.safetensors", "model_own.safetensors" };
    draws d = { 0 };

    (void)state;
    for (int f = 0; f < 4; f++) {
        char path[160], *data = NULL;
        size_t size = 0;
        int n_read = 0;

        snprintf(path, sizeof(path), "tests/fuzz/corpus/%s", files[f]);
        assert_int_equal(open_all(path), CT_OK);
        assert_int_equal(ct_file_read(path, &data, &size), CT_OK);
        for (int k = 0; k < N_DAMAGED; k++) {
            uint8_t *copy = malloc(size);
            size_t n = size;
            ct_model *m = NULL;
            ct_status status;

            memcpy(copy, data, size);
            damage(copy, &n, &d);
            write_quickly(at(files[f]), copy, n);
            free(copy);
            status = ct_model_open(at(files[f]), &m);
            if (status == CT_OK) check_bounded(m, n);
            n_read += (status == CT_OK) ? 1 : 0;
            if ((status != CT_OK) && (status != CT_ERR_DATA)) fail_msg("status %d", (int)status);
            ct_model_close(m);
        }
        /* damage of values is none that a reader could see; that of what is said is found */
        assert_in_range(n_read, 1, N_DAMAGED - N_DAMAGED / 10);
        free(data);
    }
}

/* ---- others' names in a net ---- */

typedef struct builder {
    ct_text header, data;
} builder;

/* A tensor whose values count from `first` on; columns 0: one axis. */
static void add(builder *b, const char *name, int rows, int columns, float first)
{
    int n = rows * ((columns > 0) ? columns : 1);
    char shape[32];

    if (columns > 0)
        snprintf(shape, sizeof(shape), "%d,%d", rows, columns);
    else
        snprintf(shape, sizeof(shape), "%d", rows);
    ct_text_add(&b->header,
                "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                (b->header.length == 0) ? '{' : ',', name, shape, b->data.length,
                b->data.length + (size_t)n * 4);
    for (int i = 0; i < n; i++) {
        float v = first + (float)i;

        ct_text_add_bytes(&b->data, (const char *)&v, sizeof(v));
    }
}

static void finish(builder *b, const char *path)
{
    ct_text all = { 0 };
    uint64_t length;

    ct_text_add(&b->header, "}");
    length = b->header.length;
    ct_text_add_bytes(&all, (const char *)&length, sizeof(length));
    ct_text_add_bytes(&all, b->header.text, b->header.length);
    ct_text_add_bytes(&all, b->data.text, b->data.length);
    assert_int_equal(ct_file_write(path, all.text, all.length), CT_OK);
    ct_text_destroy(&all);
    ct_text_destroy(&b->header);
    ct_text_destroy(&b->data);
}

#define IP(_name, _bottom, _n, _more)                                                              \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name "' " _more \
    " inner_product_param { num_output: " _n " weight_filler { type: 'xavier' } "

/* A GPT-2 of one block but for what no other layer makes. fc: outputs. */
static void make_net(const char *fc, test_solver *t)
{
    char text[4096];

    snprintf(
        text, sizeof(text),
        "base_lr: 1 lr_policy: 'fixed' max_iter: 1 random_seed: 3 snapshot_after_train: false "
        "net_param { name: 'n' layer { name: 'data' type: 'DummyData' top: 'data' "
        "dummy_data_param { shape { dim: 3 } } } "
        "layer { name: 'wte' type: 'Embed' bottom: 'data' top: 'x' param { name: 'table' } "
        "embed_param { input_dim: 5 num_output: 4 bias_term: false "
        "weight_filler { type: 'xavier' } } } "
        "layer { name: 'h0_ln1' type: 'LayerNorm' bottom: 'x' top: 'n' } "
        "%s } } %s%s } } %s } } %s bias_term: false } } "
        "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'head' bottom: 'head' top: 'loss' } "
        "layer { name: 'none' type: 'Silence' bottom: 'h0_attn_qkv' bottom: 'score' } }",
        IP("h0_attn_qkv", "n", "12", ""),
        "layer { name: 'h0_fc' type: 'InnerProduct' bottom: "
        "'x' top: 'fc' inner_product_param { weight_filler { type: 'xavier' } num_output: ",
        fc, IP("score", "fc", "2", ""), IP("head", "n", "5", "param { name: 'table' }"));
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, t), CT_OK);
}

static void add_gpt2(builder *b)
{
    add(b, "transformer.wte.weight", 5, 4, 100);
    add(b, "transformer.h.0.ln_1.weight", 4, 0, 200);
    add(b, "transformer.h.0.ln_1.bias", 4, 0, 210);
    add(b, "transformer.h.0.attn.c_attn.weight", 4, 12, 300);
    add(b, "transformer.h.0.attn.c_attn.bias", 12, 0, 400);
    add(b, "transformer.h.0.mlp.c_fc.weight", 4, 6, 500);
    add(b, "transformer.h.0.mlp.c_fc.bias", 6, 0, 600);
    add(b, "transformer.h.0.surplus.weight", 2, 0, 0);
}

static const float *weight_of(const test_solver *t, const char *layer, int i)
{
    const ct_net *net = ct_solver_net(t->solver);

    return ct_blob_data(&net->param[ct_net_param_of(net, ct_net_find_layer(net, layer), i)].blob);
}

static void test_names_in_net(void **state)
{
    const float *w;
    builder b = { 0 };
    test_solver t;

    (void)state;
    make_net("6", &t);
    add_gpt2(&b);
    finish(&b, at("gpt2.safetensors"));
    assert_int_equal(ct_solver_load_weights(t.solver, at("gpt2.safetensors")), CT_OK);
    test_log_holds("names of Hugging Face's GPT-2: 7 tensors are 5 layers");
    test_log_holds("1 tensors are no weights of such a model, left out: transformer.h.0.surplus.");
    test_log_holds("weights of 5 layers, 1 of the net not there, 0 there not in the net");
    test_log_holds("not in that file, left as they were: score [2 6 (12), 2 (2)];");
    w = weight_of(&t, "h0_fc", 0);
    for (int o = 0; o < 6; o++) /* Conv1D is inputs x outputs */
        for (int i = 0; i < 4; i++) assert_true(w[4 * o + i] == (float)(500 + 6 * i + o));
    w = weight_of(&t, "h0_attn_qkv", 1);
    for (int i = 0; i < 12; i++) assert_true(w[i] == (float)(400 + i));
    assert_true(weight_of(&t, "head", 0) == weight_of(&t, "wte", 0)); /* tied */
    assert_true(weight_of(&t, "head", 0)[19] == 119);
    /* our own file has the table once, and the head misses nothing */
    assert_int_equal(test_weights_save(at("own.safetensors"), ct_solver_net(t.solver)), CT_OK);
    test_log_all_stop();
    test_log_all_start();
    assert_int_equal(ct_solver_load_weights(t.solver, at("own.safetensors")), CT_OK);
    test_log_holds("weights of 5 layers, 0 of the net not there, 0 there not in the net");
    test_solver_destroy(&t);
    make_net("7", &t);
    assert_int_equal(ct_solver_load_weights(t.solver, at("gpt2.safetensors")), CT_ERR_SHAPE);
    test_log_holds("blob 0 of layer \"h0_fc\" has shape 6 4 (24) in the file, 7 4 (28) in the net");
    test_solver_destroy(&t);
}

/* A file whose head is not its table of tokens, and a net where they are one. */
static void test_head_of_its_own(void **state)
{
    builder b = { 0 };
    test_solver t;

    (void)state;
    make_net("6", &t);
    add_gpt2(&b);
    add(&b, "lm_head.weight", 5, 4, 100);
    finish(&b, at("same.safetensors"));
    assert_int_equal(ct_solver_load_weights(t.solver, at("same.safetensors")), CT_OK);
    assert_null(strstr(test_log_all(), "differ"));
    add_gpt2(&b);
    add(&b, "lm_head.weight", 5, 4, 101);
    finish(&b, at("other.safetensors"));
    assert_int_equal(ct_solver_load_weights(t.solver, at("other.safetensors")), CT_OK);
    test_log_holds(
        "wte/0 and head/0 differ, and the net shares them: the values of head are taken");
    test_solver_destroy(&t);
}

/* Which rows of one array q, k and v are. k: its columns, 0: it is not there. */
static ct_status read_llama(int k_columns)
{
    builder b = { 0 };

    add(&b, "model.embed_tokens.weight", 3, 4, 0);
    add(&b, "model.layers.0.self_attn.q_proj.weight", 4, 4, 100);
    if (k_columns > 0) add(&b, "model.layers.0.self_attn.k_proj.weight", 2, k_columns, 200);
    add(&b, "model.layers.0.self_attn.v_proj.weight", 2, 4, 300);
    finish(&b, at("llama.safetensors"));
    return open_all(at("llama.safetensors"));
}

static void test_parts(void **state)
{
    ct_model *m = NULL;
    int l;

    (void)state;
    assert_int_equal(read_llama(0), CT_ERR_DATA);
    test_log_holds("layers.0.self_attn.k_proj.weight is not there, and others that make one array");
    assert_int_equal(read_llama(5), CT_ERR_DATA);
    test_log_holds(
        "k_proj.weight has shape 2 5 (10), which does not go with that of model.layers.0");
    assert_int_equal(read_llama(4), CT_OK);
    assert_int_equal(ct_model_open(at("llama.safetensors"), &m), CT_OK);
    assert_int_equal(ct_model_load(m), CT_OK);
    l = ct_model_find(m, "h0_qkv");
    assert_int_equal(m->layer[l].array[0].shape.dim[0], 8);
    for (int i = 0; i < 16; i++) assert_true(m->layer[l].array[0].data[i] == (float)(100 + i));
    for (int i = 0; i < 8; i++) assert_true(m->layer[l].array[0].data[16 + i] == (float)(200 + i));
    for (int i = 0; i < 8; i++) assert_true(m->layer[l].array[0].data[24 + i] == (float)(300 + i));
    /* the head is the table of tokens once more */
    l = ct_model_find(m, "head");
    assert_true(m->layer[l].array[0].shared);
    assert_true(m->layer[l].array[0].data[11] == 11);
    ct_model_close(m);
}

/* Old files of BERT call the two arrays of a norm gamma and beta. */
static void test_old_names(void **state)
{
    builder b = { 0 };
    ct_model *m = NULL;
    float v[4];

    (void)state;
    add(&b, "bert.embeddings.word_embeddings.weight", 3, 4, 0);
    add(&b, "bert.embeddings.LayerNorm.gamma", 4, 0, 10);
    add(&b, "bert.embeddings.LayerNorm.beta", 4, 0, 20);
    finish(&b, at("bert.safetensors"));
    assert_int_equal(ct_model_open(at("bert.safetensors"), &m), CT_OK);
    assert_int_equal(ct_model_get(m, ct_model_find(m, "ln_emb"), 1, v), CT_OK);
    assert_true(v[3] == 23);
    assert_int_equal(ct_model_find(m, "head"), -1); /* it has no head's bias */
    ct_model_close(m);
}

/* What lacks arrays, or has others, is not written under names that say it is whole. */
static void test_not_whole(void **state)
{
    builder b = { 0 };
    ct_model *m = NULL;

    (void)state;
    add(&b, "wte/0", 5, 4, 0);
    add(&b, "h0_attn_qkv/0", 12, 4, 0);
    add(&b, "ln_f/0", 4, 0, 0);
    add(&b, "ln_f/1", 4, 0, 0);
    finish(&b, at("part.safetensors"));
    assert_int_equal(ct_model_open(at("part.safetensors"), &m), CT_OK);
    assert_true(ct_model_write_as_hf(m));
    assert_int_equal(ct_model_save(m, at("model.safetensors")), CT_ERR_DATA);
    test_log_holds(
        "arrays of Hugging Face's GPT-2 are not there: wpe/0 h0_ln1/0 h0_ln1/1 h0_attn_");
    ct_model_close(m);
    add(&b, "wte/0", 5, 4, 0);
    finish(&b, at("none.safetensors"));
    assert_int_equal(ct_model_open(at("none.safetensors"), &m), CT_OK);
    assert_false(ct_model_write_as_hf(m));
    ct_model_close(m);
}

/* What could not be read again is not written. */
static void test_names_that_are_refused(void **state)
{
    builder b = { 0 };
    ct_model *m = NULL;

    (void)state;
    add(&b, "ip/0", 5, 4, 0);
    finish(&b, at("part.safetensors"));
    assert_int_equal(ct_model_open(at("part.safetensors"), &m), CT_OK);
    assert_int_equal(ct_model_save(m, at("again.safetensors")), CT_OK);
    m->layer[0].name[1] = '\003';
    assert_int_equal(ct_model_save(m, at("again.safetensors")), CT_ERR_DATA);
    test_log_holds("a tensor cannot be called \"i");
    ct_model_close(m);
}

int main(void)
{
#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_forged),
        TEST(test_odd_shapes),
        TEST(test_damaged),
        TEST(test_names_in_net),
        TEST(test_head_of_its_own),
        TEST(test_parts),
        TEST(test_old_names),
        TEST(test_not_whole),
        TEST(test_types_left_out),
        TEST(test_shards),
        TEST(test_names_that_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
