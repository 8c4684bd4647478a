/* GGUF's container: keys, values of all types, tensors and where they lie; what is refused; cut and
 * altered files. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/gguf.h"
#include "framework/base/rng.h"
#include "tests/data_files.h"
#include "tests/gguf_bytes.h"
#include "tests/log_capture.h"

static test_folder folder;
static const char *path;

static int setup(void **state)
{
    (void)state;
    test_folder_make(&folder);
    path = test_path(&folder, "x.gguf");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_folder_remove(&folder);
    return 0;
}

/* Values of every type; a tensor of f32 and one of Q8_0. */
static ct_text make_file(void)
{
    ct_text t = { 0 };
    float pi = 3.140625f;
    double e = -2.71875;
    uint64_t bits = 0;

    gguf_head(&t, 2, 9);
    gguf_key_text(&t, "name", "a model");
    gguf_key(&t, "small", CT_GGUF_I8);
    gguf_number(&t, (uint64_t)-7, 1);
    gguf_key(&t, "large", CT_GGUF_U64);
    gguf_number(&t, UINT64_MAX, 8);
    gguf_key(&t, "yes", CT_GGUF_BOOL);
    gguf_number(&t, 1, 1);
    gguf_key(&t, "pi", CT_GGUF_F32);
    memcpy(&bits, &pi, sizeof(pi));
    gguf_number(&t, bits, 4);
    gguf_key(&t, "e", CT_GGUF_F64);
    memcpy(&bits, &e, sizeof(e));
    gguf_number(&t, bits, 8);
    gguf_key_array(&t, "words", CT_GGUF_STRING, 3);
    gguf_string(&t, "one");
    gguf_string(&t, "");
    gguf_string(&t, "three");
    gguf_key_array(&t, "numbers", CT_GGUF_I32, 2);
    gguf_number(&t, 5, 4);
    gguf_number(&t, (uint64_t)-9, 4);
    gguf_key(&t, "general.alignment", CT_GGUF_U32);
    gguf_number(&t, 64, 4);
    gguf_tensor(&t, "w", 2, 3, CT_GGUF_DTYPE_F32, 0);
    gguf_tensor(&t, "q", 1, 64, CT_GGUF_DTYPE_Q8_0, 64);
    gguf_align(&t, 64);
    for (uint64_t i = 0; i < 24; i++) gguf_number(&t, i, 1);
    gguf_align(&t, 64);
    for (uint64_t i = 0; i < 68; i++) gguf_number(&t, 100 + i, 1);
    assert_false(t.failed);
    return t;
}

static void check_words(const ct_gguf *g)
{
    static const char *const want[] = { "one", "", "three" };
    const ct_gguf_value *v = ct_gguf_find(g, "words");
    const uint8_t *at = v->data;

    assert_int_equal(v->type, CT_GGUF_ARRAY);
    assert_int_equal(v->item, CT_GGUF_STRING);
    assert_int_equal(v->count, 3);
    for (int i = 0; i < 3; i++) {
        size_t n;
        const char *text = ct_gguf_next_string(&at, &n);

        assert_int_equal(n, strlen(want[i]));
        assert_memory_equal(text, want[i], n);
    }
}

static void check_numbers(const ct_gguf *g)
{
    int64_t i = 0;
    double d = 0;

    assert_true(ct_gguf_int(ct_gguf_find(g, "small"), 0, &i));
    assert_int_equal(i, -7);
    assert_true(ct_gguf_float(ct_gguf_find(g, "small"), 0, &d));
    assert_true(d == -7);
    assert_false(ct_gguf_int(ct_gguf_find(g, "large"), 0, &i));
    assert_true(ct_gguf_int(ct_gguf_find(g, "yes"), 0, &i));
    assert_int_equal(i, 1);
    assert_false(ct_gguf_int(ct_gguf_find(g, "pi"), 0, &i));
    assert_false(ct_gguf_int(ct_gguf_find(g, "name"), 0, &i));
    assert_false(ct_gguf_float(ct_gguf_find(g, "words"), 0, &d));
    assert_true(ct_gguf_float(ct_gguf_find(g, "pi"), 0, &d));
    assert_true(d == 3.140625);
    assert_true(ct_gguf_float(ct_gguf_find(g, "e"), 0, &d));
    assert_true(d == -2.71875);
    assert_true(ct_gguf_int(ct_gguf_find(g, "numbers"), 1, &i));
    assert_int_equal(i, -9);
    assert_null(ct_gguf_find(g, "none"));
}

static void check_tensors(const ct_gguf *g)
{
    const ct_gguf_tensor *w = ct_gguf_find_tensor(g, "w"), *q = ct_gguf_find_tensor(g, "q");

    assert_int_equal(w->n_dim, 2);
    assert_int_equal(w->dim[0], 3);
    assert_int_equal(w->dim[1], 2);
    assert_int_equal(w->dim[2], 1);
    assert_int_equal(w->count, 6);
    assert_int_equal(w->bytes, 24);
    assert_int_equal(w->data[23], 23);
    assert_int_equal(q->dtype, CT_GGUF_DTYPE_Q8_0);
    assert_int_equal(q->bytes, 68);
    assert_int_equal(q->data[0], 100);
    assert_int_equal(q->data[67], 167);
    assert_null(ct_gguf_find_tensor(g, "none"));
}

static void test_read(void **state)
{
    ct_text t = make_file();
    ct_gguf *g = NULL;
    char *name = NULL;

    (void)state;
    test_file_write(path, t.text, t.length);
    assert_true(ct_gguf_is(path));
    assert_int_equal(ct_gguf_open(path, &g), CT_OK);
    assert_int_equal(g->version, 3);
    assert_int_equal(g->n_value, 9);
    assert_int_equal(g->n_tensor, 2);
    check_words(g);
    check_numbers(g);
    check_tensors(g);
    assert_int_equal(ct_gguf_text(g, "name", &name), CT_OK);
    assert_string_equal(name, "a model");
    free(name);
    ct_gguf_close(g);
    ct_text_destroy(&t);
    test_file_text(path, "GGU");
    assert_false(ct_gguf_is(path));
}

/* Writes t, which is then emptied; it must be refused with one line that has the file and `why`. */
static void refuse(ct_text *t, const char *why)
{
    ct_gguf *g = NULL;
    log_capture log;

    test_file_write(path, t->text, t->length);
    ct_text_destroy(t);
    log_capture_start(&log);
    assert_int_equal(ct_status_exit_code(ct_gguf_open(path, &g)), 3);
    log_capture_stop();
    assert_int_equal(log.n_error, 1);
    if ((strstr(log.error, why) == NULL) || (strstr(log.error, "x.gguf") == NULL))
        fail_msg("\"%s\" has no \"%s\"", log.error, why);
}

static void test_refused_heads(void **state)
{
    ct_text t = { 0 };

    (void)state;
    ct_text_add(&t, "GGML and more");
    refuse(&t, "is no GGUF file");
    ct_text_add(&t, "GGUF");
    gguf_number(&t, 1, 4);
    refuse(&t, "GGUF of version 1; 2 and 3 are read");
    ct_text_add(&t, "GGUF");
    gguf_number(&t, 0x03000000, 4);
    refuse(&t, "as big-endian files have it");
    gguf_head(&t, 1ull << 62, 0);
    refuse(&t, "4611686018427387904 tensors do not fit");
    gguf_head(&t, 0, 1ull << 62);
    refuse(&t, "4611686018427387904 keys");
}

static void test_refused_values(void **state)
{
    ct_text t = { 0 };

    (void)state;
    gguf_head(&t, 0, 1);
    gguf_number(&t, 1ull << 62, 8);
    gguf_number(&t, 0, 8);
    refuse(&t, "ends within its head");
    gguf_head(&t, 0, 1);
    gguf_key(&t, "key", 13);
    gguf_number(&t, 0, 8);
    refuse(&t, "key has a value of unknown type 13");
    gguf_head(&t, 0, 1);
    gguf_key_array(&t, "nested", CT_GGUF_ARRAY, 1);
    refuse(&t, "nested is an array of arrays");
    gguf_head(&t, 0, 1);
    gguf_key_array(&t, "much", CT_GGUF_F64, 1ull << 61); /* times 8 is 0 */
    refuse(&t, "ends within much");
    gguf_head(&t, 0, 1);
    gguf_key_array(&t, "words", CT_GGUF_STRING, 1ull << 61);
    gguf_string(&t, "a");
    refuse(&t, "ends within words");
    gguf_head(&t, 0, 2);
    for (int i = 0; i < 2; i++) gguf_key_text(&t, "twin", "x");
    refuse(&t, "key twin is there twice");
    gguf_head(&t, 0, 2);
    gguf_key_text(&t, "good", "x");
    gguf_key_text(&t, "", "x");
    refuse(&t, "a key behind \"good\" is no name");
}

static void test_refused_tensors(void **state)
{
    ct_text t = { 0 };

    (void)state;
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1ll << 32, 1ll << 31, CT_GGUF_DTYPE_F32, 0);
    gguf_align(&t, 32);
    refuse(&t, "tensor w has dimension 4294967296");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1ll << 31, 1ll << 31, CT_GGUF_DTYPE_F32, 0); /* 2^64 bytes */
    gguf_align(&t, 32);
    gguf_number(&t, 0, 8);
    refuse(&t, "tensor w, 4611686018427387904 elements of F32, lies beyond the file's end");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1, 1, CT_GGUF_DTYPE_F32, 1ull << 63);
    gguf_align(&t, 32);
    gguf_number(&t, 0, 8);
    refuse(&t, "lies beyond");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1, 2, CT_GGUF_DTYPE_F32, 0);
    gguf_align(&t, 32);
    gguf_number(&t, 0, 7);
    refuse(&t, "lies beyond");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1, 1, 77, 32);
    gguf_align(&t, 32);
    refuse(&t, "elements of type 77, lies beyond");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1, 1, CT_GGUF_DTYPE_F32, 4);
    refuse(&t, "tensor w begins at 4, no multiple of 32");
    gguf_head(&t, 1, 0);
    gguf_tensor(&t, "w", 1, 33, CT_GGUF_DTYPE_Q8_0, 0);
    refuse(&t, "tensor w of Q8_0 has rows of 33, no multiple of its blocks of 32");
    gguf_head(&t, 1, 0);
    gguf_string(&t, "w");
    gguf_number(&t, 5, 4);
    gguf_number(&t, 0, 8);
    refuse(&t, "tensor w has 5 dimensions, 1 to 4");
    gguf_head(&t, 2, 0);
    for (int i = 0; i < 2; i++) gguf_tensor(&t, "w", 1, 1, CT_GGUF_DTYPE_F32, 0);
    refuse(&t, "tensor w is there twice");
}

static volatile uint64_t read_sum; /* so that nothing that is read is left out */

/* Whatever a damaged file has, it ends in one line, or in values that lie in the file. */
static void touch(const char *bytes, size_t n)
{
    ct_gguf *g = NULL;
    log_capture log;
    ct_status status;
    uint64_t sum = 0;

    test_file_write(path, bytes, n);
    log_capture_start(&log);
    status = ct_gguf_open(path, &g);
    log_capture_stop();
    if (status != CT_OK) {
        assert_int_equal(ct_status_exit_code(status), 3);
        assert_int_equal(log.n_error, 1);
        return;
    }
    for (int64_t i = 0; i < g->n_value; i++) {
        const ct_gguf_value *v = &g->value[i];
        const uint8_t *at = v->data;
        size_t length = 0;
        int64_t number;

        for (uint64_t k = 0; k < v->count; k++) {
            if (v->item != CT_GGUF_STRING) {
                sum ^= ct_gguf_int(v, k, &number) ? (uint64_t)number : 0;
            } else {
                const char *text = ct_gguf_next_string(&at, &length);

                for (size_t c = 0; c < length; c++) sum ^= (uint8_t)text[c];
            }
        }
        assert_in_range(at - g->map.data, 0, g->map.size);
    }
    for (int64_t i = 0; i < g->n_tensor; i++) {
        assert_in_range(g->tensor[i].data - g->map.data, 0, g->map.size - 1);
        for (uint64_t k = 0; k < g->tensor[i].bytes; k++) sum ^= g->tensor[i].data[k];
    }
    read_sum = sum;
    ct_gguf_close(g);
}

static void test_cut(void **state)
{
    ct_text t = make_file();

    (void)state;
    for (size_t n = 0; n < t.length; n++) {
        ct_gguf *g = NULL;
        log_capture log;

        test_file_write(path, t.text, n);
        log_capture_start(&log);
        assert_int_equal(ct_status_exit_code(ct_gguf_open(path, &g)), 3);
        log_capture_stop();
        assert_int_equal(log.n_error, 1);
    }
    ct_text_destroy(&t);
}

static void test_mutations(void **state)
{
    enum { N = 1500 };
    static const uint64_t numbers[] = { 0, 1, 8, 255, 1ull << 31, 1ull << 62, UINT64_MAX };
    ct_text t = make_file();
    char *bytes = malloc(t.length);

    (void)state;
    assert_non_null(bytes);
    for (uint32_t i = 0; i < N; i++) {
        ct_rng_block b = ct_rng_philox(17, 0, i);
        const uint32_t *r = b.v;
        size_t at;

        memcpy(bytes, t.text, t.length);
        at = r[0] % t.length;
        if (r[1] % 2 == 0) {
            bytes[at] = (char)r[2];
        } else {
            uint64_t v = numbers[r[2] % 7];
            size_t n = (t.length - at < 8) ? t.length - at : 8;

            memcpy(bytes + at, &v, n);
        }
        touch(bytes, t.length);
    }
    free(bytes);
    ct_text_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_refused_heads),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_mutations),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
