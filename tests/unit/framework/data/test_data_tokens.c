/* TokenData as nets run it: which windows a rank sees in a step, against the definition; segments
 * and positions; masks; and what is refused. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/token_file.h"
#include "framework/net/net.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"

enum { COUNT = 64, KINDS = 1000, T = 3, GLOBAL = 7, WINDOWS = (COUNT - 1) / T };

static test_folder folder;

static int setup(void **state)
{
    (void)state;
    test_folder_make(&folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_folder_remove(&folder);
    return 0;
}

/* Token i is 7 i + 1, but each tenth is 5, which ends a document. */
static int32_t id_at(int64_t i)
{
    return (i % 10 == 9) ? 5 : (int32_t)(7 * i + 1);
}

static const char *write_tokens(int64_t n)
{
    const char *path = test_path(&folder, "t.bin");
    int32_t *id = malloc((size_t)n * sizeof(*id));

    assert_non_null(id);
    for (int64_t i = 0; i < n; i++) id[i] = id_at(i);
    assert_int_equal(ct_token_file_write(path, id, n, 2), CT_OK);
    free(id);
    return path;
}

static ct_status open_net(parsed_net *f, const char *fields, ct_phase phase, const ct_net_env *env)
{
    char text[1024];

    snprintf(text, sizeof(text),
             "layer { name: \"data\" type: \"TokenData\" top: \"tokens\" top: \"next\" "
             "top: \"positions\" top: \"segments\" token_data_param { %s } }",
             fields);
    return parsed_net_open(text, phase, env, f);
}

static const float *top(const parsed_net *f, const char *name)
{
    const ct_blob *b = f->net->pass->blob[ct_net_find_blob(f->net, name)];

    assert_int_equal(b->data.shape.ndim, 2);
    assert_int_equal(b->data.shape.dim[0], f->net->batch_local);
    assert_int_equal(b->data.shape.dim[1], T);
    return ct_blob_data(b);
}

/* The window that a row shows, by its first token; checks the whole row. */
static int64_t check_row(const parsed_net *f, int64_t i)
{
    const float *token = top(f, "tokens") + i * T, *next = top(f, "next") + i * T;
    const float *position = top(f, "positions") + i * T, *segment = top(f, "segments") + i * T;
    int64_t w = -1, at = 0, number = 0;

    for (int64_t k = 0; k < WINDOWS; k++) {
        bool same = true;

        for (int64_t t = 0; t < T; t++) same = same && (token[t] == (float)id_at(k * T + t));
        if (same) w = k;
    }
    assert_true(w >= 0);
    for (int64_t t = 0; t < T; t++) {
        assert_true(next[t] == (float)id_at(w * T + t + 1));
        assert_true(position[t] == (float)at++);
        assert_true(segment[t] == (float)number);
        if (token[t] == 5.0f) {
            at = 0;
            number++;
        }
    }
    return w;
}

/* Windows of global places [0, steps x GLOBAL), however many ranks there are. */
static void collect(ct_phase phase, uint64_t seed, int n_rank, int steps, int64_t *window)
{
    char fields[512];

    snprintf(fields, sizeof(fields), "source: \"%s\" batch_size: %d seq_len: %d end_token: 5",
             test_path(&folder, "t.bin"), GLOBAL / n_rank, T);
    for (int r = 0; r < n_rank; r++) {
        ct_net_env env = { .rank = r, .n_rank = n_rank, .seed = seed };
        parsed_net f;

        if (phase == CT_TRAIN) env.global_batch_size = GLOBAL;
        assert_int_equal(open_net(&f, fields, phase, &env), CT_OK);
        assert_int_equal(f.net->n_sample, WINDOWS);
        assert_int_equal(f.net->batch_axis, 0);
        for (int step = steps - 1; step >= 0; step--) { /* any order */
            f.net->pass->exec.micro_step = step;
            f.net->pass->exec.seed = seed;
            assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
            for (int64_t i = 0; i < f.net->batch_local; i++)
                window[step * GLOBAL + f.net->batch_first + i] = check_row(&f, i);
        }
        parsed_net_close(&f);
    }
}

static void test_epochs(void **state)
{
    enum { STEPS = 2 * WINDOWS / GLOBAL };
    int64_t one[STEPS * GLOBAL], some[STEPS * GLOBAL], other[STEPS * GLOBAL];

    (void)state;
    assert_int_equal(WINDOWS % GLOBAL, 0);
    write_tokens(COUNT);
    collect(CT_TRAIN, 3, 1, STEPS, one);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[WINDOWS] = { 0 };

        for (int i = 0; i < WINDOWS; i++) seen[one[epoch * WINDOWS + i]]++;
        for (int i = 0; i < WINDOWS; i++) assert_int_equal(seen[i], 1);
    }
    assert_memory_not_equal(one, one + WINDOWS, WINDOWS * sizeof(*one)); /* another order */
    collect(CT_TRAIN, 4, 1, STEPS, other);
    assert_memory_not_equal(one, other, sizeof(one));
    for (int n = 2; n <= 4; n++) {
        collect(CT_TRAIN, 3, n, STEPS, some);
        assert_memory_equal(one, some, sizeof(one));
    }
    collect(CT_TEST, 3, 1, STEPS, one);
    for (int i = 0; i < STEPS * GLOBAL; i++) assert_int_equal(one[i], i % WINDOWS);
}

/* 4 000 tokens, 30 % hidden: 8 standard deviations around what is expected. */
static void test_masks(void **state)
{
    enum { N = 4000 / T };
    ct_net_env env = { .n_rank = 1, .seed = 9 };
    int64_t hidden = 0, stand = 0, same = 0;
    float first[N * T];
    char fields[512];
    parsed_net f;

    (void)state;
    snprintf(fields, sizeof(fields),
             "source: \"%s\" batch_size: %d seq_len: %d vocabulary: 30000 mask_ratio: 0.3 "
             "mask_token: 29999",
             write_tokens(4000), N, T);
    assert_int_equal(open_net(&f, fields, CT_TEST, &env), CT_OK);
    assert_int_equal(f.net->n_sample, N);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    for (int i = 0; i < N * T; i++) {
        float token = top(&f, "tokens")[i], next = top(&f, "next")[i];

        if (next < 0.0f) {
            assert_true(next == -1.0f);
            assert_true(token == (float)id_at(i));
            continue;
        }
        hidden++;
        assert_true(next == (float)id_at(i));
        stand += token == 29999.0f;
        same += token == next;
    }
    assert_in_range(hidden, (int)(0.3 * N * T) - 232, (int)(0.3 * N * T) + 232);
    assert_in_range(stand, (int)(0.24 * N * T) - 216, (int)(0.24 * N * T) + 216);
    assert_in_range(same, (int)(0.03 * N * T) - 87, (int)(0.03 * N * T) + 87);
    memcpy(first, top(&f, "tokens"), sizeof(first));
    parsed_net_close(&f);
    env.seed = 10; /* tests hide the same, whatever the seed */
    assert_int_equal(open_net(&f, fields, CT_TEST, &env), CT_OK);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    assert_memory_equal(first, top(&f, "tokens"), sizeof(first));
    parsed_net_close(&f);
}

static void test_made_up(void **state)
{
    ct_net_env env = { .n_rank = 1, .synthetic = true, .synthetic_batch = 5, .seed = 4 };
    parsed_net f;

    (void)state;
    assert_int_equal(
        open_net(&f, "source: \"no.bin\" batch_size: 2 seq_len: 3 vocabulary: 4", CT_TRAIN, &env),
        CT_OK);
    assert_int_equal(f.net->batch_local, 5);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    for (int i = 0; i < 5 * T; i++) {
        assert_in_range((int)top(&f, "tokens")[i], 0, 3);
        if (i % T > 0) assert_true(top(&f, "tokens")[i] == top(&f, "next")[i - 1]);
    }
    parsed_net_close(&f);
}

static void refused(const char *fields, ct_status want, const char *part)
{
    ct_net_env env = { .n_rank = 1 };
    const char *said;
    parsed_net f;
    ct_status status;

    test_log_start();
    status = open_net(&f, fields, CT_TRAIN, &env);
    said = test_log_stop();
    if ((status != want) || (strstr(said, part) == NULL))
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
    ct__net_parameter__free_unpacked(f.param, NULL);
}

static void test_refused(void **state)
{
    const char *path = write_tokens(COUNT);
    ct_net_env env = { .n_rank = 1 };
    char fields[512];
    parsed_net f;

    (void)state;
    refused("batch_size: 2 seq_len: 3", CT_ERR_CONFIG, "source is not set");
    refused("source: \"no/such.bin\" batch_size: 2 seq_len: 3", CT_ERR_IO, "no/such.bin");
    refused("source: \"x\" seq_len: 3", CT_ERR_CONFIG, "batch_size, the windows, is 0");
    refused("source: \"x\" batch_size: 2", CT_ERR_CONFIG, "seq_len, the tokens of a window");
    refused("source: \"x\" batch_size: 2 seq_len: 3 mask_ratio: 1.5", CT_ERR_CONFIG,
            "mask_ratio is 1.5");
    refused("source: \"x\" batch_size: 2 seq_len: 3 mask_ratio: 0.5", CT_ERR_CONFIG,
            "mask_ratio needs mask_token and vocabulary");
    refused("source: \"x\" batch_size: 2 seq_len: 3 mask_ratio: 0.5 mask_token: 9 vocabulary: 9",
            CT_ERR_CONFIG, "mask_token is 9, vocabulary is 9");
    refused("source: \"x\" batch_size: 2 seq_len: 3 end_token: 9 vocabulary: 9", CT_ERR_CONFIG,
            "end_token is 9, vocabulary is 9");
    snprintf(fields, sizeof(fields), "source: \"%s\" batch_size: 2 seq_len: 64", path);
    refused(fields, CT_ERR_CONFIG, "too few for a window of 64 and the next one");
    /* what is found only when it is read */
    snprintf(fields, sizeof(fields), "source: \"%s\" batch_size: 1 seq_len: 3 vocabulary: 9", path);
    assert_int_equal(open_net(&f, fields, CT_TEST, &env), CT_OK);
    f.net->pass->exec.micro_step = 1;
    test_log_start();
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "token 0 of window 1 is 22, vocabulary is 9"));
    parsed_net_close(&f);
}

/* ---- an Embed that takes fewer ids than there may be */

static void embed_refused(const char *fields, const char *more, ct_phase phase, bool no_data,
                          const char *part)
{
    ct_net_env env = { .n_rank = 1, .no_data = no_data };
    char text[1024];
    const char *said;
    parsed_net f;
    ct_status status;

    snprintf(text, sizeof(text),
             "layer { name: \"data\" type: \"TokenData\" top: \"tokens\" token_data_param { "
             "batch_size: 2 seq_len: 3 source: \"%s\" %s } } layer { name: \"wte\" type: \"Embed\" "
             "bottom: \"tokens\" top: \"x\" embed_param { input_dim: 255 num_output: 2 } } %s",
             no_data ? "none.bin" : test_path(&folder, "t.bin"), fields, more);
    test_log_start();
    status = parsed_net_open(text, phase, &env, &f);
    said = test_log_stop();
    if ((status != CT_ERR_CONFIG) || (strstr(said, part) == NULL))
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
    ct__net_parameter__free_unpacked(f.param, NULL);
}

static void test_ids_of_embed(void **state)
{
    static const char again[] = "layer { name: \"two\" type: \"Embed\" bottom: \"tokens\" "
                                "top: \"y\" embed_param { input_dim: 256 num_output: 2 } }";
    static const char says[] = "layer \"wte\" (Embed): bottom \"tokens";

    (void)state;
    write_tokens(COUNT);
    embed_refused("tokenizer: \"bytes\"", "", CT_TEST, false, says);
    embed_refused("tokenizer: \"bytes\"", "", CT_TRAIN, false, says);
    embed_refused("tokenizer: \"bytes\"", "", CT_TRAIN, true, says);     /* `check` without data */
    embed_refused("tokenizer: \"bytes\"", again, CT_TRAIN, false, says); /* behind a Split */
    embed_refused("vocabulary: 300 tokenizer: \"bytes\"", "", CT_TRAIN, false,
                  "has ids below 300, embed_param.input_dim is 255");
    embed_refused("vocabulary: 255 tokenizer: \"bytes\"", "", CT_TRAIN, false,
                  "tokenizer bytes has 256 ids, vocabulary is 255");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),       cmocka_unit_test(test_masks),
        cmocka_unit_test(test_made_up),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ids_of_embed),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
