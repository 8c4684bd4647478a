/** @file square_tree.h  Sums of squares that have the same bits whoever holds the numbers.
 *
 * A *list* of numbers is cut into blocks of 64 Ki. Their sums, in double, are added up in the order
 * of the blocks. Sixteen numbers are a line; a block has 4096 of them. In a block, numbers of one
 * place in their lines are added up in a perfect binary tree over the lines: node (level, i) is the
 * sum of lines [i 2^level, (i + 1) 2^level). The root's sixteen sums are added up in halves. What a
 * list does not have is 0.
 *
 * So whoever holds some lines makes the nodes that he has all of, and who gets the nodes of all has
 * the sum. Squares of floats are exact in double, and a 0 changes no sum of squares. The order of
 * pieces, threads and vectors thus changes no bit. On the CPU.
 */
#ifndef CT_SQUARE_TREE_H
#define CT_SQUARE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CT_SQUARE_LINE = 16,
    CT_SQUARE_LEVELS = 12, /* of the root                                            */
    CT_SQUARE_BLOCK = CT_SQUARE_LINE << CT_SQUARE_LEVELS,
    CT_SQUARE_UNIT = 4096, /* numbers that a source gives at most; units divide blocks */
    CT_SQUARE_ARRAYS = 2   /* … of so many lists                                     */
};

struct ct_square_node;

/** Sums of several lists, under way. */
typedef struct ct_square_sums {
    int n;           /* lists */
    int n_block;     /* of all lists */
    int *first;      /* [n + 1] block of each list                                   */
    int64_t *count;  /* [n] its numbers                                              */
    int64_t *landed; /* [n] lines that are whole since ct_square_sums_begin(): see _join() */
    double *block;   /* [n_block] sum of one that is whole here, else 0              */
    int *head;       /* [n_block] its nodes, a chain of places in `node`; -1: none   */
    struct ct_square_node *node;
    int n_node, most;            /* made use of, and there is room for                           */
    int spare;                   /* chain of places that are free again                          */
    struct ct_square_node *part; /* [n_part] lines of which only a piece has come      */
    int n_part, most_part;
    double *unit; /* sums of units under way                                      */
} ct_square_sums;

/** Of n lists with count[i] numbers each. CT_ERR_NOMEM. */
ct_status ct_square_sums_open(const int64_t *count, int n, ct_square_sums *s);
void ct_square_sums_close(ct_square_sums *s); /* zeroed ones too */
static inline bool ct_square_sums_is_open(const ct_square_sums *s)
{
    return s->block != NULL;
}
/** Nothing has been added to lists [list, list + n). */
void ct_square_sums_begin(ct_square_sums *s, int list, int n);

/** x[k] = numbers [from, from + n) of list `list` + k of those that are added, n <= CT_SQUARE_UNIT.
 *  They may be made in room[k]. Called by several threads. */
typedef void (*ct_square_source)(const void *ctx, int64_t from, int64_t n,
                                 float room[][CT_SQUARE_UNIT], const float *x[]);

/** Numbers [from, from + count) of lists [list, list + n), n <= CT_SQUARE_ARRAYS; each number comes
 *  once, pieces in any order. What never comes of a line is 0. Outside of a parallel region by the
 *  team. CT_ERR_ARG, CT_ERR_NOMEM. */
ct_status ct_square_sums_make(ct_square_sums *s, int list, int n, int64_t from, int64_t count,
                              ct_square_source source, const void *ctx);
/** The same of one list; data[0] is number `from`. */
ct_status ct_square_sums_add(ct_square_sums *s, int list, int64_t from, int64_t count,
                             const float *data);

/** All has come of those lines of lists [list, list + n) that came in pieces: they count among
 * those that have landed. ct_square_sums_take() and ct_square_sums_of() do it, too. CT_ERR_NOMEM.
 */
ct_status ct_square_sums_join(ct_square_sums *s, int list, int n);

/** What others need to know of what was added here to lists [list, list + n). v is as long as
 *  ct_square_sums_length() says; n_open: nodes of all owners together. Owner k's nodes stand behind
 *  those of the ones before, of which there are `before`. Each number of v is 0 but for one owner,
 *  so any sum of them is exact. */
int64_t ct_square_sums_nodes(const ct_square_sums *s, int list, int n);
int64_t ct_square_sums_length(const ct_square_sums *s, int list, int n, int64_t n_open);
void ct_square_sums_put(const ct_square_sums *s, int list, int n, int64_t before, double *v);
/** The sum of all owners' v, in place of what was added here. CT_ERR_NOMEM. */
ct_status ct_square_sums_take(ct_square_sums *s, int list, int n, int64_t n_open, const double *v);

/** The sum of a list. Nothing is added to the list after that. CT_ERR_NOMEM. */
ct_status ct_square_sums_of(ct_square_sums *s, int list, double *sum_p);

#ifdef __cplusplus
}
#endif

#endif
