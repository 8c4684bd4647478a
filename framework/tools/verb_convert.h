/** @file verb_convert.h  `cortado convert KIND …`: data sets. Needs no MPI. */
#ifndef CT_VERB_CONVERT_H
#define CT_VERB_CONVERT_H

#include "framework/base/status.h"

/** argv[0] is "convert". CT_ERR_CONFIG: usage, logged. */
ct_status ct_verb_convert(int argc, char **argv);

#endif
