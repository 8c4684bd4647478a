/** @file convert_net.h  `cortado convert net` and `convert solver`: old forms written anew. */
#ifndef CT_CONVERT_NET_H
#define CT_CONVERT_NET_H

#include "framework/data/convert.h"

/** Reads a net of any age, a prototxt or a binary file such as a .caffemodel (known by its bytes),
 *  and writes it in today's form to `to`: as text, or binary where `from` is. CT_ERR_CONFIG,
 *  CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_convert_net(const ct_convert_options *o);
/** The same of a solver prototxt: solver_type becomes type, nets within it come up to date. */
ct_status ct_convert_solver(const ct_convert_options *o);

#endif
