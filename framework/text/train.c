/* Tokenizers made of a text: byte-level BPE, and its characters.
 *
 * BPE: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL
 * 2016, on bytes as in GPT-2. The words of the text are counted. In each round the most frequent
 * pair of neighbours becomes a token; of equally frequent ones that of the lowest ids, as in
 * Hugging Face's tokenizers. A pair knows where it stands, so a round takes as long as it changes.
 */
#include <stdlib.h>
#include <string.h>

#include "framework/text/tokenizer_private.h"
#include "framework/text/unicode.h"

static const char end_name[] = "<|endoftext|>";

typedef struct symbol {
    int32_t id;             /* -1: joined to the one in front   */
    int32_t previous, next; /* in the word, -1: none            */
    int32_t word;
} symbol;

typedef struct pair {
    int32_t left, right;
    int64_t count; /* in the text                                         */
    ct_ids at;     /* places of the left symbol, also of pairs that are gone */
} pair;

typedef struct entry { /* of the heap: a pair with the count that it had */
    int64_t count;
    int32_t left, right, pair;
} entry;

typedef struct trainer {
    ct_tokenizer *t;
    ct_token_table words;
    int64_t *count; /* of words by number */
    int64_t room_count;
    symbol *symbol;
    int64_t n_symbol;
    pair *pair;
    int64_t n_pair, room_pair;
    ct_merges index; /* of pairs: rank is the pair's number */
    entry *heap;
    int64_t n_heap, room_heap;
} trainer;

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory to train a tokenizer");
}

/* ---- words */

static ct_status count_word(trainer *r, const uint8_t *at, size_t n)
{
    int32_t word = ct_token_table_find(&r->words, at, n);

    if (word < 0) {
        word = r->words.n;
        if (word == CT_MAX_TOKENS)
            return CT_FAIL(CT_ERR_DATA, "more than %d different words", CT_MAX_TOKENS);
        if (word >= r->room_count) {
            int64_t room = (r->room_count == 0) ? 4096 : 2 * r->room_count;
            int64_t *more = realloc(r->count, (size_t)room * sizeof(*more));

            if (more == NULL) return no_memory();
            r->count = more;
            r->room_count = room;
        }
        CT_TRY(ct_token_table_set(&r->words, word, at, n, false));
        r->count[word] = 0;
        r->n_symbol += (int64_t)n;
    }
    r->count[word]++;
    return CT_OK;
}

static ct_status count_words(trainer *r, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *next = ct_split_next(CT_SPLIT_GPT2, at, end);
        size_t n = (size_t)(next - at);

        if (n > INT32_MAX)
            return CT_FAIL(CT_ERR_DATA, "a piece of %zu bytes without a place to cut it", n);
        CT_TRY(count_word(r, at, n));
        at = next;
    }
    if (r->n_symbol > INT32_MAX)
        return CT_FAIL(CT_ERR_DATA, "different words of %lld bytes together are too many",
                       (long long)r->n_symbol);
    return CT_OK;
}

/* ---- the heap: the most frequent first, then the lowest ids */

static bool before(const entry *a, const entry *b)
{
    if (a->count != b->count) return a->count > b->count;
    return (a->left != b->left) ? a->left < b->left : a->right < b->right;
}

static ct_status push(trainer *r, int32_t p)
{
    entry e = { r->pair[p].count, r->pair[p].left, r->pair[p].right, p };
    int64_t at;

    if (r->n_heap == r->room_heap) {
        int64_t room = (r->room_heap == 0) ? 4096 : 2 * r->room_heap;
        entry *more = realloc(r->heap, (size_t)room * sizeof(*more));

        if (more == NULL) return no_memory();
        r->heap = more;
        r->room_heap = room;
    }
    for (at = r->n_heap++; (at > 0) && before(&e, &r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        r->heap[at] = r->heap[(at - 1) / 2];
    r->heap[at] = e;
    return CT_OK;
}

static entry pop(trainer *r)
{
    entry first = r->heap[0], last = r->heap[--r->n_heap];
    int64_t at = 0, child;

    while ((child = 2 * at + 1) < r->n_heap) {
        if ((child + 1 < r->n_heap) && before(&r->heap[child + 1], &r->heap[child])) child++;
        if (!before(&r->heap[child], &last)) break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = last;
    return first;
}

/* ---- pairs */

static ct_status find_pair(trainer *r, int32_t left, int32_t right, int32_t *p_p)
{
    const struct ct_merge *known = ct_merges_find(&r->index, left, right);

    if (known != NULL) {
        *p_p = known->rank;
        return CT_OK;
    }
    if (r->n_pair == r->room_pair) {
        int64_t room = (r->room_pair == 0) ? 4096 : 2 * r->room_pair;
        pair *more = realloc(r->pair, (size_t)room * sizeof(*more));

        if (more == NULL) return no_memory();
        r->pair = more;
        r->room_pair = room;
    }
    CT_TRY(ct_merges_add(&r->index, left, right, (int32_t)r->n_pair, 0));
    r->pair[r->n_pair] = (pair){ .left = left, .right = right };
    *p_p = (int32_t)r->n_pair++;
    return CT_OK;
}

/* at: of the left symbol; -1, or the last of its word: no pair. by: +1 it is there, -1 it is gone.
 */
static ct_status change(trainer *r, int32_t at, int by)
{
    int32_t p;

    if ((at < 0) || (r->symbol[at].next < 0)) return CT_OK;
    CT_TRY(find_pair(r, r->symbol[at].id, r->symbol[r->symbol[at].next].id, &p));
    r->pair[p].count += by * r->count[r->symbol[at].word];
    return (by > 0) ? ct_ids_add(&r->pair[p].at, &at, 1) : CT_OK;
}

static ct_status make_symbols(trainer *r)
{
    int32_t at = 0;

    r->symbol = malloc((size_t)(r->n_symbol + 1) * sizeof(*r->symbol));
    if (r->symbol == NULL) return no_memory();
    for (int32_t w = 0; w < r->words.n; w++) {
        size_t n;
        const uint8_t *bytes = ct_token_bytes(&r->words, w, &n);
        int32_t first = at, last = at + (int32_t)n - 1;

        for (size_t i = 0; i < n; i++, at++)
            r->symbol[at] = (symbol){ .id = r->t->byte_id[bytes[i]],
                                      .previous = (at > first) ? at - 1 : -1,
                                      .next = (at < last) ? at + 1 : -1,
                                      .word = w };
    }
    for (int32_t i = 0; i < at; i++) CT_TRY(change(r, i, 1));
    for (int32_t p = 0; p < r->n_pair; p++) CT_TRY(push(r, p));
    return CT_OK;
}

static int by_place(const void *pa, const void *pb)
{
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;

    return (a > b) - (a < b);
}

/* The pair at `at`, where it still is, becomes `id`. */
static ct_status join_at(trainer *r, int32_t at, int32_t left, int32_t right, int32_t id)
{
    symbol *s = &r->symbol[at];
    int32_t gone = s->next;

    if ((s->id != left) || (gone < 0) || (r->symbol[gone].id != right)) return CT_OK;
    CT_TRY(change(r, s->previous, -1));
    CT_TRY(change(r, gone, -1));
    s->id = id;
    s->next = r->symbol[gone].next;
    if (s->next >= 0) r->symbol[s->next].previous = at;
    r->symbol[gone].id = -1;
    CT_TRY(change(r, s->previous, 1));
    return change(r, at, 1);
}

static ct_status join(trainer *r, int32_t p, int32_t id)
{
    int32_t left = r->pair[p].left, right = r->pair[p].right;
    int64_t n_before = r->n_pair;
    ct_ids at = r->pair[p].at;
    ct_status status = CT_OK;

    r->pair[p].at = (ct_ids){ .id = NULL };
    r->pair[p].count = 0;
    qsort(at.id, (size_t)at.n, sizeof(*at.id), by_place);
    for (int64_t i = 0; (i < at.n) && (status == CT_OK); i++)
        status = join_at(r, at.id[i], left, right, id);
    ct_ids_destroy(&at);
    /* a pair that is new has the token that is new, so all of them came about here */
    for (int64_t k = n_before; (k < r->n_pair) && (status == CT_OK); k++)
        status = push(r, (int32_t)k);
    return status;
}

/* ---- tokens */

static ct_status add_joined(trainer *r, const entry *e, int32_t rank)
{
    ct_token_table *table = &r->t->table;
    int32_t id = table->n;
    ct_text both = { 0 };
    size_t n;
    const uint8_t *bytes = ct_token_bytes(table, e->left, &n);
    ct_status status;

    ct_text_add_bytes(&both, (const char *)bytes, n);
    bytes = ct_token_bytes(table, e->right, &n);
    ct_text_add_bytes(&both, (const char *)bytes, n);
    status = both.failed ? no_memory() : CT_OK;
    if (status == CT_OK)
        status = ct_token_table_set(table, id, (const uint8_t *)both.text, both.length, false);
    ct_text_destroy(&both);
    if (status == CT_OK) status = ct_merges_add(&r->t->merges, e->left, e->right, rank, id);
    return (status == CT_OK) ? join(r, e->pair, id) : status;
}

/* GPT-2's order of bytes: that of the characters that stand for them. */
static ct_status add_bytes(ct_tokenizer *t)
{
    int32_t id = 0;

    for (uint32_t c = 0; id < 256; c++) {
        int found = ct_byte_of_char(c);
        uint8_t byte = (uint8_t)found;

        if (found < 0) continue;
        t->byte_id[byte] = id;
        CT_TRY(ct_token_table_set(&t->table, id++, &byte, 1, false));
    }
    return CT_OK;
}

static ct_status train(trainer *r, const uint8_t *text, size_t size, int64_t n)
{
    ct_added_token end = { .name = (char *)(uintptr_t)end_name, .special = true };
    int32_t rank = 0;

    CT_TRY(add_bytes(r->t));
    CT_TRY(count_words(r, text, text + size));
    CT_TRY(make_symbols(r));
    while ((r->t->table.n < n - 1) && (r->n_heap > 0)) {
        entry e = pop(r);

        if (e.count != r->pair[e.pair].count) { /* an old count: back to where it belongs */
            if (r->pair[e.pair].count > 0) CT_TRY(push(r, e.pair));
            continue;
        }
        if (e.count < 1) continue;
        CT_TRY(add_joined(r, &e, rank++));
    }
    end.id = r->t->table.n;
    r->t->step[r->t->n_step++] = (ct_split_step){ .split = CT_SPLIT_GPT2 };
    CT_TRY(ct_tokenizer_add(r->t, &end));
    return ct_tokenizer_finish(r->t);
}

ct_status ct_tokenizer_train(const char *text, size_t size, int64_t n, ct_tokenizer **t_p)
{
    trainer r = { .t = NULL };
    ct_status status;

    if ((n < 257) || (n > CT_MAX_TOKENS))
        return CT_FAIL(CT_ERR_CONFIG,
                       "a byte-level vocabulary of %lld: expected 257 (bytes and an end) to %d",
                       (long long)n, CT_MAX_TOKENS);
    CT_TRY(ct_tokenizer_create("the trained tokenizer", &r.t));
    r.t->model = CT_MODEL_BPE;
    status = train(&r, (const uint8_t *)text, size, n);
    for (int64_t i = 0; i < r.n_pair; i++) ct_ids_destroy(&r.pair[i].at);
    free(r.pair);
    free(r.heap);
    free(r.symbol);
    free(r.count);
    ct_merges_destroy(&r.index);
    ct_token_table_destroy(&r.words);
    if (status != CT_OK) {
        ct_tokenizer_close(r.t);
        return status;
    }
    *t_p = r.t;
    return CT_OK;
}

/* ---- characters */

static ct_status add_chars(ct_tokenizer *t, const bool *there)
{
    int32_t id = 0;

    for (uint32_t c = 1; c <= 0x10ffff; c++) {
        uint8_t bytes[4];

        if (!there[c]) continue;
        CT_TRY(ct_token_table_set(&t->table, id++, bytes, (size_t)ct_utf8_write(c, bytes), false));
    }
    return ct_tokenizer_finish(t);
}

static ct_status find_chars(const ct_named_text *text, bool *there)
{
    const uint8_t *p = (const uint8_t *)text->text, *end = p + text->n;
    long long line = 1;
    int length;

    for (; p < end; p += length) {
        uint32_t c = ct_utf8_read(p, end, &length);

        if ((c == CT_NO_CHARACTER) || (c == 0))
            return CT_FAIL(
                CT_ERR_DATA,
                "%s:%lld: byte 0x%02x is no character of a text; --tokenizer=bytes takes "
                "any",
                text->source, line, *p);
        line += (c == '\n');
        there[c] = true;
    }
    return CT_OK;
}

ct_status ct_tokenizer_chars(const ct_named_text *text, int n, ct_tokenizer **t_p)
{
    bool *there = calloc(0x110000, sizeof(*there));
    ct_status status = CT_OK;
    ct_tokenizer *t = NULL;

    if (there == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for characters");
    for (int i = 0; (i < n) && (status == CT_OK); i++) status = find_chars(&text[i], there);
    if (status == CT_OK) status = ct_tokenizer_create("the characters", &t);
    if (status == CT_OK) {
        t->model = CT_MODEL_CHARS;
        status = add_chars(t, there);
    }
    free(there);
    if (status != CT_OK) {
        ct_tokenizer_close(t);
        return status;
    }
    *t_p = t;
    return CT_OK;
}
