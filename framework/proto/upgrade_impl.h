/** @file upgrade_impl.h  The steps of an upgrade. Private to framework/proto. */
#ifndef CT_UPGRADE_IMPL_H
#define CT_UPGRADE_IMPL_H

#include "framework/proto/upgrade.h"

typedef struct ct_upgrade {
    Ct__NetParameter *net;
    const char *file;
    ct_source_map *map; /* may be NULL */
} ct_upgrade;

/** Logs "FILE:LINE:COL: MESSAGE" with the place of `message`; CT_ERR_CONFIG. */
ct_status ct_upgrade_fail(const ct_upgrade *u, const void *message, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** `layers { }` (V1LayerParameter) to `layer { }`. */
ct_status ct_upgrade_v1(const ct_upgrade *u);
/** Folds V0's padding layers into the layers that read them. */
ct_status ct_upgrade_padding(const ct_upgrade *u);
/** What a V0 layer says in `layers { layer { } }`: name, type, blobs and parameters to `layer`, and
 *  rates to where V1 has them. */
ct_status ct_upgrade_v0(const ct_upgrade *u, Ct__V1LayerParameter *old, Ct__LayerParameter *layer);
/** Appends a new message to a repeated field of m, or sets an optional one. */
ct_status ct_upgrade_add(const ct_upgrade *u, ProtobufCMessage *m, const char *field,
                         const void *like, void *message_p);

#endif
