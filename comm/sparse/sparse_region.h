/** @file sparse_region.h  The regions of an oktopk exchange: who adds up which elements.
 *
 * Private to exch_*.c. Regions should get equally many entries. Each rank tells with its result how
 * many came to its region and where; from all of that every rank moves the boundaries for the next
 * step, alike. So balancing costs no messages of its own.
 */
#ifndef CT_SPARSE_ALLREDUCE_REGION_H
#define CT_SPARSE_ALLREDUCE_REGION_H

#include <stdint.h>

#include "framework/base/status.h"

enum { CT_REGION_CUTS = 12, CT_REGION_BINS = 512 };

/** What a rank tells of its region; 64 bytes. */
typedef struct ct_region_news {
    float least;                  /* smallest magnitude that it kept; 0: none */
    uint32_t kept;                /* entries of its result                    */
    uint32_t wanted;              /* … that it would have kept, were there no limit  */
    uint32_t received;            /* entries that came, of all ranks           */
    uint32_t cut[CT_REGION_CUTS]; /* elements of the region before which 1/13, 2/13 … of them lie */
} ct_region_news;

typedef struct ct_regions {
    int n_region;
    int64_t n;
    int64_t *bound;  /* [n_region + 1] */
    int64_t *before; /* [n_region + 1] scratch */
    float threshold; /* magnitude from which a region keeps an entry; 0: not known yet */
} ct_regions;

ct_status ct_regions_create(int64_t n, int n_region, ct_regions *g);
void ct_regions_destroy(ct_regions *g);
/** The cuts, from a histogram of CT_REGION_BINS equal bins over `length` elements. */
void ct_region_cuts(const int64_t *bin, int64_t length, ct_region_news *news);
/** Moves boundaries and threshold on. news: [n_region], which nobody need believe: wrong ones make
 *  odd regions, that cover everything all the same. k: entries that all regions are to keep. */
void ct_regions_learn(ct_regions *g, const ct_region_news *const *news, int64_t k);

#endif
