/* Mutated nets and solvers: whatever the bytes, the reader neither crashes nor lets pass what does
 * not round-trip, and each failure is one error. The mutations are drawn from a fixed seed. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "tests/fuzz/prototxt_once.h"
#include "tests/log_capture.h"

enum { N_RUN = 20000, MAX_SIZE = 2048 };

static const char *const seed_text[] = {
    "name: \"LeNet\" # a comment\nlayer {\n  name: \"data\" type: \"Data\" top: \"data\"\n"
    "  include { phase: TRAIN stage: ['a', \"b\"] }\n  transform_param { scale: 0.00390625 "
    "mean_value: [104, 117.5e0, 1.f] }\n  data_param { source: \"a\\n\\001\\x41\" 'b' batch_size: "
    "0x40 backend: LMDB }\n}\nlayer < name: \"conv1\" type: \"Convolution\" bottom: \"data\" top: "
    "\"conv1\" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: -inf } convolution_param: { "
    "num_output: 20, kernel_size: [5, 3]; weight_filler { type: \"xavier\" } } >\n",
    "input: 'data' input_dim: [1, 3, 4, 4]\nlayers { name: 'c' type: CONVOLUTION blobs_lr: 1 "
    "blobs_lr: 2 weight_decay: [1, 0] bottom: 'data' top: 'c' convolution_param { num_output: 017 "
    "} }\nlayers { name: 'd' type: DATA data_param { scale: .5 mirror: true mean_file: 'm' } "
    "include { phase: 1 } }\nlayers { layer { name: 'v0' } }",
    "input: 'x' input_shape { dim: 1 dim: -1 } state { phase: TEST level: -3 } layer { type: "
    "'Clip' clip_param { min: -1 max: 6 } } layer { type: 'BatchNorm' param { } param { } param { "
    "} blobs { shape { dim: [2] } data: [nan, 1e-45, -0] double_data: 1e300 } }",
    "layer { name: 'in' type: 'Input' top: 'x' top: 's' } repeat { count: 3 prefix: 'h%d_' bottom: "
    "'x' top: 'x' layer { name: 'a' bottom: 'x' bottom: 's' top: 'y' param { name: 'w' } } repeat {"
    " count: 2 prefix: 'i%d' bottom: 'y' top: 'x' layer { bottom: 'y' top: 'x' include { phase: "
    "TEST } } } } layer { name: 'h1_b' type: 'ReLU' bottom: 'x' top: 'x' }",
    "net: \"a.prototxt\"\ntest_iter: 100\ntest_interval: 500\nbase_lr: 0.01\nmomentum: 0.9\n"
    "lr_policy: \"inv\"\ngamma: 1e-4 power: .75 stepvalue: [1, 2] random_seed: "
    "-9223372036854775808\nsolver_mode: CPU comm { allreduce: 'ring' bucket_mb: 4 } compression { "
    "type: TOPK density: 0.01 } test_state { stage: 'x' }",
};
enum { N_SEED = sizeof(seed_text) / sizeof(seed_text[0]), SOLVER = N_SEED - 1 };

static const char *const snippet[] = { "{",
                                       "}",
                                       "<",
                                       ">",
                                       "[",
                                       "]",
                                       ":",
                                       ",",
                                       ";",
                                       "\"",
                                       "'",
                                       "\\",
                                       "#",
                                       "\n",
                                       "\r\n",
                                       "-",
                                       "0x",
                                       "1e999",
                                       "nan",
                                       "layer {",
                                       "inf",
                                       "\\777",
                                       "type: ",
                                       "layers {",
                                       "repeat {",
                                       "count: 2",
                                       "%d",
                                       "\xEF\xBB\xBF",
                                       "[1, 2]",
                                       "true",
                                       "name: 'x'",
                                       "\\u20ac",
                                       "input: 'y' ",
                                       ".",
                                       "99999999999999999999",
                                       "input_dim: 3 " };

typedef struct source {
    uint64_t key, counter;
} source;

static uint32_t draw(source *s, uint32_t n)
{
    return ct_rng_philox(s->key, 0, s->counter++).v[0] % n;
}

/* Replaces text[at..at + cut) by n bytes. */
static size_t splice(char *text, size_t size, size_t at, size_t cut, const char *bytes, size_t n)
{
    if (size - cut + n > MAX_SIZE) return size;
    memmove(text + at + n, text + at + cut, size - at - cut);
    memcpy(text + at, bytes, n);
    return size - cut + n;
}

static size_t mutate(source *s, char *text, size_t size)
{
    size_t at = draw(s, (uint32_t)size + 1), cut = 0;
    const char *other;
    char byte;

    switch (draw(s, 9)) {
    case 0: /* any byte */
        byte = (char)draw(s, 256);
        return splice(text, size, at, at < size, &byte, 1);
    case 1: /* something of the grammar */
        other = snippet[draw(s, sizeof(snippet) / sizeof(snippet[0]))];
        return splice(text, size, at, 0, other, strlen(other));
    case 2: /* a piece away */
        cut = draw(s, 40);
        return splice(text, size, at, (cut < size - at) ? cut : size - at, "", 0);
    case 3: /* the end away */
        return (draw(s, 4) == 0) ? at : size;
    case 4: /* a piece of another text */
        other = seed_text[draw(s, N_SEED)];
        cut = draw(s, (uint32_t)strlen(other));
        return splice(text, size, at, 0, other + cut, strnlen(other + cut, draw(s, 60)));
    case 5: /* white space, a comment */
        return splice(text, size, at, 0, " # x\n\t", 1 + draw(s, 6));
    case 6: /* another digit for a digit: most of these still read */
    case 7:
        while ((at < size) && ((text[at] < '0') || (text[at] > '9'))) at++;
        if (at < size) text[at] = (char)('0' + draw(s, 10));
        return size;
    default: /* a bit */
        if (at < size) text[at] ^= (char)(1 << draw(s, 8));
        return size;
    }
}

static void mutated_texts(void **state)
{
    int n_good = 0;

    (void)state;
    for (int i = 0; i < N_RUN; i++) {
        source s = { ct_rng_key(2024, (uint64_t)i, 0), 0 };
        int seed = i % N_SEED, n_mutation = 1 + (int)draw(&s, 3);
        char text[MAX_SIZE + 1], *exact;
        size_t size = strlen(seed_text[seed]);
        const char *wrong;
        log_capture c;
        bool is_good;

        memcpy(text, seed_text[seed], size);
        for (int k = 0; k < n_mutation; k++) size = mutate(&s, text, size);
        exact = malloc((size > 0) ? size : 1); /* so that a read beyond it is seen */
        assert_non_null(exact);
        memcpy(exact, text, size);
        log_capture_start(&c);
        wrong = prototxt_once(exact, size, seed == SOLVER, &is_good);
        log_capture_stop();
        if (wrong != NULL) {
            fail_msg("%s, last error %s, run %d:\n%.*s", wrong, c.error, i, (int)size, text);
        }
        n_good += is_good;
        free(exact);
    }
    print_message("%d of %d texts read\n", n_good, (int)N_RUN);
    assert_in_range(n_good, N_RUN / 20, N_RUN - N_RUN / 20);
}

/* The seeds read as they stand. */
static void seeds(void **state)
{
    (void)state;
    for (int i = 0; i < N_SEED; i++) {
        const char *wrong;
        log_capture c;
        bool is_good;

        log_capture_start(&c);
        wrong = prototxt_once(seed_text[i], strlen(seed_text[i]), i == SOLVER, &is_good);
        log_capture_stop();
        assert_null(wrong);
        assert_true(is_good);
    }
}

int main(void)
{
    const struct CMUnitTest test[] = { cmocka_unit_test(seeds), cmocka_unit_test(mutated_texts) };

    return cmocka_run_group_tests(test, NULL, NULL);
}
