/* From a text to ids: added tokens are found, what stands between them is normalised, cut into
 * items at places where a piece ends in any case, and items are encoded by the threads of the team.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/text/tokenizer_private.h"
#include "framework/text/unicode.h"

enum {
    PART_BYTES = 1 << 18, /* what a thread takes at once                          */
    FEW_SLOTS = 16,       /* pieces that a thread remembers, with their ids: at least, … */
    MOST_SLOTS = 1 << 16, /* … and at most                                        */
    SLOT_BYTES = 4,       /* of text, for one of them                             */
    MAX_KEY = 30,         /* bytes of such a piece                                */
    MAX_IDS = 8,          /* ids of it                                            */
    BATCH = 256           /* parts whose ids are in memory                        */
};

/* A text between two added tokens, or a part of one, or an added token. */
typedef struct item {
    const uint8_t *at, *stop; /* pieces that begin in [at, stop) …                  */
    const uint8_t *end;       /* … of a text that ends here                         */
    int32_t id;               /* of an added token, else -1                         */
} item;

/* Consecutive items, and their ids. */
typedef struct part {
    int64_t first, n;
    ct_ids ids;
    ct_status status;
    const uint8_t *bad; /* what has no token; NULL: nothing */
    uint32_t bad_character;
} part;

typedef struct work {
    const ct_tokenizer *t;
    const char *source;
    const uint8_t *text, *end;
    bool special;
    item *item;
    int64_t n_item, room_item;
    part *part;
    int64_t n_part;
    char **form; /* texts that were normalised */
    int64_t n_form, room_form;
    int first[257]; /* added tokens by their first byte: [first[b], first[b + 1]) */
} work;

static ct_status no_memory(const work *w)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory to tokenize %s", w->source);
}

/* ---- a piece */

typedef struct slot {
    uint8_t n_key, n_id; /* n_key 0: free */
    uint8_t key[MAX_KEY];
    int32_t id[MAX_IDS];
} slot;

typedef struct encoder {
    const ct_tokenizer *t;
    slot *slot;
    size_t n_slot;
    ct_merger merger;
    ct_ids symbols;
    ct_text blanked[CT_MAX_STEPS]; /* pieces with a blank in front, by step */
    ct_text word;                  /* of WordPiece: "##" and the rest       */
    part *part;
} encoder;

static ct_status fail_at(encoder *e, const uint8_t *at, uint32_t c)
{
    e->part->bad = at;
    e->part->bad_character = c;
    return CT_ERR_DATA;
}

static ct_status encode_bytes(encoder *e, const uint8_t *at, const uint8_t *end)
{
    ct_ids *s = &e->symbols;
    int64_t n;

    s->n = 0;
    if (e->t->whole_pieces) {
        int32_t id = ct_token_table_find(&e->t->table, at, (size_t)(end - at));

        if (id >= 0) return ct_ids_add(&e->part->ids, &id, 1);
    }
    for (const uint8_t *p = at; p < end; p++) {
        if (e->t->byte_id[*p] < 0) return fail_at(e, p, 0x80000000u | *p);
        CT_TRY(ct_ids_add(s, &e->t->byte_id[*p], 1));
    }
    n = s->n;
    if (e->t->merges.n > 0) CT_TRY(ct_merger_run(&e->merger, &e->t->merges, s->id, s->n, &n));
    return ct_ids_add(&e->part->ids, s->id, n);
}

static ct_status encode_chars(encoder *e, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        int length;
        uint32_t c = ct_utf8_read(at, end, &length);
        int32_t id = ct_token_table_find(&e->t->table, at, (size_t)length);

        if (id < 0) id = e->t->unknown;
        if (id < 0) return fail_at(e, at, (c == CT_NO_CHARACTER) ? 0x80000000u | *at : c);
        CT_TRY(ct_ids_add(&e->part->ids, &id, 1));
        at += length;
    }
    return CT_OK;
}

static int64_t count_characters(const uint8_t *at, const uint8_t *end)
{
    int64_t n = 0;

    for (int length; at < end; at += length, n++) ct_utf8_read(at, end, &length);
    return n;
}

/* The longest prefix of [at, end) that is a token, behind "##" where it is within a word. */
static const uint8_t *longest_piece(encoder *e, const uint8_t *at, const uint8_t *end, bool within,
                                    int32_t *id_p)
{
    size_t front = within ? strlen(e->t->prefix) : 0;

    e->word.length = 0;
    ct_text_add_bytes(&e->word, e->t->prefix, front);
    ct_text_add_bytes(&e->word, (const char *)at, (size_t)(end - at));
    for (; (end > at) && !e->word.failed; end--) {
        *id_p = ct_token_table_find(&e->t->table, (const uint8_t *)e->word.text,
                                    front + (size_t)(end - at));
        if (*id_p >= 0) return end;
    }
    return NULL;
}

static ct_status encode_word(encoder *e, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *p = at;

    e->symbols.n = 0;
    if (count_characters(at, end) > e->t->max_chars)
        return ct_ids_add(&e->part->ids, &e->t->unknown, 1);
    while (p < end) {
        int32_t id = -1;
        const uint8_t *next = longest_piece(e, p, end, p > at, &id);

        if (next == NULL) return ct_ids_add(&e->part->ids, &e->t->unknown, 1);
        CT_TRY(ct_ids_add(&e->symbols, &id, 1));
        p = next;
    }
    return ct_ids_add(&e->part->ids, e->symbols.id, e->symbols.n);
}

static ct_status encode_new(encoder *e, const uint8_t *at, const uint8_t *end)
{
    switch (e->t->model) {
    case CT_MODEL_CHARS:
        return encode_chars(e, at, end);
    case CT_MODEL_WORD_PIECE:
        return encode_word(e, at, end);
    default:
        return encode_bytes(e, at, end);
    }
}

static ct_status encode_piece(encoder *e, const uint8_t *at, const uint8_t *end)
{
    size_t n = (size_t)(end - at);
    int64_t before = e->part->ids.n;
    slot *s;

    if (n > MAX_KEY) return encode_new(e, at, end);
    s = &e->slot[ct_token_hash(at, n) % e->n_slot];
    if ((s->n_key == n) && (memcmp(s->key, at, n) == 0))
        return ct_ids_add(&e->part->ids, s->id, s->n_id);
    CT_TRY(encode_new(e, at, end));
    if (e->part->ids.n - before > MAX_IDS) return CT_OK;
    s->n_key = (uint8_t)n;
    s->n_id = (uint8_t)(e->part->ids.n - before);
    memcpy(s->key, at, n);
    memcpy(s->id, e->part->ids.id + before, s->n_id * sizeof(s->id[0]));
    return CT_OK;
}

/* ---- pieces of a text: a step splits what the step before it gives */

static bool begins_blank(const uint8_t *at, const uint8_t *end)
{
    int length;

    return ct_unicode_is_space(ct_utf8_read(at, end, &length));
}

static ct_status encode_step(encoder *e, int k, const uint8_t *at, const uint8_t *end,
                             const uint8_t *stop)
{
    const ct_split_step *step = &e->t->step[k];

    if (k == e->t->n_step) return (at < end) ? encode_piece(e, at, end) : CT_OK;
    if (step->prefix_blank && (at < end) && (*at != ' ')) {
        ct_text *b = &e->blanked[k];

        b->length = 0;
        ct_text_add_bytes(b, " ", 1);
        ct_text_add_bytes(b, (const char *)at, (size_t)(end - at));
        if (b->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a text");
        at = (const uint8_t *)b->text;
        end = stop = at + b->length;
    }
    while ((at < end) && (at < stop)) {
        const uint8_t *next =
            (step->split == CT_SPLIT_N) ? end : ct_split_next(step->split, at, end);

        if ((step->split != CT_SPLIT_BERT) || !begins_blank(at, end))
            CT_TRY(encode_step(e, k + 1, at, next, stop));
        at = next;
    }
    return CT_OK;
}

static ct_status encode_part(encoder *e, const work *w, part *p)
{
    e->part = p;
    for (int64_t i = p->first; i < p->first + p->n; i++) {
        const item *x = &w->item[i];

        if (x->id >= 0)
            CT_TRY(ct_ids_add(&p->ids, &x->id, 1));
        else
            CT_TRY(encode_step(e, 0, x->at, x->end, x->stop));
    }
    return CT_OK;
}

static void encoder_destroy(encoder *e)
{
    free(e->slot);
    ct_merger_destroy(&e->merger);
    ct_ids_destroy(&e->symbols);
    ct_text_destroy(&e->word);
    for (int i = 0; i < CT_MAX_STEPS; i++) ct_text_destroy(&e->blanked[i]);
}

static int64_t item_bytes(const item *x)
{
    return (x->id >= 0) ? 1 : x->stop - x->at;
}

/* A short text has few pieces, and a large table takes longer to clear than they to encode. */
static size_t slots_for(const work *w, int64_t first, int64_t n)
{
    int64_t bytes = 0;
    size_t n_slot = FEW_SLOTS;

    for (int64_t k = first; k < first + n; k++)
        for (int64_t i = 0; i < w->part[k].n; i++)
            bytes += item_bytes(&w->item[w->part[k].first + i]);
    while ((n_slot < MOST_SLOTS) && ((int64_t)n_slot * SLOT_BYTES < bytes)) n_slot *= 2;
    return n_slot;
}

/* Parts [first, first + n). */
static void encode_parts(work *w, int64_t first, int64_t n)
{
    int n_thread = (n < omp_get_max_threads()) ? (int)n : omp_get_max_threads();
    size_t n_slot = slots_for(w, first, n);

#pragma omp parallel num_threads(n_thread) if (n_thread > 1)
    {
        encoder e = { .t = w->t, .n_slot = n_slot, .slot = calloc(n_slot, sizeof(slot)) };

#pragma omp for schedule(dynamic)
        for (int64_t i = first; i < first + n; i++)
            w->part[i].status = (e.slot != NULL) ? encode_part(&e, w, &w->part[i]) : no_memory(w);
        encoder_destroy(&e);
    }
}

/* ---- items */

/* Behind the first line feed from `at` on that a letter follows; there every split has an end. With
 * BERT's any blank will do. Without such a place: end. */
static const uint8_t *find_cut(const ct_tokenizer *t, const uint8_t *at, const uint8_t *end)
{
    bool bert = (t->n_step > 0) && (t->step[0].split == CT_SPLIT_BERT);

    while ((at = memchr(at, bert ? ' ' : '\n', (size_t)(end - at))) != NULL) {
        int length;

        if (++at == end) break;
        if (bert || ((ct_unicode_bit(ct_utf8_read(at, end, &length)) & CT_BITS_LETTER) != 0))
            return at;
    }
    return end;
}

static bool may_cut(const ct_tokenizer *t)
{
    bool any = false;

    for (int i = 0; i < t->n_step; i++) {
        if (t->step[i].prefix_blank) return false;
        any = any || ct_split_ends_lines(t->step[i].split);
    }
    return any;
}

static ct_status add_item(work *w, item x)
{
    if (w->n_item == w->room_item) {
        int64_t room = (w->room_item == 0) ? 64 : 2 * w->room_item;
        item *more = realloc(w->item, (size_t)room * sizeof(*more));

        if (more == NULL) return no_memory(w);
        w->item = more;
        w->room_item = room;
    }
    w->item[w->n_item++] = x;
    return CT_OK;
}

static ct_status add_text(work *w, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *stop = end;

        if ((end - at > 2 * PART_BYTES) && may_cut(w->t))
            stop = find_cut(w->t, at + PART_BYTES, end);
        CT_TRY(add_item(w, (item){ .at = at, .stop = stop, .end = end, .id = -1 }));
        at = stop;
    }
    return CT_OK;
}

/* ---- added tokens */

static bool is_word(uint32_t c)
{
    return (ct_unicode_bit(c) &
            (CT_BITS_LETTER | CT_BITS_MARK | CT_BIT(CT_ND) | CT_BIT(CT_NL) | CT_BIT(CT_PC))) != 0;
}

/* The character that ends at `end`. */
static uint32_t last_character(const uint8_t *start, const uint8_t *end, int *length_p)
{
    for (int n = 4; n > 1; n--) {
        uint32_t c;

        if (end - start < n) continue;
        c = ct_utf8_read(end - n, end, length_p);
        if (*length_p == n) return c;
    }
    return ct_utf8_read(end - 1, end, length_p);
}

static bool stands_alone(const ct_added_token *a, const uint8_t *start, const uint8_t *at,
                         const uint8_t *end)
{
    int length;

    if ((at > start) && is_word(last_character(start, at, &length))) return false;
    return (at + a->n == end) || !is_word(ct_utf8_read(at + a->n, end, &length));
}

/* a is not behind the text at `at` in a dictionary. */
static bool stands_before(const ct_added_token *a, const uint8_t *at, const uint8_t *end)
{
    size_t n = (size_t)(end - at);
    int order = memcmp(a->text, at, (a->n < n) ? a->n : n);

    return (order < 0) || ((order == 0) && (a->n <= n));
}

static size_t common_bytes(const ct_added_token *a, const uint8_t *at, const uint8_t *end)
{
    size_t n = 0;

    while ((n < a->n) && (n < (size_t)(end - at)) && (a->text[n] == at[n])) n++;
    return n;
}

/* The longest that stands at `at`, or NULL. The last one that is not behind the text in a
 * dictionary begins with each that stands there. */
static const ct_added_token *match(const work *w, const uint8_t *at, const uint8_t *end,
                                   bool normalised)
{
    const ct_added_token *added = w->t->added;
    int low = w->first[*at], high = w->first[*at + 1], k;
    size_t n;

    if (low == high) return NULL;
    while (low < high) {
        int middle = low + (high - low) / 2;

        if (stands_before(&added[middle], at, end))
            low = middle + 1;
        else
            high = middle;
    }
    k = low - 1;
    if (k < w->first[*at]) return NULL;
    n = common_bytes(&added[k], at, end);
    while ((k >= 0) && ((added[k].n > n) || (added[k].normalised != normalised)))
        k = added[k].shorter;
    return (k >= 0) ? &added[k] : NULL;
}

typedef ct_status (*take_text)(work *w, const uint8_t *at, const uint8_t *end);

/* Cuts the text at added tokens; what stands between goes to `take`. */
static ct_status cut_at_added(work *w, const uint8_t *start, const uint8_t *end, bool normalised,
                              take_text take)
{
    const uint8_t *from = start, *at = start;

    while (at < end) {
        const ct_added_token *a = match(w, at, end, normalised);
        const uint8_t *stop;
        int n;

        if (a == NULL) {
            at++;
            continue;
        }
        stop = at + a->n;
        if ((a->special && !w->special) || (a->single_word && !stands_alone(a, start, at, end))) {
            at = stop;
            continue;
        }
        while (a->left_blanks && (at > from) && ct_unicode_is_space(last_character(from, at, &n)))
            at -= n;
        while (a->right_blanks && (stop < end) && ct_unicode_is_space(ct_utf8_read(stop, end, &n)))
            stop += n;
        CT_TRY(take(w, from, at));
        CT_TRY(add_item(w, (item){ .id = a->id }));
        from = at = stop;
    }
    return take(w, from, end);
}

static ct_status keep_form(work *w, char *text)
{
    if (w->n_form == w->room_form) {
        int64_t room = (w->room_form == 0) ? 16 : 2 * w->room_form;
        char **more = realloc(w->form, (size_t)room * sizeof(*more));

        if (more == NULL) {
            free(text);
            return no_memory(w);
        }
        w->form = more;
        w->room_form = room;
    }
    w->form[w->n_form++] = text;
    return CT_OK;
}

static bool is_normal(const ct_tokenizer *t, const uint8_t *at, const uint8_t *end)
{
    if (t->n_form == 0) return true;
    return (t->n_form == 1) && (t->form[0] == CT_NORMAL_NFC) &&
           ct_unicode_is_nfc(at, (size_t)(end - at));
}

static ct_status add_raw(work *w, const uint8_t *at, const uint8_t *end)
{
    ct_text form = { 0 };

    if (at == end) return CT_OK;
    if (!is_normal(w->t, at, end)) {
        ct_tokenizer_normalise(w->t, at, (size_t)(end - at), &form);
        if (form.failed) {
            ct_text_destroy(&form);
            return no_memory(w);
        }
        if (form.text == NULL) return CT_OK;
        at = (const uint8_t *)form.text;
        end = at + form.length;
        CT_TRY(keep_form(w, form.text));
    }
    return (w->t->n_form > 0) ? cut_at_added(w, at, end, true, add_text) : add_text(w, at, end);
}

static void index_added(work *w)
{
    int i = 0;

    for (int b = 0; b < 256; b++) {
        w->first[b] = i;
        while ((i < w->t->n_added) && (w->t->added[i].text[0] == b)) i++;
    }
    w->first[256] = i;
}

/* ---- the whole */

static ct_status group(work *w)
{
    int64_t bytes = PART_BYTES;

    w->part = calloc((size_t)w->n_item + 1, sizeof(*w->part));
    if (w->part == NULL) return no_memory(w);
    for (int64_t i = 0; i < w->n_item; i++) {
        if (bytes >= PART_BYTES) {
            w->part[w->n_part++].first = i;
            bytes = 0;
        }
        w->part[w->n_part - 1].n++;
        bytes += item_bytes(&w->item[i]);
    }
    return CT_OK;
}

/* One line for the first thing that has no token. */
static ct_status report(const work *w, const part *p)
{
    char where[64] = "";
    uint32_t c = p->bad_character;

    if (p->bad == NULL) return p->status; /* said already */
    if ((p->bad >= w->text) && (p->bad < w->end)) {
        long long line = 1;

        for (const uint8_t *q = w->text; q < p->bad; q++) line += (*q == '\n');
        snprintf(where, sizeof(where), ":%lld", line);
    }
    if ((c & 0x80000000u) != 0)
        return CT_FAIL(CT_ERR_DATA, "%s%s: %s has no token for byte 0x%02x%s", w->source, where,
                       w->t->source, c & 0xff,
                       (w->t->model == CT_MODEL_CHARS) ? ", which is no UTF-8 here" : "");
    return CT_FAIL(CT_ERR_DATA, "%s%s: %s has no token for the character U+%04X", w->source, where,
                   w->t->source, c);
}

static ct_status hand_over(work *w, ct_ids_sink sink, void *ctx)
{
    for (int64_t first = 0; first < w->n_part; first += BATCH) {
        int64_t n = (w->n_part - first < BATCH) ? w->n_part - first : BATCH;

        encode_parts(w, first, n);
        for (int64_t i = first; i < first + n; i++)
            if (w->part[i].status != CT_OK) return report(w, &w->part[i]);
        for (int64_t i = first; i < first + n; i++) {
            CT_TRY(sink(ctx, w->part[i].ids.id, w->part[i].ids.n));
            ct_ids_destroy(&w->part[i].ids);
        }
    }
    return CT_OK;
}

ct_status ct_tokenizer_encode_to(const ct_tokenizer *t, const char *text, size_t n, bool special,
                                 const char *source, ct_ids_sink sink, void *ctx)
{
    work w = { .t = t, .source = source, .text = (const uint8_t *)text, .special = special };
    ct_status status;

    if (t->model == CT_MODEL_WORDS) return ct_word_list_encode(t, w.text, n, source, sink, ctx);
    w.end = w.text + n;
    index_added(&w);
    status = cut_at_added(&w, w.text, w.end, false, add_raw);
    if (status == CT_OK) status = group(&w);
    if (status == CT_OK) status = hand_over(&w, sink, ctx);
    for (int64_t i = 0; i < w.n_part; i++) ct_ids_destroy(&w.part[i].ids);
    for (int64_t i = 0; i < w.n_form; i++) free(w.form[i]);
    free(w.form);
    free(w.part);
    free(w.item);
    return status;
}

static ct_status append(void *ctx, const int32_t *id, int64_t n)
{
    return ct_ids_add(ctx, id, n);
}

ct_status ct_tokenizer_encode(const ct_tokenizer *t, const char *text, size_t n, bool special,
                              const char *source, ct_ids *ids)
{
    return ct_tokenizer_encode_to(t, text, n, special, source, append, ids);
}
