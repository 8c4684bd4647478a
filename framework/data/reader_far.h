/** @file reader_far.h  A data set that another rank of the node reads.
 *
 * Such a reader knows what the set looks like and decodes what the other rank fetched (feed.h).
 * Read from directly it opens the set after all: for records that do not fit the memory that the
 * ranks share, and where there is none.
 */
#ifndef CT_READER_FAR_H
#define CT_READER_FAR_H

#include "framework/data/reader.h"

/** What a rank that does not read needs to know: plain bytes, for ranks of one machine. */
typedef struct ct_reader_facts {
    int64_t count, largest, bytes, stripes;
    ct_shape field[CT_MAX_FIELD];
    int n_field, n_file;
    bool same_shape, u8;
} ct_reader_facts;

void ct_reader_tell(const ct_reader *r, ct_reader_facts *facts_p);
/** The reader of a set that somebody else has open. CT_ERR_NOMEM, CT_ERR_CONFIG; logged. */
ct_status ct_reader_open_far(const char *backend, const ct_reader_options *options,
                             const ct_reader_facts *facts, ct_reader **reader_p);
/** True where the backend can be read by one rank for others. */
bool ct_reader_can_feed(const char *backend);

#endif
