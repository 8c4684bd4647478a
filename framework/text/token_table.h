/** @file token_table.h  The tokens of a vocabulary by id and by their bytes, and merges of pairs.
 *
 * Private to framework/text.
 */
#ifndef CT_TOKEN_TABLE_H
#define CT_TOKEN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/base/text.h"

enum {
    CT_MAX_TOKENS = 1 << 24, /* ids are less: no vocabulary is near it */
    CT_MAX_TOKEN_BYTES = 1 << 20
};

/** A hash of short strings. */
uint64_t ct_token_hash(const uint8_t *bytes, size_t n);

typedef struct ct_token_entry {
    size_t at;      /* of its bytes in the table's */
    int32_t length; /* -1: the id has no token     */
    bool hidden;    /* not found by its bytes      */
} ct_token_entry;

typedef struct ct_token_table {
    ct_text bytes;
    ct_token_entry *token; /* by id                                   */
    int32_t n, room;       /* ids are less than n                     */
    int32_t *slot;         /* hash table of ids by bytes, -1: free    */
    int64_t n_slot;
} ct_token_table;

void ct_token_table_destroy(ct_token_table *t); /* zeroed ones allowed */
/** Gives the id its bytes. They find it from now on, unless `hidden` or where another id has the
 *  same. id in [0, CT_MAX_TOKENS), without bytes so far. CT_ERR_NOMEM. */
ct_status ct_token_table_set(ct_token_table *t, int32_t id, const uint8_t *bytes, size_t n,
                             bool hidden);
/** -1: none. */
int32_t ct_token_table_find(const ct_token_table *t, const uint8_t *bytes, size_t n);
bool ct_token_table_has(const ct_token_table *t, int64_t id);
/** The bytes of an id that has some. */
const uint8_t *ct_token_bytes(const ct_token_table *t, int32_t id, size_t *n_p);

/** Pairs of ids that become one, the pair of the lowest rank first. */
typedef struct ct_merges {
    struct ct_merge {
        int32_t left, right; /* left -1: free */
        int32_t rank, id;
    } * slot;
    int64_t n, n_slot;
} ct_merges;

void ct_merges_destroy(ct_merges *m); /* zeroed ones allowed */
/** CT_ERR_NOMEM. Of a pair that is there already nothing changes. */
ct_status ct_merges_add(ct_merges *m, int32_t left, int32_t right, int32_t rank, int32_t id);
/** NULL: the pair stays two. */
const struct ct_merge *ct_merges_find(const ct_merges *m, int32_t left, int32_t right);

/** What merging works in; grows as needed, freed by ct_merger_destroy(). */
typedef struct ct_merger {
    struct ct_symbol {
        int32_t id; /* -1: joined to the one in front */
        int32_t previous, next;
    } * symbol;
    struct ct_candidate {
        int32_t rank, at, id;
    } * heap;
    int64_t n, room, n_heap, room_heap;
} ct_merger;

void ct_merger_destroy(ct_merger *w);
/** Merges ids[n] in place as long as a pair of neighbours may be: the lowest rank first, of equal
 *  ones the first. Time n log n. CT_ERR_NOMEM, CT_ERR_DATA beyond 2^31 - 2 ids. */
ct_status ct_merger_run(ct_merger *w, const ct_merges *m, int32_t *ids, int64_t n, int64_t *n_p);

#endif
