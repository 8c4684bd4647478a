#include "framework/net/pages.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"

enum { NONE = -1 };

/* A full page is known by a number that no other page ever had; `before` is that of the page in
 * front of it, 0 in front of the first. So a page whose beginning was given away is never found. */
typedef struct page {
    int32_t id[CT_PAGE_TOKENS];
    uint64_t number, before; /* number 0: it cannot be found             */
    int32_t refs;            /* lists that have it                       */
    int32_t next;            /* of its bucket                            */
    int32_t older, newer;    /* of those that no list has                */
} page;

struct ct_page_pool {
    page *page;
    int64_t n, n_free;
    int32_t *bucket; /* [n_bucket] */
    int64_t n_bucket;
    int32_t oldest, newest; /* of those that no list has */
    uint64_t number;        /* the last one given        */
    pthread_mutex_t lock;
    bool made_lock;
};

ct_status ct_page_pool_create(int64_t n, ct_page_pool **p_p)
{
    ct_page_pool *p;

    if ((n < 1) || (n > INT32_MAX))
        return CT_FAIL(CT_ERR_ARG, "a cache of %" PRId64 " pages: 1 to %" PRId32 " are possible", n,
                       INT32_MAX);
    p = calloc(1, sizeof(*p));
    if (p != NULL) {
        p->page = calloc((size_t)n, sizeof(p->page[0]));
        p->bucket = calloc((size_t)n, sizeof(p->bucket[0]));
        p->made_lock = (pthread_mutex_init(&p->lock, NULL) == 0);
    }
    if ((p == NULL) || (p->page == NULL) || (p->bucket == NULL) || !p->made_lock) {
        ct_page_pool_destroy(p);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a table of %" PRId64 " pages", n);
    }
    p->n = p->n_free = p->n_bucket = n;
    for (int64_t i = 0; i < n; i++) {
        p->bucket[i] = NONE;
        p->page[i].older = (int32_t)(i - 1);
        p->page[i].newer = (i + 1 < n) ? (int32_t)(i + 1) : NONE;
    }
    p->newest = (int32_t)(n - 1);
    *p_p = p;
    return CT_OK;
}

void ct_page_pool_destroy(ct_page_pool *p)
{
    if (p == NULL) return;
    if (p->made_lock) (void)pthread_mutex_destroy(&p->lock);
    free(p->page);
    free(p->bucket);
    free(p);
}

int64_t ct_page_pool_free(ct_page_pool *p)
{
    int64_t n;

    (void)pthread_mutex_lock(&p->lock);
    n = p->n_free;
    (void)pthread_mutex_unlock(&p->lock);
    return n;
}

/* ---- finding pages by what they hold */

static int64_t bucket_of(const ct_page_pool *p, uint64_t before, const int32_t *id)
{
    uint64_t h = before;

    for (int i = 0; i < CT_PAGE_TOKENS; i++) h = ct_rng_key(h, (uint64_t)(uint32_t)id[i], 0);
    return (int64_t)(h % (uint64_t)p->n_bucket);
}

static int32_t find(const ct_page_pool *p, uint64_t before, const int32_t *id)
{
    int32_t i = p->bucket[bucket_of(p, before, id)];

    while ((i != NONE) && ((p->page[i].before != before) ||
                           (memcmp(p->page[i].id, id, sizeof(p->page[i].id)) != 0)))
        i = p->page[i].next;
    return i;
}

static void forget(ct_page_pool *p, int32_t i)
{
    page *g = &p->page[i];
    int32_t *at;

    if (g->number == 0) return;
    at = &p->bucket[bucket_of(p, g->before, g->id)];
    while (*at != i) at = &p->page[*at].next;
    *at = g->next;
    g->number = 0;
}

void ct_page_pool_forget(ct_page_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    for (int64_t i = 0; i < p->n; i++) {
        p->page[i].number = 0;
        p->bucket[i] = NONE;
    }
    (void)pthread_mutex_unlock(&p->lock);
}

/* ---- the queue of those that no list has */

static void leave(ct_page_pool *p, int32_t i)
{
    page *g = &p->page[i];

    *((g->older != NONE) ? &p->page[g->older].newer : &p->oldest) = g->newer;
    *((g->newer != NONE) ? &p->page[g->newer].older : &p->newest) = g->older;
    p->n_free--;
}

/* Pages that cannot be found are taken first. */
static void enter(ct_page_pool *p, int32_t i)
{
    page *g = &p->page[i];
    bool first = (g->number == 0);

    g->older = first ? NONE : p->newest;
    g->newer = first ? p->oldest : NONE;
    *((g->older != NONE) ? &p->page[g->older].newer : &p->oldest) = i;
    *((g->newer != NONE) ? &p->page[g->newer].older : &p->newest) = i;
    p->n_free++;
}

static void hold(ct_page_pool *p, int32_t i)
{
    if (p->page[i].refs++ == 0) leave(p, i);
}

static void let_go(ct_page_pool *p, int32_t i)
{
    if (--p->page[i].refs == 0) enter(p, i);
}

/* ---- lists */

/* Full pages of id[n] that another list may share: the last token's scores nobody kept. */
static int64_t most_shared(int64_t n)
{
    return (n > 0) ? (n - 1) / CT_PAGE_TOKENS : 0;
}

/* Holds those that begin as id[n] does. */
static int64_t share(ct_page_pool *p, const int32_t *id, int64_t n, ct_page_list *list)
{
    int64_t k = 0;

    for (; (k < list->n) && (k < most_shared(n)); k++) {
        int32_t i = find(p, list->last, id + k * CT_PAGE_TOKENS);

        if (i == NONE) break;
        hold(p, i);
        list->page[k] = i;
        list->last = p->page[i].number;
    }
    return k;
}

int64_t ct_page_pool_peek(ct_page_pool *p, const int32_t *id, int64_t n)
{
    uint64_t last = 0;
    int64_t k = 0;

    (void)pthread_mutex_lock(&p->lock);
    for (; k < most_shared(n); k++) {
        int32_t i = find(p, last, id + k * CT_PAGE_TOKENS);

        if (i == NONE) break;
        last = p->page[i].number;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return k * CT_PAGE_TOKENS;
}

/* False: there are not enough. With the lock held. */
static bool take_pages(ct_page_pool *p, const int32_t *id, int64_t n, ct_page_list *list)
{
    int64_t shared = share(p, id, n, list);

    if (p->n_free < list->n - shared) {
        while (shared > 0) let_go(p, list->page[--shared]);
        return false;
    }
    for (int64_t k = shared; k < list->n; k++) {
        int32_t i = p->oldest;

        forget(p, i);
        hold(p, i);
        list->page[k] = i;
    }
    list->length = shared * CT_PAGE_TOKENS;
    return true;
}

ct_status ct_page_list_open(ct_page_pool *p, const int32_t *id, int64_t n, int64_t capacity,
                            ct_page_list *list, bool *room_p)
{
    *list = (ct_page_list){ .n = ct_pages_of(capacity) };
    *room_p = false;
    if (list->n > p->n) return CT_OK;
    list->page = malloc((size_t)(list->n + 1) * sizeof(list->page[0]));
    if (list->page == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a sequence of %" PRId64 " tokens", capacity);
    (void)pthread_mutex_lock(&p->lock);
    *room_p = take_pages(p, id, n, list);
    (void)pthread_mutex_unlock(&p->lock);
    if (*room_p) return CT_OK;
    free(list->page);
    *list = (ct_page_list){ .page = NULL };
    return CT_OK;
}

/* Page k of the list is full. Where another list filled one alike meanwhile, that one is found. */
static void publish(ct_page_pool *p, ct_page_list *list, int64_t k)
{
    int32_t i = list->page[k], there = find(p, list->last, list->fresh);
    page *g = &p->page[i];
    int32_t *bucket;

    if (there != NONE) {
        list->last = p->page[there].number;
        return;
    }
    memcpy(g->id, list->fresh, sizeof(g->id));
    g->before = list->last;
    g->number = list->last = ++p->number;
    bucket = &p->bucket[bucket_of(p, g->before, g->id)];
    g->next = *bucket;
    *bucket = i;
}

void ct_page_list_grow(ct_page_pool *p, ct_page_list *list, const int32_t *id, int64_t n)
{
    (void)pthread_mutex_lock(&p->lock);
    for (int64_t i = 0; i < n; i++) {
        list->fresh[list->length++ % CT_PAGE_TOKENS] = id[i];
        if (list->length % CT_PAGE_TOKENS == 0) publish(p, list, list->length / CT_PAGE_TOKENS - 1);
    }
    (void)pthread_mutex_unlock(&p->lock);
}

/* The last pages come into the queue first, so that none is there longer than those behind it. */
void ct_page_list_close(ct_page_pool *p, ct_page_list *list)
{
    (void)pthread_mutex_lock(&p->lock);
    for (int64_t k = list->n; k > 0; k--) let_go(p, list->page[k - 1]);
    (void)pthread_mutex_unlock(&p->lock);
    free(list->page);
    *list = (ct_page_list){ .page = NULL };
}
