/** @file payload_piece.h  Pieces of many sparse payloads into one block of a vector. Private to
 * payload_add.c. */
#ifndef CT_PAYLOAD_PIECE_H
#define CT_PAYLOAD_PIECE_H

#include "comm/sparse/payload_impl.h"

enum {
    CT_PIECE_WINDOW = 32,  /* entries looked at in one go                                 */
    CT_PIECE_PART = 16384, /* elements of a part of a block: 64 KB, near the first cache   */
    CT_PIECE_PARTS = CT_PAYLOAD_BLOCK / CT_PIECE_PART,
    CT_PIECE_ROOM = CT_PIECE_PART + CT_PIECE_PART / 4 /* entries */
};

/** How far a payload has been read. */
typedef struct ct_piece_cursor {
    const void *index; /* of its first entry: u16 or u32, by the code                      */
    const void *value; /* … bf16 or float; NULL: all are the mean                          */
    uint32_t at;       /* next entry                                                       */
    uint32_t end;      /* of the block that is read, or of the payload: the entry after it */
    uint32_t count;    /* entries of the payload                                           */
    uint32_t some;     /* entries of a block, hardly ever more: so many are fetched ahead  */
    float mean;
} ct_piece_cursor;

/** Entries of a part that have yet to be added, in the order of the payloads. */
typedef struct ct_piece_bucket {
    float value[CT_PIECE_ROOM + CT_PIECE_WINDOW];
    uint16_t index[CT_PIECE_ROOM + CT_PIECE_WINDOW]; /* in the part */
    uint32_t n;
    bool begun; /* the part holds what was added before */
} ct_piece_bucket;

typedef struct ct_piece_run {
    ct_piece_cursor *at; /* [n_at] of all payloads                                    */
    int n_at;
    int first, last;         /* those that are added: first .. last - 1, all of one code  */
    uint32_t from;           /* the block's first index, relative as the code's indices are */
    uint32_t len;            /* elements of the block                                     */
    ct_piece_bucket *bucket; /* [PARTS]                                               */
    float *block;            /* [len]                                                 */
    bool clear;              /* what it held before does not count                    */
} ct_piece_run;

/** What lies in the block goes into the buckets, and of full ones into the block; the cursors move
 *  behind it. False where indices do not ascend; nothing outside is touched then either. */
bool ct_piece_split(ct_payload_code code, const ct_piece_run *run);
/** Adds what is in a bucket to its part, of len elements, and empties it. */
void ct_piece_drain(ct_piece_bucket *b, float *part, uint32_t len, bool clear);

#endif
