/* Tokenizers on small files: ids by the rules done by hand, merges against the definition, texts of
 * any bytes, any number of threads, lists of words, hostile files, and files that were altered at
 * random. */
#include "tests/test.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/gguf.h"
#include "framework/base/rng.h"
#include "framework/text/token_table.h"
#include "framework/text/tokenizer.h"
#include "tests/data_files.h"
#include "tests/gguf_bytes.h"
#include "tests/log_capture.h"

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

static ct_tokenizer *open_file(const char *path, const char *pattern)
{
    ct_tokenizer *t = NULL;

    assert_int_equal(ct_tokenizer_open(path, pattern, &t), CT_OK);
    return t;
}

static void expect_ids(const ct_tokenizer *t, const char *text, bool special, const int32_t *want,
                       int64_t n)
{
    ct_ids ids = { 0 };

    assert_int_equal(ct_tokenizer_encode(t, text, strlen(text), special, "test", &ids), CT_OK);
    assert_int_equal(ids.n, n);
    if (n > 0) assert_memory_equal(ids.id, want, (size_t)n * sizeof(*want));
    ct_ids_destroy(&ids);
}

static void expect_back(const ct_tokenizer *t, const char *text, size_t n)
{
    ct_ids ids = { 0 };
    ct_text back = { 0 };

    assert_int_equal(ct_tokenizer_encode(t, text, n, false, "test", &ids), CT_OK);
    assert_int_equal(ct_tokenizer_decode(t, ids.id, ids.n, &back), CT_OK);
    assert_int_equal(back.length, n);
    if (n > 0) assert_memory_equal(back.text, text, n);
    ct_ids_destroy(&ids);
    ct_text_destroy(&back);
}

/* ---- merging against the definition: look for the lowest rank, join, again */

static int64_t merge_slowly(const ct_merges *m, int32_t *id, int64_t n)
{
    for (;;) {
        int64_t best = -1;
        int32_t rank = INT32_MAX, both = 0;

        for (int64_t i = 0; i + 1 < n; i++) {
            const struct ct_merge *merge = ct_merges_find(m, id[i], id[i + 1]);

            if ((merge == NULL) || (merge->rank >= rank)) continue;
            best = i;
            rank = merge->rank;
            both = merge->id;
        }
        if (best < 0) return n;
        id[best] = both;
        memmove(id + best + 1, id + best + 2, (size_t)(n - best - 2) * sizeof(*id));
        n--;
    }
}

static void test_merges(void **state)
{
    ct_merges m = { 0 };
    ct_merger w = { 0 };

    (void)state;
    for (uint32_t i = 0; i < 60; i++) { /* of 4 symbols, then of what came out */
        uint32_t word = ct_rng_philox(9, 1, i).v[0];

        assert_int_equal(ct_merges_add(&m, (int32_t)(word % (4 + i / 2)),
                                       (int32_t)((word >> 16) % (4 + i / 3)), (int32_t)i,
                                       (int32_t)(4 + i)),
                         CT_OK);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        int32_t fast[80], slow[80];
        int64_t n = (int64_t)(ct_rng_philox(9, 2, i).v[1] % 81), n_fast = -1;

        for (int64_t k = 0; k < n; k++)
            fast[k] = slow[k] = (int32_t)(ct_rng_philox(9, 3 + i, (uint64_t)k).v[0] % 4);
        assert_int_equal(ct_merger_run(&w, &m, fast, n, &n_fast), CT_OK);
        assert_int_equal(n_fast, merge_slowly(&m, slow, n));
        if (n_fast > 0) assert_memory_equal(fast, slow, (size_t)n_fast * sizeof(*fast));
    }
    ct_merger_destroy(&w);
    ct_merges_destroy(&m);
}

/* ---- tokenizer.json */

/* Letters a to e and a blank, two merges as strings and one as a pair, a special token, one that is
 * always looked for. */
static const char bpe_json[] =
    "{ \"added_tokens\": [\n"
    "  { \"id\": 10, \"content\": \"<end>\", \"special\": true, \"normalized\": false },\n"
    "  { \"id\": 11, \"content\": \"ee\", \"special\": false, \"single_word\": true },\n"
    "  { \"id\": 12, \"content\": \"<m>\", \"special\": true, \"lstrip\": true, \"rstrip\": true "
    "}],\n"
    "  \"normalizer\": null,\n"
    "  \"pre_tokenizer\": { \"type\": \"Sequence\", \"pretokenizers\": [\n"
    "    { \"type\": \"Digits\", \"individual_digits\": true },\n"
    "    { \"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true }] },\n"
    "  \"model\": { \"type\": \"BPE\", \"unk_token\": null, \"vocab\": { \"a\": 0, \"b\": 1, "
    "\"c\": 2,\n"
    "    \"d\": 3, \"e\": 4, \"\\u0120\": 5, \"ab\": 6, \"abc\": 7, \"\\u0120d\": 8, \"bc\": 9,\n"
    "    \"<\": 13, \"n\": 14, \">\": 15 },\n"
    "    \"merges\": [\"a b\", [\"ab\", \"c\"], \"\\u0120 d\", \"b c\"] } }\n";

static ct_tokenizer *open_json(const char *json)
{
    const char *path = test_path(&folder, "t.json");

    test_file_text(path, json);
    return open_file(path, NULL);
}

static void test_json(void **state)
{
    ct_tokenizer *t = open_json(bpe_json);
    int32_t id = -1;

    (void)state;
    assert_int_equal(ct_tokenizer_size(t), 16);
    expect_ids(t, "abcd", false, (const int32_t[]){ 7, 3 }, 2);
    expect_ids(t, "bca dd", false, (const int32_t[]){ 9, 0, 8, 3 }, 4);
    expect_ids(t, "ee", false, (const int32_t[]){ 11 }, 1);
    expect_ids(t, "aee", false, (const int32_t[]){ 0, 4, 4 }, 3); /* a single word alone */
    expect_ids(t, "<end>a", true, (const int32_t[]){ 10, 0 }, 2);
    expect_ids(t, "<end>a", false, (const int32_t[]){ 13, 4, 14, 3, 15, 0 }, 6);
    expect_ids(t, "a  <m>  b", true, (const int32_t[]){ 0, 12, 1 }, 3);
    expect_ids(t, "", false, NULL, 0);
    assert_int_equal(ct_tokenizer_n_special(t), 2);
    assert_string_equal(ct_tokenizer_special(t, 0, &id), "<end>");
    assert_int_equal(id, 10);
    assert_null(ct_tokenizer_special(t, 2, &id));
    assert_int_equal(ct_tokenizer_end(t), -1);
    ct_tokenizer_close(t);
    test_file_text(test_path(&folder, "tokenizer_config.json"), "{ \"eos_token\": \"<end>\" }");
    t = open_json(bpe_json);
    assert_int_equal(ct_tokenizer_end(t), 10);
    ct_tokenizer_close(t);
}

/* Random words of a and b, many of which begin with others, some twice, as added tokens; against
 * the definition: at each place the longest, of equal ones the one of the least id. */
static void test_added_alike(void **state)
{
    enum { WORDS = 80, LETTERS = 400 };
    char word[WORDS][10], text[LETTERS + 1];
    ct_text json = { 0 };

    (void)state;
    for (uint64_t round = 0; round < 20; round++) {
        int32_t want[LETTERS];
        int64_t n_want = 0;
        ct_tokenizer *t;

        json.length = 0;
        ct_text_add(&json, "{ \"added_tokens\": [");
        for (uint64_t i = 0; i < WORDS; i++) {
            uint32_t bits = ct_rng_philox(11, round, i).v[0];
            int n = 2 + (int)((bits >> 16) % 7);

            for (int k = 0; k < n; k++) word[i][k] = (bits >> k & 1) ? 'a' : 'b';
            word[i][n] = '\0';
            ct_text_add(&json, "%s{ \"id\": %d, \"content\": \"%s\" }", (i > 0) ? ", " : "",
                        100 + (int)i, word[i]);
        }
        ct_text_add(&json, "], \"pre_tokenizer\": { \"type\": \"ByteLevel\", "
                           "\"add_prefix_space\": false }, \"model\": { \"type\": \"BPE\", "
                           "\"vocab\": { \"a\": 0, \"b\": 1 }, \"merges\": [] } }");
        for (uint64_t k = 0; k < LETTERS; k++)
            text[k] = (ct_rng_philox(12, round, k).v[0] & 1) ? 'a' : 'b';
        text[LETTERS] = '\0';
        for (int at = 0; at < LETTERS;) {
            int best = -1;
            size_t longest = 0;

            for (int i = 0; i < WORDS; i++) {
                size_t n = strlen(word[i]);

                if ((n <= longest) || (strncmp(text + at, word[i], n) != 0)) continue;
                best = i;
                longest = n;
            }
            want[n_want++] = (best >= 0) ? 100 + best : (text[at] == 'b');
            at += (best >= 0) ? (int)longest : 1;
        }
        t = open_json(json.text);
        expect_ids(t, text, true, want, n_want);
        ct_tokenizer_close(t);
    }
    ct_text_destroy(&json);
}

/* A word of no bytes is a token that nothing is cut into. */
static void test_empty_word(void **state)
{
    ct_tokenizer *t = open_json("{ \"pre_tokenizer\": { \"type\": \"ByteLevel\", "
                                "\"add_prefix_space\": false }, \"model\": { \"type\": \"BPE\", "
                                "\"vocab\": { \"\": 0, \"a\": 1, \"b\": 2 }, \"merges\": [] } }");
    ct_text text = { 0 };

    (void)state;
    assert_int_equal(ct_tokenizer_size(t), 3);
    expect_ids(t, "ab", false, (const int32_t[]){ 1, 2 }, 2);
    assert_int_equal(ct_tokenizer_decode(t, (const int32_t[]){ 1, 0, 2 }, 3, &text), CT_OK);
    assert_string_equal(text.text, "ab");
    ct_text_destroy(&text);
    ct_tokenizer_close(t);
}

/* Tokens of the text as it is are found first, also where a longer one is looked for later. */
static void test_added_normalised(void **state)
{
    ct_tokenizer *t = open_json(
        "{ \"added_tokens\": [{ \"id\": 10, \"content\": \"ab\", \"normalized\": false },\n"
        "  { \"id\": 11, \"content\": \"abc\", \"normalized\": true }],\n"
        "  \"normalizer\": { \"type\": \"Lowercase\" },\n"
        "  \"pre_tokenizer\": { \"type\": \"ByteLevel\", \"add_prefix_space\": false },\n"
        "  \"model\": { \"type\": \"BPE\", \"vocab\": { \"a\": 0, \"b\": 1, \"c\": 2 }, "
        "\"merges\": "
        "[] } }");

    (void)state;
    expect_ids(t, "abc", true, (const int32_t[]){ 10, 2 }, 2);
    expect_ids(t, "aBc", true, (const int32_t[]){ 11 }, 1);
    ct_tokenizer_close(t);
}

static const char bert_json[] =
    "{ \"added_tokens\": [{ \"id\": 0, \"content\": \"[UNK]\", \"special\": true }],\n"
    "  \"normalizer\": { \"type\": \"BertNormalizer\", \"clean_text\": true,\n"
    "    \"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": true },\n"
    "  \"pre_tokenizer\": { \"type\": \"BertPreTokenizer\" },\n"
    "  \"model\": { \"type\": \"WordPiece\", \"unk_token\": \"[UNK]\",\n"
    "    \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 8,\n"
    "    \"vocab\": { \"[UNK]\": 0, \"na\": 1, \"##ive\": 2, \"##i\": 3, \"!\": 4, \"\\u6c49\": "
    "5,\n"
    "      \"\\u5b57\": 6, \"n\": 7, \"##a\": 8 } } }\n";

static void test_word_piece(void **state)
{
    ct_tokenizer *t = open_json(bert_json);
    ct_text back = { 0 };

    (void)state;
    expect_ids(t, "Na\u00cfve!", false, (const int32_t[]){ 1, 2, 4 }, 3);
    expect_ids(t, "nai nax", false, (const int32_t[]){ 1, 3, 0 }, 3); /* no half words */
    expect_ids(t, "\u6c49\u5b57", false, (const int32_t[]){ 5, 6 }, 2);
    expect_ids(t, "naaaaaaa naaaaaaaa", false, (const int32_t[]){ 1, 8, 8, 8, 8, 8, 8, 0 },
               8); /* 8 characters, and 9 */
    expect_ids(t, "\t\r\n \xff\x01", false, NULL, 0);
    assert_int_equal(ct_tokenizer_decode(t, (const int32_t[]){ 1, 2, 4, 7, 8 }, 5, &back), CT_OK);
    assert_string_equal(back.text, "naive ! na");
    assert_false(ct_tokenizer_is_exact(t));
    ct_text_destroy(&back);
    ct_tokenizer_close(t);
}

/* ---- ranks and GGUF: the 256 bytes, and two tokens more */

static void base64(const char *bytes, size_t n, ct_text *to)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;

        for (size_t k = 0; k < 3; k++) v = v << 8 | ((i + k < n) ? (uint8_t)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            ct_text_add(to, "%c", (i + k > n) ? '=' : digit[v >> (18 - 6 * k) & 63]);
    }
}

static ct_text make_ranks(void)
{
    ct_text t = { 0 };

    for (int i = 0; i < 258; i++) {
        char byte = (char)i;

        base64((i < 256)    ? &byte
               : (i == 256) ? "th"
                            : "the",
               (i < 256) ? 1 : (size_t)(i - 254), &t);
        ct_text_add(&t, " %d\n", i);
    }
    return t;
}

static void test_ranks(void **state)
{
    const char *path = test_path(&folder, "ranks");
    ct_text file = make_ranks();
    ct_tokenizer *t;

    (void)state;
    test_file_write(path, file.text, file.length);
    t = open_file(path, "cl100k");
    assert_int_equal(ct_tokenizer_size(t), 258);
    expect_ids(t, "the th\xff", false, (const int32_t[]){ 257, ' ', 256, 0xff }, 4);
    assert_true(ct_tokenizer_is_exact(t));
    assert_int_equal(ct_tokenizer_end(t), -1);
    ct_tokenizer_close(t);
    ct_text_destroy(&file);
}

/* The alphabet's order is that of the characters; a token for each byte would be long, so letters.
 */
static ct_text make_gguf(const char *pre)
{
    static const char *const token[] = { "a", "b", "1", "2", "\u0120", "ab", "12", "<eos>" };
    ct_text t = { 0 };

    gguf_head(&t, 0, 6);
    gguf_key_text(&t, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(&t, "tokenizer.ggml.pre", pre);
    gguf_key_array(&t, "tokenizer.ggml.tokens", CT_GGUF_STRING, 8);
    for (int i = 0; i < 8; i++) gguf_string(&t, token[i]);
    gguf_key_array(&t, "tokenizer.ggml.token_type", CT_GGUF_I32, 8);
    for (int i = 0; i < 8; i++) gguf_number(&t, (i == 7) ? 3 : 1, 4);
    gguf_key_array(&t, "tokenizer.ggml.merges", CT_GGUF_STRING, 2);
    gguf_string(&t, "a b");
    gguf_string(&t, "1 2");
    gguf_key(&t, "tokenizer.ggml.eos_token_id", CT_GGUF_U32);
    gguf_number(&t, 7, 4);
    return t;
}

static void test_gguf(void **state)
{
    const char *path = test_path(&folder, "v.gguf");
    ct_text file = make_gguf("smollm");
    ct_tokenizer *t;

    (void)state;
    test_file_write(path, file.text, file.length);
    t = open_file(path, NULL);
    expect_ids(t, "ab12 ab", false, (const int32_t[]){ 5, 2, 3, 4, 5 }, 5); /* digits alone */
    expect_ids(t, "a<eos>", true, (const int32_t[]){ 0, 7 }, 2);
    assert_int_equal(ct_tokenizer_end(t), 7);
    ct_tokenizer_close(t);
    ct_text_destroy(&file);
    file = make_gguf("gpt-2");
    test_file_write(path, file.text, file.length);
    t = open_file(path, NULL);
    expect_ids(t, "ab12", false, (const int32_t[]){ 5, 6 }, 2);
    ct_tokenizer_close(t);
    ct_text_destroy(&file);
}

/* ---- any bytes, any number of threads, long words */

static ct_tokenizer *train_one(void)
{
    ct_text text = { 0 };
    ct_tokenizer *t = NULL;

    for (uint64_t i = 0; i < 20000; i++) {
        static const char *const word[] = { "the ",           "sea", " was", "\n",
                                            " \u00e9t\u00e9", "12",  "'s",   "Wo" };

        ct_text_add(&text, "%s", word[ct_rng_philox(7, 0, i).v[0] % 8]);
    }
    assert_int_equal(ct_tokenizer_train(text.text, text.length, 300, &t), CT_OK);
    assert_int_equal(ct_tokenizer_size(t), 300);
    ct_text_destroy(&text);
    return t;
}

static void test_any_bytes(void **state)
{
    ct_tokenizer *t = train_one(), *b = open_file("bytes", NULL);
    uint32_t word[4096];

    (void)state;
    assert_true(ct_tokenizer_is_exact(t));
    for (uint64_t i = 0; i < 64; i++) {
        size_t n = ct_rng_philox(8, 1, i).v[0] % sizeof(word);

        ct_rng_words(i, 0, 4096, word);
        expect_back(t, (const char *)word, n);
        expect_back(b, (const char *)word, n);
    }
    ct_tokenizer_close(t);
    ct_tokenizer_close(b);
}

/* Chunks begin behind lines; the ids are those of the whole. The long word has no place to cut. */
static void test_threads(void **state)
{
    ct_tokenizer *t = train_one();
    ct_text text = { 0 };
    ct_ids one = { 0 }, three = { 0 };
    int before = omp_get_max_threads();

    (void)state;
    for (uint64_t i = 0; text.length < 3000000; i++) {
        static const char *const word[] = { "the", " ",    "\n",     "\n\n", "12",
                                            "'s",  " \n ", "\u6c49", "x" };

        ct_text_add(&text, "%s", word[ct_rng_philox(6, 0, i).v[0] % 9]);
    }
    for (int i = 0; i < 1000000; i++) ct_text_add_bytes(&text, &"the"[i % 3], 1);
    assert_false(text.failed);
    omp_set_num_threads(1);
    assert_int_equal(ct_tokenizer_encode(t, text.text, text.length, false, "test", &one), CT_OK);
    omp_set_num_threads(3);
    assert_int_equal(ct_tokenizer_encode(t, text.text, text.length, false, "test", &three), CT_OK);
    omp_set_num_threads(before);
    assert_int_equal(one.n, three.n);
    assert_memory_equal(one.id, three.id, (size_t)one.n * sizeof(*one.id));
    expect_back(t, text.text, text.length);
    ct_ids_destroy(&one);
    ct_ids_destroy(&three);
    ct_text_destroy(&text);
    ct_tokenizer_close(t);
}

/* What is written is read, with the same ids. */
static void test_written(void **state)
{
    static const char text[] = "the sea\n\u00e9t\u00e9 12\x01 \"quoted\\\"";
    const char *path = test_path(&folder, "written.json");
    ct_tokenizer *t = train_one(), *again;
    ct_named_text named = { .text = text, .source = "test", .n = strlen(text) };
    ct_ids a = { 0 }, b = { 0 };

    (void)state;
    for (int chars = 0; chars < 2; chars++) {
        if (chars == 1) assert_int_equal(ct_tokenizer_chars(&named, 1, &t), CT_OK);
        assert_int_equal(ct_tokenizer_write(t, path), CT_OK);
        again = open_file(path, NULL);
        a.n = b.n = 0;
        assert_int_equal(ct_tokenizer_size(again), ct_tokenizer_size(t));
        assert_int_equal(ct_tokenizer_end(again), ct_tokenizer_end(t));
        assert_int_equal(ct_tokenizer_end(t), (chars == 1) ? -1 : 299);
        assert_int_equal(ct_tokenizer_encode(t, text, strlen(text), false, "test", &a), CT_OK);
        assert_int_equal(ct_tokenizer_encode(again, text, strlen(text), false, "test", &b), CT_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof(*a.id));
        expect_back(again, text, strlen(text));
        ct_tokenizer_close(t);
        ct_tokenizer_close(again);
    }
    ct_ids_destroy(&a);
    ct_ids_destroy(&b);
}

/* ---- what is refused */

/* bpe_json with the first `from` replaced. */
static void refuse_json(const char *base, const char *from, const char *to, const char *why)
{
    const char *path = test_path(&folder, "bad.json"), *at = strstr(base, from);
    ct_text json = { 0 };
    ct_tokenizer *t = NULL;
    log_capture log;

    assert_non_null(at);
    ct_text_add(&json, "%.*s%s%s", (int)(at - base), base, to, at + strlen(from));
    test_file_text(path, json.text);
    ct_text_destroy(&json);
    log_capture_start(&log);
    assert_int_equal(ct_status_exit_code(ct_tokenizer_open(path, NULL, &t)), 3);
    log_capture_stop();
    assert_int_equal(log.n_error, 1);
    if ((strstr(log.error, why) == NULL) || (strstr(log.error, "bad.json") == NULL))
        fail_msg("\"%s\" has no \"%s\"", log.error, why);
}

static void test_refused_json(void **state)
{
    (void)state;
    refuse_json(bpe_json, "\"b\": 1", "\"b\": 1,, ", "bad.json:9: ");
    refuse_json(bpe_json, "\"b\": 1", "\"a\": 1", "duplicate object key");
    refuse_json(bpe_json, "\"b\": 1", "\"b\": 0", "has the id 0 of \"b\" twice");
    refuse_json(bpe_json, "\"b\": 1", "\"b\": -1", "the id of \"b\" is no whole number");
    refuse_json(bpe_json, "\"b\": 1", "\"b\": 4611686018427387904", "the id of \"b\"");
    refuse_json(bpe_json, "\"b\": 1", "\"b\": 1.5", "the id of \"b\"");
    refuse_json(bpe_json, "\"a b\"", "\"a b c\"", "model.merges[0] is neither");
    refuse_json(bpe_json, "\"a b\"", "7", "model.merges[0] is neither");
    refuse_json(bpe_json, "[\"ab\", \"c\"]", "[\"ab\"]", "model.merges[1] is neither");
    refuse_json(bpe_json, "[\"ab\", \"c\"]", "[\"ab\", \"q\"]", "model.merges[1] joins \"ab\" and");
    refuse_json(bpe_json, "\"type\": \"Digits\"", "\"type\": \"Punctuation\"",
                "Punctuation is not");
    refuse_json(bpe_json, "\"type\": \"Sequence\"", "\"type\": [1]", "without a type is not known");
    refuse_json(bpe_json, "\"normalizer\": null", "\"normalizer\": { \"type\": \"NFKC\" }",
                "normalizer NFKC is not known");
    refuse_json(bpe_json, "\"unk_token\": null", "\"byte_fallback\": true", "model.byte_fallback");
    refuse_json(bpe_json, "\"unk_token\": null", "\"dropout\": 0.1", "model.dropout");
    refuse_json(bpe_json, "\"type\": \"BPE\"", "\"type\": \"Unigram\"",
                "model Unigram is not known");
    refuse_json(bpe_json, "\"model\"", "\"models\"", "model is missing");
    refuse_json(bpe_json, "\"content\": \"<end>\"", "\"content\": \"\"", "added_tokens[0] has no");
    refuse_json(bpe_json, "\"id\": 10,", "\"id\": 3,", "has the id 3 of another token");
    refuse_json(bert_json, "\"unk_token\": \"[UNK]\"", "\"unk_token\": \"?\"", "\"?\" is not in");
    refuse_json(bert_json, "\": 8,", "\": 0,", "max_input_chars_per_word is not in 1..100000");
    refuse_json(bert_json, "BertPreTokenizer", "ByteLevel", "of WordPiece must be BertPre");
    refuse_json(bert_json, "{", "[{", "bad.json");
}

/* A byte without a token says where it stands. */
static void test_refused_text(void **state)
{
    ct_tokenizer *t = open_json(bpe_json);
    ct_ids ids = { 0 };
    ct_text text = { 0 };
    log_capture log;

    (void)state;
    log_capture_start(&log);
    assert_int_equal(ct_tokenizer_encode(t, "ab\nd", 4, false, "x.txt", &ids), CT_ERR_DATA);
    assert_non_null(strstr(log.error, "x.txt:1: "));
    assert_non_null(strstr(log.error, "no token for byte 0x0a"));
    assert_int_equal(ct_tokenizer_decode(t, (const int32_t[]){ 16 }, 1, &text), CT_ERR_DATA);
    assert_non_null(strstr(log.error, "token 0 is 16"));
    assert_int_equal(ct_tokenizer_decode(t, (const int32_t[]){ -1 }, 1, &text), CT_ERR_DATA);
    assert_int_equal(log.n_error, 3);
    log_capture_stop();
    ct_ids_destroy(&ids);
    ct_text_destroy(&text);
    ct_tokenizer_close(t);
}

static void test_refused_gguf(void **state)
{
    static const struct {
        const char *from, *to, *why;
    } cases[] = {
        { "gpt2", "spm2", "tokenizer.ggml.model is \"spm2\"; read are gpt2 and bert" },
        { "smollm", "tekken", "tokenizer.ggml.pre is \"tekken\"; read are gpt-2 " },
        { "a b", "a c", "tokenizer.ggml.merges[0] has, or makes, what is not in" },
        { "1 2", "1-2", "tokenizer.ggml.merges[1] is not \"a b\"" },
        { "ggml.tokens", "ggml.token$", "tokenizer.ggml.tokens is missing" },
        { "eos_token_id\x04\0\0\0\x07", "eos_token_id\x04\0\0\0\x09", "eos_token_id is no id" },
    };
    const char *path = test_path(&folder, "bad.gguf");

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ct_text file = make_gguf("smollm");
        size_t n = (i == 5) ? 17 : strlen(cases[i].from);
        char *at = memmem(file.text, file.length, cases[i].from, n);
        ct_tokenizer *t = NULL;
        log_capture log;

        assert_non_null(at);
        memcpy(at, cases[i].to, n);
        test_file_write(path, file.text, file.length);
        log_capture_start(&log);
        assert_int_equal(ct_status_exit_code(ct_tokenizer_open(path, NULL, &t)), 3);
        log_capture_stop();
        assert_int_equal(log.n_error, 1);
        if (strstr(log.error, cases[i].why) == NULL)
            fail_msg("\"%s\" has no \"%s\"", log.error, cases[i].why);
        ct_text_destroy(&file);
    }
}

/* ---- altered files: a tokenizer that works, or one line and exit code 3 */

static void use(const ct_tokenizer *t)
{
    static const char text[] = "ab12 the\xff <end> Na\u00cfve!\n<m> ee\u6c49";
    ct_ids ids = { 0 };
    ct_text back = { 0 };

    if (ct_tokenizer_encode(t, text, sizeof(text) - 1, true, "test", &ids) == CT_OK) {
        for (int64_t i = 0; i < ids.n; i++) assert_in_range(ids.id[i], 0, ct_tokenizer_size(t) - 1);
        assert_int_equal(ct_tokenizer_decode(t, ids.id, ids.n, &back), CT_OK);
    }
    ct_ids_destroy(&ids);
    ct_text_destroy(&back);
}

static void alter(const char *name, const char *bytes, size_t n, const char *pattern)
{
    enum { N = 700 };
    static const char piece[] = "{}[]\",: 09az\\\x00\xff\x7f\n";
    const char *path = test_path(&folder, name);
    char *copy = malloc(n);

    assert_non_null(copy);
    for (uint32_t i = 0; i < N; i++) {
        ct_rng_block r = ct_rng_philox(23, n, i);
        ct_tokenizer *t = NULL;
        log_capture log;
        ct_status status;
        size_t size = n;

        memcpy(copy, bytes, n);
        for (uint32_t k = 0; k <= r.v[0] % 3; k++) {
            size_t at = (r.v[1] + k * 7919) % n;

            copy[at] = (r.v[2] % 2 == 0) ? piece[(r.v[3] + k) % (sizeof(piece) - 1)]
                                         : (char)(r.v[3] >> 8 * k);
        }
        if (r.v[0] % 16 == 0) size = r.v[3] % n;
        test_file_write(path, copy, size);
        log_capture_start(&log);
        status = ct_tokenizer_open(path, pattern, &t);
        if (status == CT_OK) {
            use(t);
            ct_tokenizer_close(t);
        } else {
            assert_int_equal(log.n_error, 1);
            assert_in_range(ct_status_exit_code(status), 2, 3);
        }
        log_capture_stop();
    }
    free(copy);
}

static void test_altered(void **state)
{
    ct_text ranks = make_ranks(), gguf = make_gguf("smollm");

    (void)state;
    alter("a.json", bpe_json, sizeof(bpe_json) - 1, NULL);
    alter("b.json", bert_json, sizeof(bert_json) - 1, NULL);
    alter("a.ranks", ranks.text, ranks.length, "o200k");
    alter("a.gguf", gguf.text, gguf.length, NULL);
    ct_text_destroy(&ranks);
    ct_text_destroy(&gguf);
}

/* ---- words, one a line */

static void refuse_words(const char *list, size_t n, const char *why)
{
    ct_tokenizer *t = NULL;
    log_capture log;

    log_capture_start(&log);
    assert_int_equal(ct_tokenizer_words(list, n, "w.txt", &t), CT_ERR_DATA);
    log_capture_stop();
    assert_int_equal(log.n_error, 1);
    if (strstr(log.error, why) == NULL) fail_msg("\"%s\" has no \"%s\"", log.error, why);
}

static void test_words(void **state)
{
    static const char list[] = "the\n<eos>\nwar\n<unk>\npeace"; /* the last line has no end */
    static const char closed[] = "a\n<eos>\n";
    const int32_t ids[] = { 0, 2, 1, 1, 4, 3 };
    ct_tokenizer *t = NULL;
    ct_ids none = { 0 };
    ct_text back = { 0 };
    log_capture log;

    (void)state;
    assert_int_equal(ct_tokenizer_words(list, sizeof(list) - 1, "w.txt", &t), CT_OK);
    assert_int_equal(ct_tokenizer_size(t), 5);
    assert_int_equal(ct_tokenizer_end(t), -1);
    assert_false(ct_tokenizer_is_exact(t));
    expect_ids(t, " the\twar\n\r\npeace  wars", false, ids, 6);
    assert_int_equal(ct_tokenizer_decode(t, ids, 6, &back), CT_OK);
    assert_string_equal(back.text, "the war\n\npeace <unk>");
    ct_text_destroy(&back);
    ct_tokenizer_close(t);

    assert_int_equal(ct_tokenizer_words(closed, sizeof(closed) - 1, "w.txt", &t), CT_OK);
    log_capture_start(&log);
    assert_int_equal(ct_tokenizer_encode(t, "a\nb", 3, false, "x.txt", &none), CT_ERR_DATA);
    log_capture_stop();
    assert_non_null(strstr(log.error, "x.txt:2: \"b\" is not in w.txt"));
    ct_ids_destroy(&none);
    ct_tokenizer_close(t);

    refuse_words("a\n", 2, "w.txt: no <eos>");
    refuse_words("", 0, "w.txt: no <eos>");
    refuse_words("<eos>\na b\n", 10, "w.txt:2: expected one word");
    refuse_words("<eos>\na\0b\n", 10, "w.txt:2: expected one word");
    refuse_words("<eos>\n\na\n", 9, "w.txt:2: no word");
    refuse_words("<eos>\na\na\n", 10, "w.txt:3: the word is there twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_added_alike),  cmocka_unit_test(test_added_normalised),
        cmocka_unit_test(test_empty_word),   cmocka_unit_test(test_word_piece),
        cmocka_unit_test(test_ranks),        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_any_bytes),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_written),      cmocka_unit_test(test_refused_json),
        cmocka_unit_test(test_refused_text), cmocka_unit_test(test_refused_gguf),
        cmocka_unit_test(test_altered),      cmocka_unit_test(test_words),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
