/** @file serve_options.h  Options that the net's file gives: its message `serve`. */
#ifndef CT_SERVE_OPTIONS_H
#define CT_SERVE_OPTIONS_H

#include "framework/base/option.h"

/** Fields that are options of the verb, and the net's name, count where the command line and the
 *  environment give none; messages then name the file. Paths are of files beside the net, where
 * there is none as given. CT_ERR_CONFIG, CT_ERR_IO: the file, logged. */
ct_status ct_serve_options_take(ct_options *o, const char *model);

#endif
