/** @file cortado.h  Cortado as a library: nets and their weights, forward and backward.
 *
 *     cortado_net *net;
 *     cortado_blob data, prob;
 *
 *     if ((cortado_net_open("deploy.prototxt", "net.caffemodel", CORTADO_TEST, &net) != CORTADO_OK)
 * || (cortado_net_blob(net, "data", &data) != CORTADO_OK) || (cortado_net_blob(net, "prob", &prob)
 * != CORTADO_OK)) { fprintf(stderr, "%s\n", cortado_error()); return 1;
 *     }
 *     fill(data.data, data.count);
 *     if (cortado_net_forward(net, NULL, NULL) == CORTADO_OK) use(prob.data, prob.count);
 *     cortado_net_close(net);
 *
 * Build with what `pkg-config --cflags --libs cortado` says.
 *
 * A call that fails returns a status other than CORTADO_OK, changes nothing that it was given to
 * fill, and leaves a text, which cortado_error() gives. No call ends the process. What a call is
 * given stays the caller's; what a call hands out is the library's, for as long as is said.
 *
 * Calls on one net come one after the other, from any thread. Calls on others may run at the same
 * time. MPI is called for solvers that were given a communicator, and for nothing else.
 *
 * Names and meanings of what is here stay as they are in all versions 0.x with the same x, and from
 * 1.0 on in all versions with the same first number. libcortado.so.N keeps its N as long.
 */
#ifndef CORTADO_CORTADO_H
#define CORTADO_CORTADO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define CORTADO_VERSION_MAJOR 0
#define CORTADO_VERSION_MINOR 1

/* ---- errors and messages */

typedef enum cortado_status {
    CORTADO_OK = 0,
    CORTADO_ERR_ARG = 1,     /* what a call was given is wrong: a NULL, a name that is not there */
    CORTADO_ERR_CONFIG = 2,  /* a net or solver says something wrong; the text has file and line */
    CORTADO_ERR_SHAPE = 3,   /* shapes do not fit together                                       */
    CORTADO_ERR_NOMEM = 4,   /* no memory                                                        */
    CORTADO_ERR_IO = 5,      /* a file is missing, short, damaged, or cannot be written          */
    CORTADO_ERR_DATA = 6,    /* a record, label or id out of its range                           */
    CORTADO_ERR_RUN = 7,     /* a device, MPI or a thread failed                                 */
    CORTADO_ERR_DIVERGED = 8 /* the loss is no number any more                                   */
} cortado_status;

/** "0.1.0". Static. */
const char *cortado_version(void);
/** Why the last call of this thread that failed did so; "": none did. The library's, until this
 *  thread's next call fails. */
const char *cortado_error(void);
/** "CORTADO_ERR_IO", or "unknown status". Static. */
const char *cortado_status_name(cortado_status status);

typedef enum cortado_level {
    CORTADO_LOG_ERROR,
    CORTADO_LOG_WARN,
    CORTADO_LOG_INFO,
    CORTADO_LOG_DEBUG
} cortado_level;

/** Messages up to `level` go to `sink`, a line each with its newline, from whatever thread has one.
 *  sink NULL: to nobody, which is how it begins. While no other call runs. */
void cortado_log_to(void (*sink)(void *ctx, const char *line), void *ctx, cortado_level level);

/** Computing takes so many threads from now on; 0: as OMP_NUM_THREADS says, or as many as this
 *  process may have cores, which is how it begins. While no other call runs. CORTADO_ERR_ARG: fewer
 *  than 0, or more than 4096. */
cortado_status cortado_set_threads(int n);

/** Random numbers of nets that are opened from now on, and of solvers whose file gives no
 *  random_seed: fillers, Dropout. It begins with 1 for nets, and for solvers with the clock. While
 *  no other call runs. */
void cortado_set_seed(uint32_t seed);

/* ---- nets */

typedef enum cortado_phase { CORTADO_TRAIN, CORTADO_TEST } cortado_phase;

typedef struct cortado_net cortado_net;

/** The net of a prototxt file. weights: files by layer name, commas between (.caffemodel of any
 *  age, .caffemodel.h5, .npz, .safetensors, .gguf); NULL: as the net's fillers make them. It may be
 *  run backward in CORTADO_TRAIN, and where the file says force_backward. *net_p is closed with
 *  cortado_net_close(). CORTADO_ERR_CONFIG, _IO, _SHAPE, _DATA, _NOMEM. */
cortado_status cortado_net_open(const char *file, const char *weights, cortado_phase phase,
                                cortado_net **net_p);
/** The same of a net in memory; `name` stands for the file in messages. */
cortado_status cortado_net_open_text(const char *text, const char *name, const char *weights,
                                     cortado_phase phase, cortado_net **net_p);
void cortado_net_close(cortado_net *net); /* NULL allowed */

/* What is asked of a net or a solver that is NULL below: NULL, "" or 0. */

/** The net's name, as its file says it, or "". The net's. */
const char *cortado_net_name(const cortado_net *net);

/** Layers in the order in which they run, as the file names them. NULL: there is no such layer, or
 *  it has not so many bottoms or tops. The net's. */
int cortado_net_layer_count(const cortado_net *net);
const char *cortado_net_layer_name(const cortado_net *net, int layer);
const char *cortado_net_layer_type(const cortado_net *net, int layer);
const char *cortado_net_bottom_name(const cortado_net *net, int layer, int i);
const char *cortado_net_top_name(const cortado_net *net, int layer, int i);
/** How many weights it has; 0 where there is no such layer. */
int cortado_net_weight_count(const cortado_net *net, int layer);

/** Blobs by number, in the order in which layers make them; a name that several layers make counts
 *  once. Inputs are tops of Input layers; outputs are those that no layer reads. NULL behind the
 *  last. The net's. */
const char *cortado_net_blob_name(const cortado_net *net, int i);
const char *cortado_net_input_name(const cortado_net *net, int i);
const char *cortado_net_output_name(const cortado_net *net, int i);

/** What a loss counts by among the losses; 0: the blob is none. */
double cortado_net_loss_weight(const cortado_net *net, const char *blob);

/** Values in plain order, the last axis innermost. */
typedef struct cortado_blob {
    float *data, *diff; /* diff NULL: there is no gradient */
    int64_t count;      /* elements                        */
    int n_dim;          /* 0: one number                   */
    int64_t dim[8];
} cortado_blob;

/** A blob by its name. Its memory is the net's, stays where it is until the net is closed or
 *  reshaped, and has the values of the last run. What is written to an input is read by the next
 *  forward; what is written to another blob is read by a forward that begins behind the layer that
 *  makes it, and to its diff by a backward that begins there, but to that of a loss, which is
 *  its loss_weight. Where the file says force_backward, gradients begin at outputs that are no
 *  losses, too: what was written there, or 0. A blob that is asked for after a
 *  forward may be computed by the next call that reads it: then the forward runs once more, on the
 *  same batch. Behind a Filter a blob has the shape of the last run: where that may have changed,
 * it is asked for again. CORTADO_ERR_ARG names the nearest blob. */
cortado_status cortado_net_blob(cortado_net *net, const char *name, cortado_blob *blob);

/** Weight i of a layer: 0 as a rule the weights, 1 the bias. diff is its gradient. The memory is
 * the net's until it is closed. What is written there counts from the next forward on. */
cortado_status cortado_net_weight(cortado_net *net, const char *layer, int i, cortado_blob *blob);

/** Gives an input another shape, and all that follows from it. Blobs that were handed out are to be
 *  asked for again, and of nets that run backward gradients of weights; weights are not. Not of
 * nets that a solver has. CORTADO_ERR_SHAPE, _ARG: the net stays as it was. */
cortado_status cortado_net_reshape(cortado_net *net, const char *input, int n_dim,
                                   const int64_t *dim);

/** An input and the shape that it is to get. */
typedef struct cortado_shape {
    const char *input;
    int n_dim;
    int64_t dim[8];
} cortado_shape;

/** Memory of blobs that a net does not use any more. */
typedef struct cortado_kept cortado_kept;

/** The same of n inputs at once, for shapes that fit together only then. Blobs that were handed out
 *  keep their memory, with the values of before, until cortado_kept_free(*kept_p). */
cortado_status cortado_net_reshape_inputs(cortado_net *net, int n, const cortado_shape *shape,
                                          cortado_kept **kept_p);
void cortado_kept_free(cortado_kept *kept); /* NULL allowed */

/** Runs layers `from` to `to`, both included, by name; NULL: from the first, to the last. Data
 *  layers give the next batch each time. */
cortado_status cortado_net_forward(cortado_net *net, const char *from, const char *to);
/** Runs backward through layers `from` down to `to`, after a forward; NULL: from the last, to the
 *  first. Gradients of weights are those of this batch. CORTADO_ERR_ARG where the net has none. */
cortado_status cortado_net_backward(cortado_net *net, const char *from, const char *to);
/** The weighted loss of the last forward; 0 without a loss. */
double cortado_net_loss(const cortado_net *net);

/** From now on the net's layers have the weights of those of `other` that are called the same, in
 *  the same memory; weights are to be asked for again. A net that runs backward has gradients of
 *  them of its own, and runs forward before its next backward. `other` is closed after the net.
 *  CORTADO_ERR_SHAPE, _CONFIG: a layer has weights of other shapes there, or of another number;
 *  _ARG: a solver has the net. The net stays as it was. */
cortado_status cortado_net_share(cortado_net *net, const cortado_net *other);

/** Copies weights by layer name from files, as cortado_net_open() does. CORTADO_ERR_ARG for weights
 * of a solver with `outer`: cortado_solver_load() does it there. */
cortado_status cortado_net_load(cortado_net *net, const char *files);
/** Writes the weights; the suffix says how: .caffemodel, .caffemodel.h5, .npz or .safetensors. The
 *  file is there whole or not at all. */
cortado_status cortado_net_save(const cortado_net *net, const char *file);

/** Images as arrays, of bytes or of floats: values[((i * channels + c) * height + y) * width + x].
 */
typedef struct cortado_images {
    const unsigned char *bytes; /* one of both; the other is NULL */
    const float *floats;
    int64_t n, channels, height, width;
} cortado_images;

/** Images as a layer of type MemoryData wants them: transformed by its transform_param (crop,
 *  mirror, mean, scale), as Caffe does with those that a program adds. `to` gets n x channels x
 *  height x width of its memory_data_param. What is drawn is a function of the net's seed and of
 *  each image's place in the stream: `first`, first + 1 …; so ranks that share out a batch give
 *  the places of their parts. Nothing is written to the net's blobs. CORTADO_ERR_ARG, _SHAPE,
 *  _CONFIG, _DATA: `to` may be filled in part. */
cortado_status cortado_net_transform(const cortado_net *net, const char *layer,
                                     const cortado_images *images, int64_t first, float *to);

/* ---- layers of type "Python", which the program computes */

/** What a net says of such a layer: its name and its python_param. While open runs. */
typedef struct cortado_layer {
    const char *name, *module, *layer, *param_str;
    cortado_phase phase;
    int n_bottom, n_top;
    int rank, n_rank; /* of those that train together: each has a layer, which sees its samples */
} cortado_layer;

#define CORTADO_MOST_WEIGHTS 8

/** A weight that a layer asks for. Rates and names come from the net's `param`, as for any. */
typedef struct cortado_layer_weight {
    int n_dim;
    int64_t dim[8];
    const char *filler;  /* text of a FillerParameter, such as "type: 'xavier'", read at once; its
                          * numbers are those of other layers of that name. NULL: `values`        */
    const float *values; /* the first ones, until the layer's first forward; NULL: zeros. On several
                          * ranks those of rank 0 count                                          */
} cortado_layer_weight;

/** What a layer is; zeros mean what they say. */
typedef struct cortado_layer_form {
    int n_weight; /* at most CORTADO_MOST_WEIGHTS */
    cortado_layer_weight weight[CORTADO_MOST_WEIGHTS];
    int sums; /* of a layer with a loss_weight, on several ranks. 0: what it makes of the samples
               * that it is given is a mean over them, as Caffe's losses are, and counts by their
               * share of all. 1: it is a sum, and those of the ranks add up */
} cortado_layer_form;

/** The program's calls, none of them NULL. They return 0, or anything else where they fail: then
 *  they write the reason to why[0 .. n_why), with its NUL, and the call that ran the net fails with
 *  it. They come from the thread whose call runs the net. ctx is handed to all. */
typedef struct cortado_layer_calls {
    void *ctx;
    /** Makes what module and layer name; *made_p goes to the other calls. A net that gets another
     *  shape, or another net's weights, makes its layers anew. */
    int (*open)(void *ctx, const cortado_layer *layer, void **made_p, char *why, size_t n_why);
    /** Once, behind open: fills in what the layer is. Bottoms have a shape and no memory yet. */
    int (*setup)(void *ctx, void *made, const cortado_blob *bottom, cortado_layer_form *form,
                 char *why, size_t n_why);
    /** Sets n_dim and dim of each top. No blob has memory yet. */
    int (*reshape)(void *ctx, void *made, const cortado_blob *bottom, cortado_blob *top, char *why,
                   size_t n_why);
    /** Writes the tops' data. The weights' memory is the net's. */
    int (*forward)(void *ctx, void *made, const cortado_blob *bottom, const cortado_blob *top,
                   const cortado_blob *weight, char *why, size_t n_why);
    /** Writes the diff of each bottom and of each weight that has one, from the tops' diff; they
     *  are 0 before. A weight's is of this batch: the net adds up what belongs together. */
    int (*backward)(void *ctx, void *made, const cortado_blob *bottom, const cortado_blob *top,
                    const cortado_blob *weight, char *why, size_t n_why);
    void (*close)(void *ctx, void *made);
} cortado_layer_calls;

/** Who computes layers of type "Python" in nets and solvers that are opened from now on. NULL:
 *  nobody, and such nets are refused, which is how it begins. While no net with such layers is
 * open, and no other call runs. calls is copied. CORTADO_ERR_ARG: one of them is NULL. */
cortado_status cortado_layers_by(const cortado_layer_calls *calls);

/* ---- pictures */

/** Rows of pixels, of 1 channel or of red, green, blue: pixels[(y * width + x) * channels + c]. */
typedef struct cortado_image {
    unsigned char *pixels;
    int64_t height, width;
    int channels;
} cortado_image;

/** An image file (JPEG, PNG, WebP, TIFF) as 1 channel, which is gray, or 3; turned as EXIF says,
 * transparency dropped. Freed with cortado_image_free(). CORTADO_ERR_IO, _DATA; _CONFIG: the kind
 * is not built in. */
cortado_status cortado_image_read(const char *file, int channels, cortado_image *image);
void cortado_image_free(cortado_image *image);

/* ---- solvers: training as `cortado train` does it, on this process or on several ranks */

typedef struct cortado_solver cortado_solver;

typedef enum cortado_keep {
    CORTADO_KEEP_OUTPUTS, /* of the solver's nets inputs and outputs can be looked at, and weights
                           */
    CORTADO_KEEP_ALL /* all blobs, with their gradients; steps are slower, and take more memory */
} cortado_keep;

/** The solver of a prototxt file, with its nets. Paths in it are those of the file's folder where
 *  there is none as given. Closed with cortado_solver_close(). CORTADO_ERR_CONFIG, _IO, _SHAPE,
 *  _DATA, _NOMEM. */
cortado_status cortado_solver_open(const char *file, cortado_keep keep, cortado_solver **solver_p);
/** The same with settings as `cortado train --set` takes them, "base_lr=0.1" or
 * "comm.overlap=false", NULL behind the last; they take the place of what the file says. */
cortado_status cortado_solver_open_with(const char *file, const char *const *settings,
                                        cortado_keep keep, cortado_solver **solver_p);
/** The same, with settings or NULL, on several ranks, which train the net together as a job of
 * `cortado train` does.
 *
 *  mpi_comm: the address of an MPI_Comm, which this header does not name for those who have none;
 *  NULL: this process alone, and MPI is not called. MPI runs, with MPI_THREAD_FUNNELED or more;
 *  `comm { progress: THREAD }` needs MPI_THREAD_SERIALIZED. The communicator is duplicated, and may
 *  be freed after this call. Rank 0 reads `file`,
 *  and its settings count. Ranks of a node share its cores, where nobody said how many threads; so
 * no other call runs meanwhile.
 *
 *  This call, and all those on the solver but cortado_solver_iteration(), _net() and _test_net(),
 *  are collective: every rank makes them, in one order, from the thread that opened the solver. So
 *  are runs of its nets that have sums over the ranks, such as SyncBN. Where a call fails on one
 *  rank it fails on all, with one status; cortado_error() says what that rank has found. A rank
 * that fails in the middle of what others wait for tells them. Then they all fail, and the solver
 * can only be closed. CORTADO_ERR_ARG where MPI does not run. */
cortado_status cortado_solver_open_on(const char *file, const char *const *settings,
                                      cortado_keep keep, const void *mpi_comm,
                                      cortado_solver **solver_p);
/** NULL allowed. Collective. Its memory stays where ranks cannot let go of it together: after an
 * error as above, or after MPI_Finalize. */
void cortado_solver_close(cortado_solver *solver);

/** n steps, with the tests, snapshots and messages that are due among them; max_iter does not
 * count. CORTADO_ERR_DIVERGED: the loss is no number. */
cortado_status cortado_solver_step(cortado_solver *solver, int64_t n);
/** All steps up to max_iter, and what comes at the end: the last snapshot, the last test. */
cortado_status cortado_solver_run(cortado_solver *solver);
int64_t cortado_solver_iteration(const cortado_solver *solver);
/** Who looks into steps. Both may be NULL. They return 0, or anything else where they fail: then
 *  they write the reason to why[0 .. n_why), with its NUL, and the call that makes steps fails.
 * They come from its thread. */
typedef struct cortado_step_calls {
    void *ctx;
    /** A step begins. What is written to blobs of Input and MemoryData counts in it. */
    int (*start)(void *ctx, char *why, size_t n_why);
    /** The weights' gradients are there, of all iter_size batches added up, and may be changed. No
     *  weight has changed. */
    int (*gradients)(void *ctx, char *why, size_t n_why);
} cortado_step_calls;

/** From the next step on; NULL: nobody. calls is copied. CORTADO_ERR_CONFIG: `gradients` on several
 *  ranks, or with compression, memory, clip_gradients, type LARS or LAMB. */
cortado_status cortado_solver_watch(cortado_solver *solver, const cortado_step_calls *calls);
/** The checksum of all weights that `cortado train` prints at its end. */
cortado_status cortado_solver_checksum(cortado_solver *solver, uint64_t *checksum);

/** Copies weights by layer name from files, as cortado_net_open() does. */
cortado_status cortado_solver_load(cortado_solver *solver, const char *files);
/** Writes a snapshot set at snapshot_prefix. CORTADO_ERR_CONFIG: there is none. */
cortado_status cortado_solver_snapshot(cortado_solver *solver);
/** Goes on from FILE.solverstate.h5, or from "auto", the newest good set of snapshot_prefix, where
 *  there is one. CORTADO_ERR_IO, _DATA. */
cortado_status cortado_solver_restore(cortado_solver *solver, const char *file);

/** The net that learns, and test net i; NULL: there are not so many. The solver's, and never closed
 *  by the caller. What is done to their weights counts in the next step. A forward of the net that
 *  learns takes the batch of the step that is next. */
cortado_net *cortado_solver_net(cortado_solver *solver);
cortado_net *cortado_solver_test_net(cortado_solver *solver, int i);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
