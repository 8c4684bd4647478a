/** @file pages.h  Which pages of a cache have which tokens of which sequence.
 *
 * A cache of keys and values has room for pages of CT_PAGE_TOKENS tokens, in each layer that keeps
 * any. A list is the pages of one sequence, in order; it gets all that it may need when it is
 * opened, so it never waits for one later. What is kept of a token depends on the tokens before it
 * alone. So sequences that begin alike share the pages of their beginning, and pages of a list that
 * was closed serve later ones until they are taken for other tokens, the least recently used first.
 *
 * Nothing here knows what a page holds. Any threads use a pool, one at a time each of its lists.
 */
#ifndef CT_PAGES_H
#define CT_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A multiple of what a panel of a product holds (CT_GEMM_MAX_WIDTH). */
enum { CT_PAGE_TOKENS = 32 };

typedef struct ct_page_pool ct_page_pool;

/** The pages of a sequence. */
typedef struct ct_page_list {
    int32_t *page; /* [n]                                            */
    int64_t n;
    int64_t length; /* tokens that it has                            */
    /* the pool's */
    int32_t fresh[CT_PAGE_TOKENS]; /* tokens of the page that is being filled */
    uint64_t last;                 /* what the page before it is known by     */
} ct_page_list;

/** n pages, at most INT32_MAX. CT_ERR_ARG, CT_ERR_NOMEM, logged. */
ct_status ct_page_pool_create(int64_t n, ct_page_pool **p_p);
void ct_page_pool_destroy(ct_page_pool *p); /* NULL allowed */

/** Room for `capacity` tokens of a sequence that begins with id[n]. Its length is what the pool has
 *  of them already: whole pages, and less than n tokens. *room_p false, and no list: not enough
 *  pages are free. CT_ERR_NOMEM, logged. */
ct_status ct_page_list_open(ct_page_pool *p, const int32_t *id, int64_t n, int64_t capacity,
                            ct_page_list *list, bool *room_p);
/** The next n tokens of the sequence are there; no more than it has room for. */
void ct_page_list_grow(ct_page_pool *p, ct_page_list *list, const int32_t *id, int64_t n);
void ct_page_list_close(ct_page_pool *p, ct_page_list *list);

/** Pages that no list has. */
int64_t ct_page_pool_free(ct_page_pool *p);
/** The length that a list would have, were it opened now. */
int64_t ct_page_pool_peek(ct_page_pool *p, const int32_t *id, int64_t n);
/** What pages hold is no more what it was: none is found by it. Lists keep theirs. */
void ct_page_pool_forget(ct_page_pool *p);
/** Pages for so many tokens. */
static inline int64_t ct_pages_of(int64_t tokens)
{
    return (tokens + CT_PAGE_TOKENS - 1) / CT_PAGE_TOKENS;
}

#ifdef __cplusplus
}
#endif

#endif
