/* A request gets the same bytes alone and within any batch, however its tokens are cut into passes:
 * embeddings and the scores of texts that grow, f32 and bf16, through what the server calls.
 * Batches are drawn by a fixed seed. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

#include "framework/base/rng.h"
#include "serve/net/token_model.h"
#include "serve/net/deployed.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAUSS                                                                                      \
    " weight_filler { type: 'gaussian' std: 0.1 } bias_filler { type: 'gaussian' std: 0.1 } "
#define FC(name, bottom, n, more)                                                                  \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name               \
    "' inner_product_param { num_output: " n " axis: 2" GAUSS "} " more " }\n"
#define SUM(name, a, b)                                                                            \
    "layer { name: '" name "' type: 'Eltwise' bottom: '" a "' bottom: '" b "' top: '" name "' }\n"
/* products with sums of 96 and of 700 terms, longer than a piece of one */
#define BODY(mask, attention, more)                                                                \
    "layer { name: 'wte' type: 'Embed' bottom: 'tokens' top: 'x' embed_param { input_dim: 257 "    \
    "num_output: 96 bias_term: false weight_filler { type: 'gaussian' std: 1 } } }\n" FC(          \
        "qkv", "x", "288",                                                                         \
        more) "layer { name: 'attn' type: 'Attention' bottom: 'qkv' " mask                         \
              " top: 'attn' attention_param { num_heads: 4 " attention " } }\n" SUM(               \
                  "y", "x", "attn") "layer { name: 'ln' type: 'LayerNorm' bottom: 'y' top: 'ln' "  \
                                    "}\n" FC("up", "ln", "700",                                    \
                                             "") "layer { name: 'gelu' type: 'GELU' bottom: 'up' " \
                                                 "top: 'up' }\n" FC("down", "up", "96", "")        \
                                                     SUM("z", "y", "down")

static const char embeds[] =
    "name: 'embeds' layer { name: 'in' type: 'Input' top: 'tokens' top: 'mask' input_param { "
    "shape { dim: 1 dim: 200 } shape { dim: 1 dim: 200 } } }\n" BODY(
        "bottom: 'mask'", "",
        "") "layer { name: 'row' type: 'Reshape' bottom: 'mask' top: 'row' reshape_param { shape { "
            "dim: 0 "
            "dim: 1 dim: -1 } } }\n"
            "layer { name: 'pool' type: 'MatMul' bottom: 'row' bottom: 'z' top: 'pool' }\n";
#define TEXTS(more)                                                                                \
    "name: 'texts' layer { name: 'in' type: 'Input' top: 'tokens' input_param { shape { dim: 1 "   \
    "dim: 200 } } }\n" BODY("", "causal: true rope { }", more) FC("head", "z", "257", "")
static const char texts[] = TEXTS("");
static const char blas[] = TEXTS("ct_kernel { forward: 'blas' }");

enum { N = 12, LONGEST = 190, MOST = 600, COLUMNS = 96, IDS = 257, N_BATCH = 12 };
static const int64_t length[N] = { 1, 2, 3, 7, 16, 17, 31, 64, 65, 100, 129, LONGEST };

static int32_t ids[N][LONGEST];

static uint64_t draw(uint64_t *at, uint64_t below)
{
    return ct_rng_key(11, (*at)++, 0) % below;
}

static ct_status try_open(const char *text, bool bf16, ct_deployed **s_p)
{
    const char *path = "net.prototxt";
    ct_deployed_options o = {
        .model = path, .most_tokens = MOST, .bf16 = bf16, .deterministic = true
    };
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    o.cache_bytes = 8e6;
    return ct_deployed_open(&o, s_p);
}

static ct_deployed *open_served(const char *text, bool bf16)
{
    ct_deployed *s;

    assert_int_equal(try_open(text, bf16, &s), CT_OK);
    return s;
}

static void embed(const ct_served_model *m, const int *which, int n, float (*row)[COLUMNS])
{
    ct_work work[N], *list[N];

    for (int i = 0; i < n; i++) {
        work[i] = (ct_work){ .kind = CT_WORK_EMBED,
                             .ids = { .id = ids[which[i]], .n = length[which[i]] },
                             .row = row[i] };
        list[i] = &work[i];
    }
    assert_int_equal(m->embed(m->ctx, list, n), CT_OK);
}

static void check_embeddings(bool bf16)
{
    static float alone[N][COLUMNS], row[N][COLUMNS];
    ct_deployed *s = open_served(embeds, bf16);
    const ct_served_model *m;
    ct_token_model *model;
    uint64_t at = 0;

    assert_int_equal(ct_token_model_create(ct_deployed_net(s), NULL, "m", &model), CT_OK);
    m = ct_token_model_served(model);
    assert_int_equal(m->embedding_size, COLUMNS);
    for (int k = 0; k < N; k++) embed(m, &k, 1, &alone[k]);
    for (int b = 0; b < N_BATCH; b++) {
        int which[N], n = 0, most = 1 + (int)draw(&at, N);
        int64_t tokens = 0;

        while (n < most) {
            int k = (int)draw(&at, N);

            if (tokens + length[k] > MOST) break;
            tokens += length[k];
            which[n++] = k;
        }
        if (n == 0) continue;
        embed(m, which, n, row);
        for (int i = 0; i < n; i++) assert_memory_equal(row[i], alone[which[i]], sizeof(row[i]));
    }
    ct_token_model_destroy(model);
    ct_deployed_close(s);
}

/* The scores behind the last token of each, in batches of random chunks of random ones. */
static void grow_all(const ct_served_model *m, bool one, uint64_t at, float (*score)[IDS])
{
    void *sequence[N];
    int64_t has[N] = { 0 }, kept;
    int left = N;

    for (int k = 0; k < N; k++) {
        assert_int_equal(m->open(m->ctx, ids[k], length[k], length[k] + 1, &sequence[k], &kept),
                         CT_OK);
        assert_non_null(sequence[k]);
        has[k] = kept;
    }
    while (left > 0) {
        ct_work_piece piece[N];
        int of[N] = { 0 }, n = 0;
        int64_t room = MOST;

        for (int k = 0; k < N; k++) {
            int64_t rest = length[k] - has[k], some = rest;

            if ((rest == 0) || (one && (n > 0)) || (!one && (draw(&at, 3) == 0))) continue;
            if (!one) some = 1 + (int64_t)draw(&at, (uint64_t)rest);
            if (some > room) continue;
            room -= some;
            of[n] = k;
            piece[n++] = (ct_work_piece){
                .sequence = sequence[k], .id = ids[k] + has[k], .n = some, .wants = (some == rest)
            };
        }
        if (n == 0) continue;
        assert_int_equal(m->grow(m->ctx, piece, n), CT_OK);
        for (int i = 0; i < n; i++) {
            assert_false(piece[i].failed);
            has[of[i]] += piece[i].n;
            if (!piece[i].wants) continue;
            memcpy(score[of[i]], piece[i].score, sizeof(score[0]));
            left--;
        }
    }
    for (int k = 0; k < N; k++) m->close(m->ctx, sequence[k]);
}

static void check_texts(bool bf16)
{
    static float alone[N][IDS], beside[N][IDS];
    ct_deployed *s = open_served(texts, bf16);
    const ct_served_model *m;
    ct_tokenizer *bytes;
    ct_token_model *model;

    assert_int_equal(ct_tokenizer_open("bytes", NULL, &bytes), CT_OK);
    assert_int_equal(ct_token_model_create(ct_deployed_net(s), bytes, "m", &model), CT_OK);
    m = ct_token_model_served(model);
    assert_true(m->most_context > LONGEST);
    grow_all(m, true, 0, alone);
    for (int round = 0; round < 3; round++) {
        grow_all(m, false, (uint64_t)(1000 * round), beside);
        assert_memory_equal(beside, alone, sizeof(alone));
    }
    ct_token_model_destroy(model);
    ct_tokenizer_close(bytes);
    ct_deployed_close(s);
}

static void check_all(void)
{
    int before = omp_get_max_threads();

    for (int n_thread = 1; n_thread <= 3; n_thread += 2) {
        omp_set_num_threads(n_thread);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            check_embeddings(bf16 != 0);
            check_texts(bf16 != 0);
        }
    }
    omp_set_num_threads(before);
}

static void same_bytes(void **state)
{
    (void)state;
    check_all();
}

/* Where BLAS would be taken, if rows were always as many. */
static void same_bytes_without_vectors(void **state)
{
    const char *own = getenv("CORTADO_SIMD");
    char before[32];

    (void)state;
    (void)snprintf(before, sizeof(before), "%s", (own != NULL) ? own : "");
    assert_int_equal(setenv("CORTADO_SIMD", "portable", 1), 0);
    check_all();
    assert_int_equal((own != NULL) ? setenv("CORTADO_SIMD", before, 1) : unsetenv("CORTADO_SIMD"),
                     0);
}

/* Padding counts in a pass, and no embedding and no infer sees it: the same bytes as without. */
static void padding_is_not_seen(void **state)
{
    static float alone[2][COLUMNS], row[2][COLUMNS];
    static const int which[] = { 3, 7 };
    float in[2 * 7];
    ct_deployed *s = open_served(embeds, false);
    ct_served_values input = { 2, { 2, 7 }, in }, output = { 0 };
    ct_work work[2], *list[] = { &work[0], &work[1] };
    const ct_served_model *m;
    ct_token_model *model;
    log_capture log;

    (void)state;
    assert_int_equal(ct_token_model_create(ct_deployed_net(s), NULL, "m", &model), CT_OK);
    m = ct_token_model_served(model);
    embed(m, which, 2, alone);
    for (int i = 0; i < 2; i++)
        work[i] = (ct_work){ .kind = CT_WORK_EMBED,
                             .ids = { .id = ids[which[i]], .n = length[which[i]] },
                             .padding = LONGEST - length[which[i]],
                             .row = row[i] };
    assert_int_equal(m->embed(m->ctx, list, 2), CT_OK);
    assert_memory_equal(row, alone, sizeof(row));
    for (int k = 0; k < 14; k++) in[k] = (float)ids[3][k % 7];
    work[0] = (ct_work){
        .kind = CT_WORK_INFER, .padding = MOST - 14, .input = &input, .output = &output
    };
    assert_int_equal(m->infer(m->ctx, list, 1), CT_OK);
    assert_memory_equal(output.data, output.data + COLUMNS, COLUMNS * sizeof(float));
    free(output.data);
    work[0].padding++;
    log_capture_start(&log);
    assert_int_equal(m->infer(m->ctx, list, 1), CT_ERR_ARG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "601 tokens"));
    ct_token_model_destroy(model);
    ct_deployed_close(s);
}

/* BLAS may add up otherwise where there are other rows. */
static void engines_are_refused(void **state)
{
    log_capture log;
    ct_deployed *s = NULL;
    ct_status status;

    (void)state;
    log_capture_start(&log);
    status = try_open(blas, false, &s);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_null(s);
    assert_non_null(strstr(log.error, "layer \"qkv\""));
    assert_non_null(strstr(log.error, "its sums hang on how many rows run together"));
}

/* Planned for fewer tokens it takes less, and what is planned for all is what the net has. */
static void plans_are_the_nets(void **state)
{
    ct_deployed *s = open_served(texts, false);
    const ct_memory *m = &ct_packed_net_of(ct_deployed_net(s))->memory;
    ct_deployed_options o = { .model = "net.prototxt" };
    size_t all = 0, few = 0;

    (void)state;
    assert_int_equal(ct_deployed_plan(&o, MOST, &all), CT_OK);
    assert_int_equal(all, m->planned - m->lasting);
    assert_int_equal(ct_deployed_plan(&o, MOST / 4, &few), CT_OK);
    assert_true((few > all / 4) && (few < all)); /* some buffers are a thread's */
    ct_deployed_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),          cmocka_unit_test(same_bytes_without_vectors),
        cmocka_unit_test(padding_is_not_seen), cmocka_unit_test(engines_are_refused),
        cmocka_unit_test(plans_are_the_nets),
    };
    char folder[] = "/tmp/cortado-model.XXXXXX", command[64];
    int failed;

    for (int k = 0; k < N; k++)
        for (int i = 0; i < LONGEST; i++) ids[k][i] = (int32_t)((i * i + 31 * k + i / 3) % 256);
    if ((mkdtemp(folder) == NULL) || (chdir(folder) != 0)) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    return ((system(command) != 0) || (failed != 0)) ? 1 : 0;
}
