/** @file convert.h  Makes data sets out of what people have: idx files, CIFAR-10's batches, image
 * files, texts, and rendered digits out of nothing. The library behind `cortado convert`.
 */
#ifndef CT_CONVERT_H
#define CT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

/** Zero means the default. */
typedef struct ct_convert_options {
    const char *from; /* mnist, cifar10: the folder of the source files; images: of the classes' */
    const char
        *to; /* the folder of train_lmdb, test_lmdb (train.h5, test.h5); images: the data set */
    const char *backend; /* "lmdb" (NULL), "hdf5"                                                 */
    const char *mean;    /* also write the mean of the training set here; may be NULL             */
    const char *called;  /* mean: what the log calls `to`, which moves there later; NULL: `to`   */
    bool force;          /* replace what is there                                                */
    const char *list, *root; /* images: the list, and what stands in front of its paths           */
    int64_t height, width;   /* images: resize; 0: as they are                                    */
    const char *labelmap; /* annotated: Caffe-SSD's label map, or a name a line; may be NULL    */
    bool encoded, gray, shuffle; /* images: keep them compressed; one channel; mix the order */
    int64_t count; /* digits: training images, 0: 10000; a fifth of it for testing. text: words
                    * of the vocabulary, 0: all that occur */
    const char *vocabulary;          /* text: this one instead of its own; may be NULL   */
    const char *tokenizer;           /* text, tokens: a file, "char" or "bytes"; NULL: words */
    const char *pattern;             /* text, tokens: how a file of ranks splits; may be NULL */
    bool special;                    /* text: names of special tokens become their ids */
    int64_t train_bpe;               /* text: train byte-level BPE of so many tokens; 0: no */
    bool deploy;                     /* net: make the net for use of it */
    const char *weights;             /* net, of ONNX: write its weights here; may be NULL   */
    const char *sizes;               /* net, of ONNX: sizes of axes that have names; may be NULL */
    bool fixed_batch, external_data; /* model, to ONNX: for one batch; weights beside the file */
    const char *net;                 /* model: shapes and fields from this net; may be NULL */
    int64_t skip_broken;             /* images: so many may be broken, and are left out */
    double validation; /* images of `from`: this share of each class into the test set; 0: no */
    int64_t shards, stripe; /* LMDB in so many files, 0: one; records of a stripe, 0: 1024 */
    uint64_t seed;          /* digits, shuffle                                                   */
} ct_convert_options;

/** idx files, plain or .gz, as MNIST comes: {train,t10k}-{images,labels}. */
ct_status ct_convert_mnist(const ct_convert_options *o);
/** CIFAR-10's binary batches, plain or .gz: every *.bin of `from` (or its folder
 *  cifar-10-batches-bin) with data_batch or train in its name, and with test in its name. */
ct_status ct_convert_cifar10(const ct_convert_options *o);
/** The mean's name in a folder of sets whose images have one size. */
#define CT_MEAN_FILE "mean.binaryproto"
/** Image files by a list of "path label" into the set `to`. Or, of a folder `from` that has one for
 *  each class, into train_lmdb and, with `validation`, test_lmdb of the folder `to`. Beside these
 *  lie the names of the classes (class_names.h) and, where images are resized, their mean. The
 *  order is mixed then. The same sets for the same files and seed. */
ct_status ct_convert_images(const ct_convert_options *o);
/** Images with boxes, as files that are kept compressed. They come by a list of "image annotation",
 *  or of a folder of PASCAL VOC's form, `from`. They go into train_lmdb and, where it says which
 *  images are for testing, test_lmdb of the folder `to`. Annotations are VOC's XML files.
 *  o->labelmap numbers the classes; without it they are those that occur, in the order of their
 *  bytes, from 1 on. */
ct_status ct_convert_annotated(const ct_convert_options *o);
/** Text, a sentence a line; `from`: a folder with *train*.txt and, if there, *valid*.txt (or dev)
 * and *test*.txt, `to` one for train.h5, valid.h5, test.h5 and vocabulary.txt; or both a file. The
 *  vocabulary is train's; other words become <unk> where that is in it. CT_ERR_DATA, with file and
 *  line, where it is not. With `tokenizer` or `train_bpe` as ct_convert_to_tokens(). */
ct_status ct_convert_text(const ct_convert_options *o);
/** Texts as ids of tokens, raw in .bin files (framework/data/token_file.h); `from` and `to` as
 * above. A tokenizer that is made here (characters, trained BPE) is written as tokenizer.json
 * beside them, or as o->tokenizer says. CT_ERR_CONFIG: options that do not go together. */
ct_status ct_convert_to_tokens(const ct_convert_options *o);
/** The text `to` of the tokens `from`. */
ct_status ct_convert_from_tokens(const ct_convert_options *o);
/** The mean image of the data set `from` (backend as above), as .binaryproto `to`; logs the mean of
 *  each channel. */
ct_status ct_convert_mean(const ct_convert_options *o);
/** Rendered digits, 28 x 28, one channel: the same images for the same seed and count. */
ct_status ct_convert_digits(const ct_convert_options *o);

#endif
