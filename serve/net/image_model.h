/** @file image_model.h  A net of pictures as what the server asks (serve/api/model.h).
 *
 * Requests of a batch run as one batch of their samples. infer takes samples x C x H x W by the
 * name of the net's Input, and gives every output by its name. A net whose first output is a number
 * for each class takes files of pictures, too, if C is 1 or 3.
 */
#ifndef CT_IMAGE_MODEL_H
#define CT_IMAGE_MODEL_H

#include "serve/api/model.h"
#include "serve/net/pictures.h"
#include "serve/net/sample_net.h"
#include "serve/schedule/batch_cost.h"

typedef struct ct_image_model ct_image_model;

/** The net is borrowed; pictures (NULL: no files are taken) become the model's, also where this
 *  fails. labels: a file with a name for each class. NULL: those that the net has as class_name, if
 *  any. place: what messages call it. CT_ERR_CONFIG, CT_ERR_IO, logged. */
ct_status ct_image_model_create(ct_sample_net *net, ct_pictures *pictures, const char *name,
                                const char *labels, const char *place, ct_image_model **m_p);
/** CT_ERR_CONFIG, logged: the net's input or outputs are others. */
ct_status ct_image_model_accepts(const ct_image_model *m, const ct_sample_net *net);
/** Runs on that net from now on, as ct_token_model_swap(). What becomes of pictures stays. */
void ct_image_model_swap(ct_image_model *m, ct_sample_net *net);
void ct_image_model_destroy(ct_image_model *m); /* NULL allowed */
const ct_served_model *ct_image_model_served(const ct_image_model *m);
/** Runs batches of growing size for about limit_s seconds, and says how long they took. */
ct_status ct_image_model_measure(ct_image_model *m, double limit_s, ct_batch_cost *cost);

#endif
