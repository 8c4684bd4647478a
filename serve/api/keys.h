/** @file keys.h  The keys that clients show: a file with one a line. */
#ifndef CT_API_KEYS_H
#define CT_API_KEYS_H

#include <stdbool.h>

#include "framework/base/status.h"

#define CT_KEY_BYTES 256 /* of a key at most */

typedef struct ct_api_keys ct_api_keys;

/** Empty lines, and those that begin with '#', are none. CT_ERR_IO: no such file; CT_ERR_CONFIG,
 *  logged with the line: no key at all, a key that is too long, or with other than visible ASCII.
 */
ct_status ct_api_keys_read(const char *path, ct_api_keys **keys_p);
void ct_api_keys_destroy(ct_api_keys *keys); /* NULL allowed */
/** Whether a request's Authorization is "Bearer KEY" with one of them; NULL is none. What is
 *  compared takes as long whichever byte differs, and whichever key it is. */
bool ct_api_keys_allow(const ct_api_keys *keys, const char *authorization);

#endif
