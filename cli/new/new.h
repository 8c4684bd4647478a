/** @file new.h  What `cortado new` makes of a model and a data set; private to cli/new.
 *
 * It is read, fitted and tried in this order:
 *
 *   - new_set.c: what the net reads, pictures with labels and names, images with boxes, tokens or
 *     words of a text;
 *   - new_fit.c: sources, batches that the set has samples for, cuts and means of its pictures, the
 *     number of its classes; tests over all of its test set, steps, and where the rate falls;
 *   - new_boxes.c: the layers that tell classes of boxes, and those that make their scores;
 *   - new_text.c: vocabularies, and tables of their tokens;
 *   - verb_new.c: both phases of the net, before anything is written.
 */
#ifndef CT_NEW_H
#define CT_NEW_H

#include "framework/data/class_names.h"
#include "framework/proto/upgrade.h"
#include "framework/tensor/tensor.h"

/** What sets are made of, by the data layer that reads them. */
typedef enum {
    CT_NEW_PICTURES,
    CT_NEW_BOXES,
    CT_NEW_TOKENS,
    CT_NEW_WORDS,
    CT_NEW_N_KIND
} ct_new_kind;

/** A folder of sets as `cortado convert` writes it. */
typedef struct ct_new_set {
    ct_new_kind kind;
    char *train, *test;      /* absolute; test NULL: there is none */
    char *mean;              /* its mean.binaryproto; NULL: there is none */
    int64_t n_train, n_test; /* pictures, tokens or words */
    ct_shape shape;          /* of a picture */
    ct_class_names names;
    int64_t n_class;     /* classes, of boxes with the background; or ids of tokens, or words of the
                            vocabulary */
    char *tokenizer;     /* of tokens: an absolute path, or "bytes" */
    const char *pattern; /* its, borrowed; NULL: none              */
} ct_new_set;

/** The data layer that reads such a set, and a sample in the plural. */
const char *ct_new_kind_layer(ct_new_kind kind);
const char *ct_new_kind_samples(ct_new_kind kind);
/** Whether samples are pictures, with labels or with boxes. */
static inline bool ct_new_is_of_pictures(ct_new_kind kind)
{
    return (kind == CT_NEW_PICTURES) || (kind == CT_NEW_BOXES);
}
/** Of the first data layer of the net. CT_ERR_CONFIG, logged: it is none of these. */
ct_status ct_new_kind_of(const Ct__NetParameter *net, ct_new_kind *kind_p);
/** Reads a set of that kind. tokenizer: of its tokens, with its pattern; NULL: the one beside them.
 *  CT_ERR_IO: no set, CT_ERR_CONFIG: one of another kind, or no tokenizer, CT_ERR_DATA: labels that
 *  are no classes; logged. */
ct_status ct_new_set_read(const char *folder, ct_new_kind kind, const char *tokenizer,
                          const char *pattern, ct_new_set *s);
void ct_new_set_release(ct_new_set *s);

/** Has the net read the set, and tell its classes apart, or its tokens, or its words. weights: a
 *  file that training starts from; layers whose classes it does not have get other names, so that
 *  they start anew. CT_ERR_CONFIG, logged: what does not fit; CT_ERR_IO, CT_ERR_DATA: the weights.
 */
ct_status ct_new_fit_net(Ct__NetParameter *net, const ct_new_set *s, const char *weights);
/** Whether a data layer of the net wants a mean_file, and the file that stands for it. */
bool ct_new_wants_mean(const Ct__NetParameter *net);
ct_status ct_new_set_mean(Ct__NetParameter *net, const char *mean);
/** Tests over the whole test set, and as many steps as a set of this size needs. net: fitted. */
ct_status ct_new_fit_solver(Ct__SolverParameter *s, const Ct__NetParameter *net,
                            const ct_new_set *set);
/** Running statistics of BatchNorm that keep up in a short run. s: fitted. */
ct_status ct_new_fit_statistics(Ct__NetParameter *net, const Ct__SolverParameter *s);

/* ---- its parts */

/** Of a net that finds boxes: every MultiBoxLoss, DetectionOutput and DetectionEvaluate tells the
 *  set's classes apart, and what makes their scores has as many outputs. weights: layers that have
 *  another number of outputs there get other names, with a line each. CT_ERR_CONFIG, logged: there
 *  is no such layer, or what stands between it and its scores is not known. */
ct_status ct_new_fit_boxes(Ct__NetParameter *net, const ct_new_set *s, const char *weights);

/** A data layer that reads a text: source, batch, vocabulary and tokenizer. */
ct_status ct_new_fit_text(Ct__LayerParameter *l, const ct_new_set *s);
/** Whether the layer is in phase TEST alone. */
bool ct_new_is_of_test(const Ct__LayerParameter *l);
/** Samples of n tokens or words as such a layer cuts them: windows, or steps of all columns. */
int64_t ct_new_text_samples(const Ct__LayerParameter *l, int64_t n);
/** Tables of the text's tokens get a row for each. They, and `scores`, get other names where the
 *  weights, NULL: there are none, have another number of rows. */
ct_status ct_new_fit_tables(Ct__NetParameter *net, const ct_new_set *s, const char *weights,
                            Ct__LayerParameter *scores);

/** Fields by their names. */
__attribute__((format(printf, 3, 4))) ct_status
ct_new_set_field(ProtobufCMessage *m, const char *field, const char *fmt, ...);
ct_status ct_new_set_field_text(ProtobufCMessage *m, const char *field, const char *text);
ct_status ct_new_clear_field(ProtobufCMessage *m, const char *field);
/** The layer gets another name, by which no weights are for it, and `times` its rates. */
ct_status ct_new_rename(Ct__LayerParameter *l, double times);

#endif
