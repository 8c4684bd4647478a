/** @file report.h  What a run says: the log in Caffe's grammar, metrics as JSON lines, a progress
 * line.
 *
 * Rank 0 reports; on the others every function returns at once. The metrics file is the interface
 * for programs: one object a line, fields are only ever added.
 */
#ifndef CT_REPORT_H
#define CT_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/base/sync_stats.h"
#include "framework/base/text.h"
#include "framework/net/net.h"

typedef struct ct_report ct_report;

typedef struct ct_report_options {
    int rank;
    const char *metrics; /* file, NULL: none                                       */
    const char *events;  /* folder of event files for TensorBoard, NULL: none      */
    bool append;         /* on resume: a last line cut short by a crash is removed */
    bool progress;       /* a progress line where stderr is a terminal             */
} ct_report_options;

/** CT_ERR_CONFIG, logged, where path is a file that is not empty: the metrics of an earlier run.
 *  more: what else than --overwrite helps, behind it; "": nothing. Rank 0 calls it. */
ct_status ct_report_spare(const char *path, const char *more);
/** The same of a folder of event files. CT_ERR_IO, logged: what is in it cannot be seen. */
ct_status ct_report_spare_events(const char *folder, const char *more);
/** Replaces the file, or appends to it. */
ct_status ct_report_create(const ct_report_options *options, ct_report **report_p);
/** Closes its files, after the last event; some file systems write only then. What is reported
 * later goes into the log alone. NULL allowed. CT_ERR_IO, logged: what was written may be lost. */
ct_status ct_report_close(ct_report *r);
void ct_report_destroy(ct_report *r); /* NULL allowed; ends the progress line */

/** Elements of all outputs of a net together: the length of an event's output[]. An output whose
 *  elements are samples has that many lines, as in Caffe. */
int64_t ct_report_n_output(const ct_net *net);
/** True where output i of net is the loss of a text, the cross-entropy per word or token: e to its
 *  power is the perplexity. */
bool ct_report_is_of_words(const ct_net *net, int i);
/** Bits that a byte of the text takes where its tokens take `loss` nats each: loss / ln 2 x tokens
 * / bytes. NAN: the size is not known. */
double ct_report_bits_per_byte(double loss, const ct_text_size *text);

/** {"event":"run", …}: the fields are those of a ct_json_members_into(). */
ct_status ct_report_run(ct_report *r, const char *fields);

typedef struct ct_report_train_event {
    int64_t iteration, max_iteration;
    double epoch;      /* passes over the data set so far; NAN: its size is unknown */
    double loss, rate; /* loss: smoothed by average_loss         */
    double iterations_per_s, seconds; /* since the last display                */
    int64_t iterations;               /* how many that were                     */
    double images_per_s;
    double tokens_per_s;                              /* 0: the net has no tokens */
    double wait_data_ms, compute_ms, comm_exposed_ms; /* per step              */
    int64_t bytes_sent;                               /* payload per rank and step              */
    int64_t broken_samples; /* that others stood in for, in this run so far; 0: nothing is said */
    ct_codec_totals codec;  /* of these iterations; n_coded 0: no more is said */
    const ct_net *net;
    const double *output; /* one mean per element of net's outputs  */
} ct_report_train_event;

/** `Iteration N (…), loss = L`, `    Train net output #0: …`, `Iteration N, lr = …` and the
 *  train event. A number that is not finite is null in the metrics. Train and test events have
 *  "time", seconds since 1970, so that the times of a resumed run follow those of the one before.
 *  CT_ERR_IO: as all of these where the metrics file cannot be written. */
ct_status ct_report_train(ct_report *r, const ct_report_train_event *e);
/** `Iteration N, Testing net (#i)`, `    Test net output #0: …` and the test event; where the data
 * is a text also `    Test net perplexity: …`, e to the power of the loss, and, where `text` is
 * known, which all ranks together evaluated, `    Test net bits_per_byte: …`. */
ct_status ct_report_test_start(ct_report *r, int64_t iteration, int net_index);
ct_status ct_report_test(ct_report *r, int64_t iteration, double epoch, int net_index,
                         const ct_net *net, const double *output, const ct_text_size *text);
/** {"event":"best","iter":…,"metric":…,"value":…,"rank":…}, and a line in the log: this test is the
 *  rank-th best so far, from 1 on. */
ct_status ct_report_best(ct_report *r, int64_t iteration, const char *metric, double value,
                         int rank);
/** A warning with how many broken samples others stood in for, where there were any. `in`:
 * "training", "testing". */
void ct_report_broken(ct_report *r, const char *in, int64_t samples);
/** {"event":"compression", …}: fields as in ct_report_run(). What it did in the whole run. */
ct_status ct_report_compression(ct_report *r, const char *fields);
/** {"event":"done", …}: fields as in ct_report_run(). */
ct_status ct_report_done(ct_report *r, const char *fields);
/** `Iteration N, loss = L`: the pass after the last update. No event. */
void ct_report_final_loss(ct_report *r, int64_t iteration, double loss);
/** Moves the progress line, at most ten times a second. */
void ct_report_progress(ct_report *r, int64_t iteration, int64_t max_iteration, double loss,
                        double images_per_s);

/* ---- One line at the bottom of a terminal that moves; private to framework/report.
 *
 * While it is shown, log lines go through it: they erase it first and it is drawn again below.
 */

typedef struct ct_progress ct_progress;

/** NULL in *progress_p where stderr is no terminal: nothing ever goes into a file. */
ct_status ct_progress_create(ct_progress **progress_p);

/** "  1200/10000  loss 0.1234  3120 images/s  3m12s left"; seconds_left < 0: unknown. */
void ct_progress_format(char *text, size_t size, int64_t iteration, int64_t max_iteration,
                        double loss, double images_per_s, double seconds_left);

/* ---- Event files for TensorBoard; private to framework/report.
 *
 * A file is a row of records (TensorFlow's TFRecord): length, masked CRC32C of it, bytes, masked
 * CRC32C of these. A record is a message Event of tensorflow/core/util/event.proto, here with a
 * Summary of scalars of 32 bits. The first event that has numbers comes behind a SessionLog START
 * of its step. Of a run that went on from a snapshot, or that overwrites another, readers drop what
 * earlier files of the folder have from that step on.
 */

typedef struct ct_event_file ct_event_file;

/** Makes the folder, and a new file in it. CT_ERR_IO, CT_ERR_NOMEM. */
ct_status ct_event_file_create(const char *folder, ct_event_file **f_p);
/** Closes it and frees f. NULL allowed. CT_ERR_IO: what was written may be lost. */
ct_status ct_event_file_close(ct_event_file *f);
void ct_event_file_destroy(ct_event_file *f); /* NULL allowed */
/** Appends "GROUP/NAME": v to a summary. */
void ct_event_add_scalar(ct_text *summary, const char *group, const char *name, double v);
/** Writes the summary as an event, whole or not at all in the eyes of readers. CT_ERR_IO. */
ct_status ct_event_file_write(ct_event_file *f, int64_t step, const ct_text *summary);

#endif
