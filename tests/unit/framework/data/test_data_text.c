/* Text: the vocabulary, the file of words, and TextData as nets run it: which words a rank sees in
 * a step, against the definition; and what is refused. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/data/convert.h"
#include "framework/data/words.h"
#include "framework/net/net.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"

enum { WORDS = 101, KINDS = 97, STEPS = 3, GLOBAL = 7 };

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

/* ---- vocabulary */

static void add(ct_vocabulary *v, const char *word, int64_t count)
{
    assert_int_equal(ct_vocabulary_add(v, word, strlen(word), count), CT_OK);
}

static int find(const ct_vocabulary *v, const char *word)
{
    return (int)ct_vocabulary_find(v, word, strlen(word));
}

static void test_vocabulary(void **state)
{
    ct_vocabulary v = { 0 };
    char word[16];

    (void)state;
    assert_int_equal(find(&v, "a"), -1);
    for (int i = 0; i < 5000; i++) { /* grows several times */
        snprintf(word, sizeof(word), "w%d", i);
        add(&v, word, 2);
    }
    add(&v, "often", 9);
    add(&v, "w17", 1);
    add(&v, CT_WORD_UNKNOWN, 0);
    assert_int_equal(v.n, 5002);
    assert_int_equal(find(&v, "w4999"), 4999);
    assert_int_equal(ct_vocabulary_rank(&v, 5), CT_OK);
    assert_int_equal(v.n, 5); /* often, w17, w0, w1, <unk> */
    assert_int_equal(find(&v, "often"), 0);
    assert_int_equal(find(&v, "w17"), 1);
    assert_int_equal(find(&v, "w0"), 2);
    assert_int_equal(find(&v, "w1"), 3);
    assert_int_equal(find(&v, CT_WORD_UNKNOWN), 4);
    assert_int_equal(find(&v, "w10"), -1);
    ct_vocabulary_destroy(&v);
}

/* ---- conversion */

static void read_all(const char *path, int32_t *word, int64_t n, int64_t n_vocabulary)
{
    ct_words w;

    assert_int_equal(ct_words_open(path, "test", &w), CT_OK);
    assert_int_equal(w.count, n);
    assert_int_equal(w.n_vocabulary, n_vocabulary);
    assert_int_equal(ct_words_read(&w, "test", 0, n, word), CT_OK);
    ct_words_close(&w);
}

/* The rules: blanks of all kinds, empty lines, no newline at the end, order by frequency. */
static void test_convert(void **state)
{
    static const int32_t want[] = { 1, 1, 2, 0, 0, 3, 1, 0 };
    int32_t got[8];
    ct_convert_options o = { .from = test_path(&folder, "t.txt"),
                             .to = test_path(&folder, "t.h5") };

    (void)state;
    test_file_text(o.from, " b\tb  a\r\n\nc b ");
    assert_int_equal(ct_convert_text(&o), CT_OK);
    read_all(o.to, got, 8, 4);
    assert_memory_equal(got, want, sizeof(want));
    test_log_start();
    assert_int_equal(ct_convert_text(&o), CT_ERR_CONFIG); /* it is there */
    o.from = "/nonexistent/text";
    assert_int_equal(ct_convert_text(&o), CT_ERR_IO);
    test_log_stop();
}

static void test_two_texts(void **state)
{
    ct_convert_options o = { .from = test_path(&folder, "in"), .to = test_path(&folder, "out") };

    (void)state;
    assert_int_equal(mkdir(o.from, 0700), 0);
    test_file_text(test_path(&folder, "in/a.train.txt"), "a\n");
    test_file_text(test_path(&folder, "in/b.train.txt"), "b\n");
    test_log_start();
    assert_int_equal(ct_convert_text(&o), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "two texts for train"));
    assert_false(test_file_exists(o.to));
}

/* ---- TextData */

/* Word i of the text is i mod KINDS. */
static const char *write_words(void)
{
    const char *path = test_path(&folder, "numbers.h5");
    int32_t word[WORDS];
    char text[4 * KINDS + 1] = "";
    size_t n = 0;

    for (int i = 0; i < WORDS; i++) word[i] = i % KINDS;
    for (int i = 0; i < KINDS; i++) n += (size_t)snprintf(text + n, sizeof(text) - n, "%d\n", i);
    assert_int_equal(ct_words_write(path, word, WORDS, text, strlen(text)), CT_OK);
    return path;
}

static ct_status open_net(parsed_net *f, const char *fields, ct_phase phase, const ct_net_env *env)
{
    char text[1024];

    snprintf(text, sizeof(text),
             "layer { name: \"text\" type: \"TextData\" top: \"words\" top: \"cont\" top: \"next\" "
             "text_data_param { %s } }",
             fields);
    return parsed_net_open(text, phase, env, f);
}

static float value(const parsed_net *f, const char *name, int64_t t, int64_t c)
{
    const ct_blob *b = f->net->pass->blob[ct_net_find_blob(f->net, name)];

    assert_int_equal(b->data.shape.ndim, 2);
    assert_int_equal(b->data.shape.dim[0], STEPS);
    assert_int_equal(b->data.shape.dim[1], f->net->batch_local);
    return ct_blob_data(b)[t * f->net->batch_local + c];
}

static void check_rank(const char *fields, int rank, int n_rank)
{
    /* 101 words: 7 columns of 14, 4 steps an epoch */
    enum { LENGTH = (WORDS - 1) / GLOBAL, EPOCH = LENGTH / STEPS };
    ct_net_env env = { .rank = rank, .n_rank = n_rank, .global_batch_size = GLOBAL, .seed = 1 };
    static const int64_t order[] = { 0, 1, 2, 3, 4, 5, 9, 2, 4 * 1000003 };
    parsed_net f;

    assert_int_equal(open_net(&f, fields, CT_TRAIN, &env), CT_OK);
    assert_int_equal(f.net->batch_axis, 1);
    assert_int_equal(f.net->batch_global, GLOBAL);
    assert_int_equal(f.net->batch_first, rank * (GLOBAL / n_rank) +
                                             ((rank < GLOBAL % n_rank) ? rank : GLOBAL % n_rank));
    assert_int_equal(f.net->n_sample, EPOCH * GLOBAL);
    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
        f.net->pass->exec.micro_step = order[k];
        assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
        for (int64_t t = 0; t < STEPS; t++) {
            for (int64_t c = 0; c < f.net->batch_local; c++) {
                int64_t in_column = order[k] % EPOCH * STEPS + t;
                int64_t at = (f.net->batch_first + c) * LENGTH + in_column;

                assert_true(value(&f, "words", t, c) == (float)(at % KINDS));
                assert_true(value(&f, "next", t, c) == (float)((at + 1) % KINDS));
                assert_true(value(&f, "cont", t, c) == ((in_column == 0) ? 0.0f : 1.0f));
            }
        }
    }
    parsed_net_close(&f);
}

static void test_columns(void **state)
{
    char fields[512];

    (void)state;
    snprintf(fields, sizeof(fields), "source: \"%s\" batch_size: 2 steps: 3", write_words());
    for (int n = 1; n <= GLOBAL; n++)
        for (int r = 0; r < n; r++) check_rank(fields, r, n);
}

static void test_made_up(void **state)
{
    ct_net_env env = { .n_rank = 1, .synthetic = true, .synthetic_batch = 5, .seed = 4 };
    parsed_net f;

    (void)state;
    assert_int_equal(open_net(&f, "source: \"no.h5\" steps: 3 synthetic_words: 4", CT_TRAIN, &env),
                     CT_OK);
    assert_int_equal(f.net->batch_local, 5);
    f.net->pass->exec.micro_step = 3;
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    for (int64_t t = 0; t < STEPS; t++) {
        for (int64_t c = 0; c < 5; c++) {
            assert_in_range((int)value(&f, "words", t, c), 0, 3);
            assert_true(value(&f, "cont", t, c) == 1.0f);
            if (t > 0) assert_true(value(&f, "words", t, c) == value(&f, "next", t - 1, c));
        }
    }
    parsed_net_close(&f);
}

static void refused(const char *fields, const char *source, ct_status want, const char *part)
{
    ct_net_env env = { .n_rank = 1 };
    char text[512];
    const char *said;
    parsed_net f;
    ct_status status;

    snprintf(text, sizeof(text), fields, source);
    test_log_start();
    status = open_net(&f, text, CT_TRAIN, &env);
    said = test_log_stop();
    if ((status != want) || (strstr(said, part) == NULL))
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
    ct__net_parameter__free_unpacked(f.param, NULL);
}

static void test_refused(void **state)
{
    static const int32_t outside[] = { 0, 1, 2, 1, 0 };
    const char *good = write_words(), *bad = test_path(&folder, "bad.h5");
    const char *text = test_path(&folder, "plain.txt");

    (void)state;
    test_file_text(text, "not HDF5\n");
    refused("batch_size: 2%s", "", CT_ERR_CONFIG, "source is not set");
    refused("source: \"%s\" steps: 3", good, CT_ERR_CONFIG, "batch_size, the columns, is 0");
    refused("source: \"%s\" batch_size: 2 steps: 0", good, CT_ERR_CONFIG, "steps is 0");
    refused("source: \"%s\" batch_size: 2", "no/such.h5", CT_ERR_IO,
            "no/such.h5: No such file or directory; there is no folder no");
    refused("source: \"%s\" batch_size: 2", text, CT_ERR_IO, "is not an HDF5 file");
    refused("source: \"%s\" batch_size: 10 steps: 11", good, CT_ERR_CONFIG,
            "too few for 10 columns of 11 steps");
    assert_int_equal(ct_words_write(bad, outside, 5, "a\nb\n", 4), CT_OK);
    refused("source: \"%s\" batch_size: 1 steps: 2", bad, CT_ERR_DATA, "word 2 of " /* path */);
    assert_int_equal(ct_words_write(bad, outside, 5, "a", 1), CT_OK);
    refused("source: \"%s\" batch_size: 1 steps: 2", bad, CT_ERR_DATA, "empty vocabulary");
}

/* The real text, where there is one: the counts that everyone reports. */
static void test_penn_treebank(void **state)
{
    const char *data = getenv("TEST_DATA");
    char from[512];
    ct_convert_options o = { .from = from, .to = test_path(&folder, "ptb") };
    ct_words w;

    (void)state;
    snprintf(from, sizeof(from), "%s/ptb", (data != NULL) ? data : "");
    if ((data == NULL) || (access(from, R_OK) != 0)) {
        print_message("no TEST_DATA/ptb: left out\n");
        skip();
    }
    assert_int_equal(ct_convert_text(&o), CT_OK);
    assert_int_equal(ct_words_open(test_path(&folder, "ptb/train.h5"), "test", &w), CT_OK);
    assert_int_equal(w.count, 929589);
    assert_int_equal(w.n_vocabulary, 10000);
    ct_words_close(&w);
    assert_int_equal(ct_words_open(test_path(&folder, "ptb/valid.h5"), "test", &w), CT_OK);
    assert_int_equal(w.count, 73760);
    ct_words_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary),    cmocka_unit_test(test_convert),
        cmocka_unit_test(test_two_texts),     cmocka_unit_test(test_columns),
        cmocka_unit_test(test_made_up),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_penn_treebank),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
