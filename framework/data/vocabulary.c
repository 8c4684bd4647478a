#include "framework/data/vocabulary.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/hash.h"

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a vocabulary");
}

void ct_vocabulary_destroy(ct_vocabulary *v)
{
    for (int64_t i = 0; i < v->n; i++) free(v->word[i].text);
    free(v->word);
    free(v->slot);
    *v = (ct_vocabulary){ 0 };
}

static uint64_t hash_of(const char *word, size_t length)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, word, length);
    return ct_hash_value(&h);
}

static bool same(const ct_word *w, const char *word, size_t length)
{
    return (w->length == length) && (memcmp(w->text, word, length) == 0);
}

/* Where the word's number stands or would stand; n_slot is a power of two and never full. */
static int64_t find_slot(const ct_vocabulary *v, const char *word, size_t length)
{
    int64_t at = (int64_t)(hash_of(word, length) & (uint64_t)(v->n_slot - 1));

    while ((v->slot[at] >= 0) && !same(&v->word[v->slot[at]], word, length))
        at = (at + 1) & (v->n_slot - 1);
    return at;
}

static ct_status make_slots(ct_vocabulary *v, int64_t n_slot)
{
    int32_t *slot = malloc((size_t)n_slot * sizeof(*slot));

    if (slot == NULL) return no_memory();
    free(v->slot);
    v->slot = slot;
    v->n_slot = n_slot;
    for (int64_t i = 0; i < n_slot; i++) slot[i] = -1;
    for (int64_t i = 0; i < v->n; i++)
        slot[find_slot(v, v->word[i].text, v->word[i].length)] = (int32_t)i;
    return CT_OK;
}

static ct_status make_room(ct_vocabulary *v)
{
    if (v->n == v->room) {
        int64_t room = (v->room == 0) ? 1024 : 2 * v->room;
        ct_word *word = realloc(v->word, (size_t)room * sizeof(*word));

        if (word == NULL) return no_memory();
        v->word = word;
        v->room = room;
    }
    return (2 * (v->n + 1) > v->n_slot) ? make_slots(v, 4 * v->room) : CT_OK;
}

int32_t ct_vocabulary_find(const ct_vocabulary *v, const char *word, size_t length)
{
    return (v->n > 0) ? v->slot[find_slot(v, word, length)] : -1;
}

ct_status ct_vocabulary_add(ct_vocabulary *v, const char *word, size_t length, int64_t count)
{
    int32_t number = ct_vocabulary_find(v, word, length);
    char *text;

    if (number >= 0) {
        v->word[number].count += count;
        return CT_OK;
    }
    if (v->n == INT32_MAX) return CT_FAIL(CT_ERR_DATA, "more than %d different words", INT32_MAX);
    CT_TRY(make_room(v));
    text = malloc(length + 1);
    if (text == NULL) return no_memory();
    memcpy(text, word, length);
    text[length] = '\0';
    v->word[v->n] = (ct_word){ text, length, count };
    v->slot[find_slot(v, text, length)] = (int32_t)v->n;
    v->n++;
    return CT_OK;
}

static bool is_special(const ct_word *w)
{
    return (strcmp(w->text, CT_WORD_END) == 0) || (strcmp(w->text, CT_WORD_UNKNOWN) == 0);
}

static int by_frequency(const void *pa, const void *pb)
{
    const ct_word *a = pa, *b = pb;

    if (a->count != b->count) return (a->count > b->count) ? -1 : 1;
    return strcmp(a->text, b->text);
}

ct_status ct_vocabulary_rank(ct_vocabulary *v, int64_t most)
{
    int64_t special = 0, kept = 0, plain = 0;

    if (v->n == 0) return CT_OK;
    qsort(v->word, (size_t)v->n, sizeof(v->word[0]), by_frequency);
    for (int64_t i = 0; i < v->n; i++) special += is_special(&v->word[i]);
    for (int64_t i = 0; i < v->n; i++) {
        bool keeps = (most == 0) || is_special(&v->word[i]) || (plain < most - special);

        plain += !is_special(&v->word[i]);
        if (keeps)
            v->word[kept++] = v->word[i];
        else
            free(v->word[i].text);
    }
    v->n = kept;
    return make_slots(v, v->n_slot);
}

ct_status ct_vocabulary_parse(ct_vocabulary *v, const char *text, size_t size, const char *source)
{
    const char *end = text + size;

    for (int64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)(((stop != NULL) ? stop : end) - text);

        if ((length > 0) && (text[length - 1] == '\r')) length--;
        if (length == 0)
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: an empty line; a vocabulary has a word a line",
                           source, (long long)line);
        for (size_t i = 0; i < length; i++) {
            if ((text[i] == ' ') || (text[i] == '\t') || (text[i] == '\0'))
                return CT_FAIL(CT_ERR_DATA,
                               "%s:%lld: a space in \"%.*s\"; a vocabulary has a word "
                               "a line",
                               source, (long long)line, (int)((length < 64) ? length : 64), text);
        }
        if (ct_vocabulary_find(v, text, length) >= 0)
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: \"%.*s\" is there twice", source, (long long)line,
                           (int)((length < 64) ? length : 64), text);
        CT_TRY(ct_vocabulary_add(v, text, length, 0));
        text = (stop != NULL) ? stop + 1 : end;
    }
    return (v->n > 0) ? CT_OK : CT_FAIL(CT_ERR_DATA, "%s: no words", source);
}
