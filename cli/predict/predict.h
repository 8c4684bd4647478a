/** @file predict.h  What of `cortado predict` the kinds of nets share; private to cli/predict.
 *
 * The net says what is asked for: one of samples tells the classes of pictures (predict_classes.c),
 * or where a DetectionOutput is one of its outputs the boxes in them (predict_boxes.c); one of
 * tokens or words goes on with texts (predict_texts.c). The ranks of a job share the files; rank 0
 * prints, in the files' order, in one of these formats:
 *
 * - table: for people. Pictures: a line with probability, class and file, or one for each box.
 * Texts: of a single one what the net adds to it, alone and while it is made; of several each
 * behind a line "==> FILE <==".
 * - csv: as RFC 4180 has it, with a head. Pictures: file, class, and probability or score; of boxes
 *   a row each, which goes on with xmin, ymin, xmax and ymax. Texts: file and text.
 * - json: one object. Pictures: `classes` and `predictions`, each with `file`, `class`, the number
 *   of that class and `all` of them; or with `file` and `boxes`, where `classes` lacks the
 *   background. Texts: `continuations`, each with
 *     file            null where the text came by --prompt
 *     prompt, text    what the net went on with, and what it added
 *     prompt_tokens   and `tokens` of the two
 *     ended           whether the end token came before --max_tokens
 *
 * Of several crops of a picture (--crops) its numbers are the mean of the net's. Boxes have no
 * mean: crops are refused. Their corners are in pixels of the file's picture, the right way up, and
 * cut off at its edges.
 *
 * Files that cannot be read are told, and those of pictures left out of the result; a text that
 * cannot be read ends all, since nothing has been printed by then.
 *
 * Texts depend on the net, the prompt and the sampling alone: one rank, several of them, and
 * `cortado generate` make the same.
 */
#ifndef CT_PREDICT_H
#define CT_PREDICT_H

#include "cli/verb.h"
#include "framework/base/json_writer.h"
#include "serve/net/deployed.h"

typedef struct ct_predicting ct_predicting;

/** How results are written. */
typedef struct ct_predict_format {
    const char *name;
    void (*begin)(ct_predicting *p);
    void (*add)(ct_predicting *p, const char *file, const double *row);
    void (*end)(ct_predicting *p);
} ct_predict_format;

/** What a net says of a picture. A file has a row of numbers: 1 where it was read, 0 else; the
 *  others are the answer's. */
typedef struct ct_predict_answer {
    const char *names; /* how many class_name there are, for a message */
    /** Sets n_class and width by the net's output. CT_ERR_CONFIG, logged: an output, or options,
     *  that it cannot be. */
    ct_status (*take)(ct_predicting *p);
    /** The net has run n samples; file[n] says the row of each, frame[] is by rows. What it put out
     *  goes into `row`, of all rows. */
    void (*add)(const ct_predicting *p, const int64_t *file, const ct_picture_frame *frame,
                int64_t n, double *row);
    ct_predict_format format[3];
} ct_predict_answer;

extern const ct_predict_answer ct_predict_classes, ct_predict_boxes;

struct ct_predicting {
    ct_call *call;
    ct_deployed *net;
    ct_pictures *pictures;
    const ct_predict_answer *answer;
    int output;             /* of the net */
    int64_t n_class, width; /* width: numbers of a row */
    char *const *name;      /* of classes; NULL: they have numbers */
    const char *measure;    /* "probability", or "score" */
    char *paths;            /* of all files, each with its NUL */
    const char **file;
    int64_t n_file, n_bad;
    int crops;        /* of each picture, at least 1 */
    double *row;      /* of the files of a round */
    ct_text json;     /* what is not yet on standard output */
    ct_json_writer w; /* into it */
};

/** The name of a class, or its number, in `room`. */
const char *ct_predict_class(const ct_predicting *p, int64_t c, char room[24]);
/** The object, the names of all classes but one (-1: all), and the begin of `predictions`. */
void ct_predict_begin_json(ct_predicting *p, int64_t but);
/** What is there so far goes out; more follows in the same text. */
void ct_predict_put_json(ct_predicting *p);
void ct_predict_end_json(ct_predicting *p);
/** For formats without an end. */
void ct_predict_end_nothing(ct_predicting *p);

/** Goes on with the texts that options name, by the net of --model, which is one of tokens, or of
 *  words. The tokenizer, or the vocabulary, is --tokenizer, or what the net of --run says.
 *  Collective. CT_ERR_CONFIG: no text, no tokenizer, a text that does not fit the net; CT_ERR_IO,
 *  CT_ERR_DATA; logged. */
ct_status ct_predict_texts(ct_call *call, bool of_words);

/** A field of CSV on standard output: n bytes, which may be of value 0. */
void ct_predict_put_csv(const char *text, size_t n);

#endif
