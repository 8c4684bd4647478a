#include "framework/text/token_table.h"

#include <stdlib.h>
#include <string.h>

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a vocabulary");
}

static inline uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

uint64_t ct_token_hash(const uint8_t *bytes, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u, word;

    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = mix(h ^ word);
    }
    word = 0;
    if (n > 0) memcpy(&word, bytes, n); /* bytes may be NULL */
    return mix(h ^ word);
}

/* ---- tokens */

void ct_token_table_destroy(ct_token_table *t)
{
    ct_text_destroy(&t->bytes);
    free(t->token);
    free(t->slot);
    *t = (ct_token_table){ .n = 0 };
}

bool ct_token_table_has(const ct_token_table *t, int64_t id)
{
    return (id >= 0) && (id < t->n) && (t->token[id].length >= 0);
}

const uint8_t *ct_token_bytes(const ct_token_table *t, int32_t id, size_t *n_p)
{
    *n_p = (size_t)t->token[id].length;
    return (const uint8_t *)t->bytes.text + t->token[id].at;
}

static bool same(const ct_token_table *t, int32_t id, const uint8_t *bytes, size_t n)
{
    size_t length;
    const uint8_t *own = ct_token_bytes(t, id, &length);

    return (length == n) && (memcmp(own, bytes, n) == 0);
}

/* Where the id stands or would stand. */
static int64_t find_slot(const ct_token_table *t, const uint8_t *bytes, size_t n)
{
    int64_t at = (int64_t)(ct_token_hash(bytes, n) & (uint64_t)(t->n_slot - 1));

    while ((t->slot[at] >= 0) && !same(t, t->slot[at], bytes, n)) at = (at + 1) & (t->n_slot - 1);
    return at;
}

int32_t ct_token_table_find(const ct_token_table *t, const uint8_t *bytes, size_t n)
{
    return (t->n_slot > 0) ? t->slot[find_slot(t, bytes, n)] : -1;
}

static ct_status grow(ct_token_table *t, int32_t id)
{
    int32_t room = (t->room == 0) ? 512 : t->room;
    ct_token_entry *token;
    int32_t *slot;

    while (room <= id) room *= 2;
    if (room == t->room) return CT_OK;
    token = realloc(t->token, (size_t)room * sizeof(*token));
    if (token == NULL) return no_memory();
    t->token = token;
    slot = malloc((size_t)room * 2 * sizeof(*slot));
    if (slot == NULL) return no_memory();
    free(t->slot);
    t->slot = slot;
    t->room = room;
    t->n_slot = 2 * (int64_t)room;
    for (int64_t i = 0; i < t->n_slot; i++) slot[i] = -1;
    for (int32_t i = 0; i < t->n; i++) {
        size_t n;
        const uint8_t *bytes;
        int64_t at;

        if ((token[i].length < 0) || token[i].hidden) continue;
        bytes = ct_token_bytes(t, i, &n);
        at = find_slot(t, bytes, n);
        if (slot[at] < 0) slot[at] = i;
    }
    return CT_OK;
}

ct_status ct_token_table_set(ct_token_table *t, int32_t id, const uint8_t *bytes, size_t n,
                             bool hidden)
{
    int64_t at;

    CT_TRY(grow(t, id));
    while (t->n <= id) t->token[t->n++] = (ct_token_entry){ .length = -1 };
    if (t->bytes.text == NULL) ct_text_add_bytes(&t->bytes, "", 1); /* so that it is never NULL */
    t->token[id].at = t->bytes.length;
    ct_text_add_bytes(&t->bytes, (const char *)bytes, n);
    if (t->bytes.failed) return no_memory();
    t->token[id].length = (int32_t)n;
    t->token[id].hidden = hidden;
    if (hidden) return CT_OK;
    at = find_slot(t, bytes, n);
    if (t->slot[at] < 0) t->slot[at] = id;
    return CT_OK;
}

/* ---- merges */

void ct_merges_destroy(ct_merges *m)
{
    free(m->slot);
    *m = (ct_merges){ .slot = NULL };
}

static struct ct_merge *merge_slot(const ct_merges *m, int32_t left, int32_t right)
{
    uint64_t h = mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    int64_t at = (int64_t)(h & (uint64_t)(m->n_slot - 1));

    while ((m->slot[at].left >= 0) && ((m->slot[at].left != left) || (m->slot[at].right != right)))
        at = (at + 1) & (m->n_slot - 1);
    return &m->slot[at];
}

static ct_status grow_merges(ct_merges *m)
{
    ct_merges more = { .n_slot = (m->n_slot == 0) ? 1024 : 2 * m->n_slot };

    if (2 * (m->n + 1) <= m->n_slot) return CT_OK;
    more.slot = malloc((size_t)more.n_slot * sizeof(*more.slot));
    if (more.slot == NULL) return no_memory();
    for (int64_t i = 0; i < more.n_slot; i++) more.slot[i].left = -1;
    for (int64_t i = 0; i < m->n_slot; i++)
        if (m->slot[i].left >= 0)
            *merge_slot(&more, m->slot[i].left, m->slot[i].right) = m->slot[i];
    more.n = m->n;
    free(m->slot);
    *m = more;
    return CT_OK;
}

ct_status ct_merges_add(ct_merges *m, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    struct ct_merge *slot;

    CT_TRY(grow_merges(m));
    slot = merge_slot(m, left, right);
    if (slot->left >= 0) return CT_OK;
    *slot = (struct ct_merge){ left, right, rank, id };
    m->n++;
    return CT_OK;
}

const struct ct_merge *ct_merges_find(const ct_merges *m, int32_t left, int32_t right)
{
    const struct ct_merge *slot;

    if (m->n_slot == 0) return NULL;
    slot = merge_slot(m, left, right);
    return (slot->left >= 0) ? slot : NULL;
}

/* ---- merging: a list of symbols, and a heap of pairs, some of which are gone when their turn
 * comes */

void ct_merger_destroy(ct_merger *w)
{
    free(w->symbol);
    free(w->heap);
    *w = (ct_merger){ .symbol = NULL };
}

static ct_status make_room(ct_merger *w, int64_t n)
{
    int64_t room = (w->room == 0) ? 256 : w->room;
    void *symbol, *heap;

    if (n <= w->room) return CT_OK;
    if (n > INT32_MAX - 1)
        return CT_FAIL(CT_ERR_DATA, "a piece of %lld bytes without a place to cut it",
                       (long long)n);
    while (room < n) room *= 2;
    symbol = realloc(w->symbol, (size_t)room * sizeof(*w->symbol));
    if (symbol != NULL) w->symbol = symbol;
    /* a pair for each neighbour, and two for each merge */
    heap = realloc(w->heap, (size_t)room * 3 * sizeof(*w->heap));
    if (heap != NULL) w->heap = heap;
    if ((symbol == NULL) || (heap == NULL)) return no_memory();
    w->room = room;
    return CT_OK;
}

static inline bool before(struct ct_candidate a, struct ct_candidate b)
{
    return (a.rank != b.rank) ? a.rank < b.rank : a.at < b.at;
}

static void push(ct_merger *w, struct ct_candidate c)
{
    int64_t at = w->n_heap++;

    while ((at > 0) && before(c, w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = c;
}

static struct ct_candidate pop(ct_merger *w)
{
    struct ct_candidate first = w->heap[0], last = w->heap[--w->n_heap];
    int64_t at = 0, child;

    while ((child = 2 * at + 1) < w->n_heap) {
        if ((child + 1 < w->n_heap) && before(w->heap[child + 1], w->heap[child])) child++;
        if (!before(w->heap[child], last)) break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return first;
}

/* at: the left one, or -1 */
static void consider(ct_merger *w, const ct_merges *m, int32_t at)
{
    const struct ct_merge *merge;

    if ((at < 0) || (w->symbol[at].next < 0)) return;
    merge = ct_merges_find(m, w->symbol[at].id, w->symbol[w->symbol[at].next].id);
    if (merge != NULL) push(w, (struct ct_candidate){ merge->rank, at, merge->id });
}

/* Whether the pair still stands there. */
static bool is_alive(const ct_merger *w, const ct_merges *m, struct ct_candidate c)
{
    const struct ct_symbol *s = &w->symbol[c.at];
    const struct ct_merge *merge;

    if ((s->id < 0) || (s->next < 0)) return false;
    merge = ct_merges_find(m, s->id, w->symbol[s->next].id);
    return (merge != NULL) && (merge->rank == c.rank) && (merge->id == c.id);
}

ct_status ct_merger_run(ct_merger *w, const ct_merges *m, int32_t *ids, int64_t n, int64_t *n_p)
{
    int64_t kept = 0;

    CT_TRY(make_room(w, n));
    w->n_heap = 0;
    for (int64_t i = 0; i < n; i++)
        w->symbol[i] = (struct ct_symbol){ .id = ids[i],
                                           .previous = (int32_t)i - 1,
                                           .next = (i + 1 < n) ? (int32_t)i + 1 : -1 };
    for (int64_t i = 0; i + 1 < n; i++) consider(w, m, (int32_t)i);
    while (w->n_heap > 0) {
        struct ct_candidate c = pop(w);
        struct ct_symbol *s = &w->symbol[c.at];

        if (!is_alive(w, m, c)) continue;
        w->symbol[s->next].id = -1;
        s->id = c.id;
        s->next = w->symbol[s->next].next;
        if (s->next >= 0) w->symbol[s->next].previous = c.at;
        consider(w, m, s->previous);
        consider(w, m, c.at);
    }
    for (int32_t i = (n > 0) ? 0 : -1; i >= 0; i = w->symbol[i].next) ids[kept++] = w->symbol[i].id;
    *n_p = kept;
    return CT_OK;
}
