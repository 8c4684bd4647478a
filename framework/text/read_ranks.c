/* tiktoken's rank files: a line has a token in base64, a blank, and its rank, which is its id. Two
 * tokens merge where what comes out is a token; the lowest rank goes first.
 * https://github.com/openai/tiktoken */
#include <stdlib.h>
#include <string.h>

#include "framework/text/tokenizer_private.h"

enum { MAX_RANK_BYTES = 4096 /* of a token: each of its halves is looked up */ };

/* What splits, and the special tokens of the vocabulary that has so many ranks (of other files the
 * pattern's special tokens are not known). tiktoken_ext/openai_public.py; of Llama 3:
 * https://github.com/meta-llama/llama-models/blob/main/models/llama3/tokenizer.py */
static const struct {
    const char *name;
    ct_split split;
    int32_t n_rank;
    struct {
        const char *name;
        int32_t id;
    } special[6];
} patterns[] = {
    { "gpt2", CT_SPLIT_GPT2, 50256, { { "<|endoftext|>", 50256 } } },
    { "gpt2", CT_SPLIT_GPT2, 50281, { { "<|endoftext|>", 50256 } } }, /* p50k: a rank is left out */
    { "cl100k",
      CT_SPLIT_CL100K,
      100256,
      { { "<|endoftext|>", 100257 },
        { "<|fim_prefix|>", 100258 },
        { "<|fim_middle|>", 100259 },
        { "<|fim_suffix|>", 100260 },
        { "<|endofprompt|>", 100276 } } },
    { "o200k",
      CT_SPLIT_O200K,
      199998,
      { { "<|endoftext|>", 199999 }, { "<|endofprompt|>", 200018 } } },
    { "llama3",
      CT_SPLIT_LLAMA3,
      128000,
      { { "<|begin_of_text|>", 128000 },
        { "<|end_of_text|>", 128001 },
        { "<|start_header_id|>", 128006 },
        { "<|end_header_id|>", 128007 },
        { "<|eot_id|>", 128009 } } },
};

enum { N_PATTERN = sizeof(patterns) / sizeof(patterns[0]) };

static ct_status find_pattern(const ct_tokenizer *t, const char *name, int *k_p)
{
    const char *names[N_PATTERN], *nearest;

    for (int k = 0; k < N_PATTERN; k++) {
        names[k] = patterns[k].name;
        if ((name != NULL) && (strcmp(name, patterns[k].name) == 0)) {
            *k_p = k;
            return CT_OK;
        }
    }
    if (name == NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: a file of ranks does not say how texts are split: give "
                       "--pattern=gpt2, cl100k, o200k or llama3",
                       t->source);
    nearest = ct_text_nearest(name, names, N_PATTERN);
    return CT_FAIL(CT_ERR_CONFIG, "--pattern=%s: expected gpt2, cl100k, o200k or llama3%s%s%s",
                   name, (nearest != NULL) ? "; did you mean \"" : "",
                   (nearest != NULL) ? nearest : "", (nearest != NULL) ? "\"?" : "");
}

/* ---- lines */

static int digit_of(char c)
{
    if ((c >= 'A') && (c <= 'Z')) return c - 'A';
    if ((c >= 'a') && (c <= 'z')) return c - 'a' + 26;
    if ((c >= '0') && (c <= '9')) return c - '0' + 52;
    return (c == '+') ? 62 : (c == '/') ? 63 : -1;
}

/* base64 with its padding; -1: damaged. to has room for n / 4 * 3 bytes. */
static int64_t read_base64(const char *text, size_t n, uint8_t *to)
{
    size_t pad = 0;
    int64_t length = 0;

    if ((n == 0) || (n % 4 != 0)) return -1;
    while ((pad < 2) && (text[n - 1 - pad] == '=')) pad++;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t v = 0;
        size_t last = (i + 4 == n) ? 4 - pad : 4;

        for (size_t k = 0; k < 4; k++) {
            int digit = (k < last) ? digit_of(text[i + k]) : 0;

            if (digit < 0) return -1;
            v = v << 6 | (uint32_t)digit;
        }
        for (size_t k = 0; k + 1 < last; k++) to[length++] = (uint8_t)(v >> (16 - 8 * k));
    }
    return length;
}

/* -1: no number of at most 8 digits, or something behind it. */
static int64_t read_rank(const char *text, const char *end)
{
    int64_t rank = 0;

    if ((text == end) || (end - text > 8)) return -1;
    for (; text < end; text++) {
        if ((*text < '0') || (*text > '9')) return -1;
        rank = 10 * rank + (*text - '0');
    }
    return (rank < CT_MAX_TOKENS) ? rank : -1;
}

static ct_status read_line(ct_tokenizer *t, const char *text, const char *end, long long line)
{
    uint8_t bytes[MAX_RANK_BYTES];
    const char *blank = memchr(text, ' ', (size_t)(end - text));
    int64_t n = -1, rank;

    if ((blank != NULL) && (blank - text <= MAX_RANK_BYTES))
        n = read_base64(text, (size_t)(blank - text), bytes);
    rank = (n > 0) ? read_rank(blank + 1, end) : -1;
    if (rank < 0)
        return CT_FAIL(
            CT_ERR_DATA, "%s:%lld: no token in base64, blank and rank%s", t->source, line,
            (line == 1) ? "; expected a tokenizer.json, a GGUF, or a file of ranks" : "");
    if (ct_token_table_has(&t->table, rank))
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: rank %lld is there twice", t->source, line,
                       (long long)rank);
    if (ct_token_table_find(&t->table, bytes, (size_t)n) >= 0)
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: the token is there twice", t->source, line);
    return ct_token_table_set(&t->table, (int32_t)rank, bytes, (size_t)n, false);
}

static ct_status read_lines(ct_tokenizer *t, const char *text, size_t n)
{
    const char *end = text + n;

    for (long long line = 1; text < end; line++) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        const char *stop = (feed != NULL) ? feed : end;
        const char *next = (feed != NULL) ? feed + 1 : end;

        if ((stop > text) && (stop[-1] == '\r')) stop--;
        if (stop > text) CT_TRY(read_line(t, text, stop, line));
        text = next;
    }
    return (t->table.n > 0) ? CT_OK : CT_FAIL(CT_ERR_DATA, "%s: no tokens", t->source);
}

/* ---- merges */

static ct_status find_bytes(ct_tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        t->byte_id[i] = ct_token_table_find(&t->table, &byte, 1);
        if (t->byte_id[i] < 0)
            return CT_FAIL(CT_ERR_DATA, "%s: byte 0x%02x has no rank", t->source, i);
    }
    return CT_OK;
}

/* Each way to make a token of two. */
static ct_status find_merges(ct_tokenizer *t)
{
    for (int32_t id = 0; id < t->table.n; id++) {
        const uint8_t *bytes;
        size_t n;

        if (!ct_token_table_has(&t->table, id)) continue;
        bytes = ct_token_bytes(&t->table, id, &n);
        for (size_t k = 1; k < n; k++) {
            int32_t left = ct_token_table_find(&t->table, bytes, k), right = -1;

            if (left >= 0) right = ct_token_table_find(&t->table, bytes + k, n - k);
            if (right >= 0) CT_TRY(ct_merges_add(&t->merges, left, right, id, id));
        }
    }
    return CT_OK;
}

/* The special tokens of the pattern, where the file has the ranks that they belong to. */
static ct_status add_special(ct_tokenizer *t, int pattern)
{
    int32_t n_rank = t->table.n;

    for (int k = 0; k < N_PATTERN; k++) {
        if ((strcmp(patterns[k].name, patterns[pattern].name) != 0) ||
            (patterns[k].n_rank != n_rank))
            continue;
        for (int i = 0; patterns[k].special[i].name != NULL; i++) {
            ct_added_token a = { .name = (char *)(uintptr_t)patterns[k].special[i].name,
                                 .id = patterns[k].special[i].id,
                                 .special = true };

            CT_TRY(ct_tokenizer_add(t, &a));
        }
    }
    return CT_OK;
}

ct_status ct_tokenizer_read_ranks(ct_tokenizer *t, const char *text, size_t n, const char *pattern)
{
    int k = 0;

    t->model = CT_MODEL_BPE;
    t->whole_pieces = true;
    CT_TRY(read_lines(t, text, n));
    CT_TRY(find_pattern(t, pattern, &k));
    CT_TRY(find_bytes(t));
    CT_TRY(find_merges(t));
    t->step[t->n_step++] = (ct_split_step){ .split = patterns[k].split };
    return add_special(t, k);
}
