/* Solvers on the ranks of a communicator of the caller's: steps, and errors that all have alike. */
#include "tests/mpi/mpi_test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/cortado/cortado.h"

/* 12 samples of four classes a step on all ranks together. A rank has its share of them. */
#define NET                                                                                        \
    "net_param { name: 'tiny' "                                                                    \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { "    \
    "dim: 12 dim: 2 dim: 7 dim: 5 } shape { dim: 12 } data_filler { type: 'gaussian' std: 1 } "    \
    "data_filler { type: 'constant' value: 2 } } } "                                               \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param { "     \
    "num_output: 8 kernel_size: 3 weight_filler { type: 'msra' } } } "                             \
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' } "                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip' inner_product_param { "      \
    "num_output: 4 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } } "
/* The same of what the caller gives, 4 samples a rank. */
#define GIVEN                                                                                      \
    "net_param { name: 'given' "                                                                   \
    "layer { name: 'in' type: 'Input' top: 'data' top: 'label' input_param { shape { dim: 4 "      \
    "dim: 6 } shape { dim: 4 } } } "                                                               \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "      \
    "num_output: 4 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } } "
#define SOLVER                                                                                     \
    "base_lr: 0.02 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.001 max_iter: 12 "             \
    "random_seed: 5 snapshot_after_train: false deterministic: true "

typedef struct place {
    char folder[40], file[80];
    int rank, size;
} place;

static void write_file(const place *p, const char *net, const char *more)
{
    MPI_Barrier(MPI_COMM_WORLD); /* one may still read it, by itself */
    if (p->rank == 0) {
        FILE *f = fopen(p->file, "w");

        if (f == NULL) exit(3);
        fprintf(f, "%s" SOLVER "snapshot_prefix: '%s/s' %s", net, p->folder, more);
        fclose(f);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void write_solver(const place *p, const char *more)
{
    char text[200];

    snprintf(text, sizeof(text), "global_batch_size: 12 %s", more);
    write_file(p, NET, text);
}

static int make_place(void **state)
{
    place *p = calloc(1, sizeof(*p));

    if (p == NULL) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p->size);
    strcpy(p->folder, "/tmp/cortado-ranks-XXXXXX");
    if ((p->rank == 0) && (mkdtemp(p->folder) == NULL)) return 1;
    MPI_Bcast(p->folder, sizeof(p->folder), MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(p->file, sizeof(p->file), "%s/solver.prototxt", p->folder);
    write_solver(p, "");
    *state = p;
    return 0;
}

static int end_place(void **state)
{
    place *p = *state;
    char command[80];
    int rc = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(command, sizeof(command), "rm -rf %s", p->folder);
    if (p->rank == 0) rc = system(command);
    free(p);
    return rc;
}

/* Ranks that met one error: one status, and words on each of them. */
static int fails(cortado_status got, cortado_status want, const char *word)
{
    int fault = MPI_FAULT_UNLESS(got == want);

    fault += MPI_FAULT_UNLESS(strstr(cortado_error(), word) != NULL);
    if (fault > 0) fprintf(stderr, "%s: %s\n", cortado_status_name(got), cortado_error());
    return fault;
}

static int open_on(const place *p, cortado_solver **s_p)
{
    MPI_Comm comm = MPI_COMM_NULL;
    cortado_status status;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    status = cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, s_p);
    MPI_Comm_free(&comm); /* the solver has its own */
    if (status != CORTADO_OK) fprintf(stderr, "%s\n", cortado_error());
    return MPI_FAULT_UNLESS(status == CORTADO_OK);
}

/* The checksum after so many steps, the same on all ranks. */
static int steps(const place *p, int64_t n, uint64_t *sum_p)
{
    cortado_solver *s = NULL;
    uint64_t first;
    int fault = open_on(p, &s);

    if (fault > 0) return fault; /* on all ranks */
    fault += MPI_FAULT_UNLESS(cortado_solver_step(s, n) == CORTADO_OK);
    fault += MPI_FAULT_UNLESS(cortado_solver_iteration(s) == n);
    fault += MPI_FAULT_UNLESS(cortado_solver_checksum(s, sum_p) == CORTADO_OK);
    first = *sum_p;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(first == *sum_p);
    cortado_solver_close(s);
    return fault;
}

/* On one rank as without a communicator; `zero` changes no bit; a codec does. */
static void steps_are_a_jobs(void **state)
{
    const place *p = *state;
    cortado_solver *alone = NULL;
    uint64_t plain = 0, zero = 0, coded = 0, own = 1;
    int fault = steps(p, 6, &plain);

    fault +=
        MPI_FAULT_UNLESS(cortado_solver_open(p->file, CORTADO_KEEP_OUTPUTS, &alone) == CORTADO_OK);
    if (alone != NULL) {
        fault += MPI_FAULT_UNLESS(cortado_solver_step(alone, 6) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_checksum(alone, &own) == CORTADO_OK);
        cortado_solver_close(alone);
    }
    if (p->size == 1) fault += MPI_FAULT_UNLESS(own == plain);
    write_solver(p, "memory { zero: 3 }");
    fault += steps(p, 6, &zero);
    fault += MPI_FAULT_UNLESS(zero == plain);
    write_solver(p, "compression { type: TOPK density: 0.1 min_bytes: 64 }");
    fault += steps(p, 6, &coded);
    fault += MPI_FAULT_UNLESS(coded != plain);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* A snapshot is the job's: one rank goes on from it, and so do all. */
static void snapshots_go_on(void **state)
{
    const place *p = *state;
    cortado_solver *s = NULL, *other = NULL;
    uint64_t sum = 0, again = 1;
    int fault = open_on(p, &s) + open_on(p, &other);

    if (fault == 0) {
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 3) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_snapshot(s) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 3) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_restore(other, "auto") == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_step(other, 3) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_checksum(s, &sum) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_checksum(other, &again) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(sum == again);
    }
    cortado_solver_close(s);
    cortado_solver_close(other);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* What one rank finds all have, and go on. */
static void errors_are_everybodys(void **state)
{
    const place *p = *state;
    MPI_Comm comm = MPI_COMM_WORLD;
    cortado_solver *s = NULL;
    cortado_blob w;
    int fault = 0;

    write_solver(p, "tpye: 'SGD'");
    fault += fails(cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &s),
                   CORTADO_ERR_CONFIG, "did you mean \"type\"?");
    write_solver(p, "compression { type: TOPK density: 2 }");
    fault += fails(cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &s),
                   CORTADO_ERR_CONFIG, "density");
    write_solver(p, "memory { path: '/nowhere' state: FILE }");
    fault += fails(cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &s),
                   CORTADO_ERR_CONFIG, "/nowhere");
    fault += fails(cortado_solver_open_on("/nowhere/s.prototxt", NULL, CORTADO_KEEP_ALL, &comm, &s),
                   CORTADO_ERR_IO, "/nowhere/s.prototxt");
    write_solver(p, "");
    fault += fails(cortado_solver_open_on(
                       p->file, NULL, (p->rank == p->size - 1) ? (cortado_keep)5 : CORTADO_KEEP_ALL,
                       &comm, &s),
                   CORTADO_ERR_ARG, "keep is 5");
    fault += MPI_FAULT_UNLESS(s == NULL);
    fault += open_on(p, &s);
    if (mpi_verdict(fault) == 0) {
        fault += fails(cortado_solver_restore(s, "/nowhere/n.solverstate.h5"), CORTADO_ERR_IO,
                       "n.solverstate.h5");
        fault += fails(cortado_solver_load(s, "/nowhere/w.npz"), CORTADO_ERR_IO, "w.npz");
        fault += MPI_FAULT_UNLESS(cortado_net_weight(cortado_solver_net(s), "conv", 0, &w) ==
                                  CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 2) == CORTADO_OK);
        if (p->rank == p->size - 1) w.data[0] = NAN; /* its loss alone */
        fault += fails(cortado_solver_step(s, 1), CORTADO_ERR_DIVERGED, "is not finite");
        cortado_solver_close(s);
    }
    assert_int_equal(mpi_verdict(fault), 0);
}

/* Losses by a matrix that one rank lacks. The list of images that follows nobody has: who gets as
 * far waits there for the others. */
#define LACKS                                                                                      \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { "    \
    "dim: 12 dim: 4 } shape { dim: 12 } } } "                                                      \
    "layer { name: 'p' type: 'Softmax' bottom: 'data' top: 'p' } "                                 \
    "layer { name: 'loss' type: 'InfogainLoss' bottom: 'p' bottom: 'label' top: 'loss' "           \
    "infogain_loss_param { source: 'matrix.binaryproto' } } "
#define LIST                                                                                       \
    "layer { name: 'more' type: 'ImageData' top: 'image' top: 'class' image_data_param { source: " \
    "'list.txt' batch_size: 12 } } "

/* 1 x 1 x 4 x 4 ones, as Caffe's BlobProto. */
static void write_matrix(void)
{
    static const unsigned char head[] = { 8, 1, 16, 1, 24, 4, 32, 4, 42, 64 };
    static const float one = 1;
    FILE *f = fopen("matrix.binaryproto", "wb");

    if (f == NULL) exit(3);
    fwrite(head, 1, sizeof(head), f);
    for (int i = 0; i < 16; i++) fwrite(&one, sizeof(one), 1, f);
    fclose(f);
}

/* Each rank has a folder of its own, and rank `lacks` no file in it. */
static void enter_folder(const place *p, int lacks)
{
    char name[80];

    snprintf(name, sizeof(name), "%s/%d", p->folder, p->rank);
    mkdir(name, 0700);
    if (chdir(name) != 0) exit(3);
    if (p->rank == lacks) {
        unlink("matrix.binaryproto");
        rmdir("states");
    } else {
        mkdir("states", 0700);
        write_matrix();
    }
}

static int opens_nowhere(const place *p, const char *net, const char *more, const char *word)
{
    cortado_solver *s = NULL;
    MPI_Comm comm = MPI_COMM_WORLD;
    int fault = 0, status;

    write_file(p, net, more);
    status = cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_ALL, &comm, &s);
    fault += MPI_FAULT_UNLESS(s == NULL);
    fault += MPI_FAULT_UNLESS((status == CORTADO_ERR_IO) || (status == CORTADO_ERR_CONFIG));
    fault += MPI_FAULT_UNLESS(strstr(cortado_error(), word) != NULL);
    if (fault > 0) fprintf(stderr, "\"%s\" not in: %s\n", word, cortado_error());
    return fault;
}

/* Nobody waits for it, and the next solver opens. */
static void one_rank_cannot_open(void **state)
{
    const place *p = *state;
    char before[256];
    int fault = 0;

    if (getcwd(before, sizeof(before)) == NULL) exit(3);
    for (int turn = 0; turn < 2; turn++) {
        cortado_solver *s = NULL;

        enter_folder(p, (turn == 0) ? p->size - 1 : 0);
        fault += opens_nowhere(p, "net_param { " LACKS "} ", "", "matrix.binaryproto");
        fault += opens_nowhere(p, "net_param { " LACKS LIST "} ", "", "matrix.binaryproto");
        fault += opens_nowhere(p, NET "test_net_param { " LACKS "} test_iter: 1 test_interval: 5 ",
                               "", "matrix.binaryproto");
        fault += opens_nowhere(p, NET, "memory { path: 'states' state: FILE }", "states");
        write_solver(p, "");
        fault += open_on(p, &s);
        if (mpi_verdict(fault) > 0) break;
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 2) == CORTADO_OK);
        cortado_solver_close(s);
    }
    if (chdir(before) != 0) exit(3);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* Data that the caller gives: each rank its own. */
static int give(cortado_solver *s, int rank, float class)
{
    cortado_net *net = cortado_solver_net(s);
    cortado_blob data, label;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(cortado_net_blob(net, "data", &data) == CORTADO_OK);
    fault += MPI_FAULT_UNLESS(cortado_net_blob(net, "label", &label) == CORTADO_OK);
    if (fault > 0) return fault;
    for (int64_t i = 0; i < data.count; i++)
        data.data[i] = (float)((i * 7 + rank * 3) % 11) / 11 - 0.5f;
    for (int64_t i = 0; i < label.count; i++) label.data[i] = class;
    return 0;
}

/* A label that no class stands for, on one rank: it stops in the middle of a step, while others
 * wait for its gradients. They hear of it, and a solver opened anew goes on. */
static int stops_everybody(const place *p)
{
    cortado_solver *s = NULL;
    int fault = open_on(p, &s);

    if (mpi_verdict(fault) > 0) return 1;
    fault += give(s, p->rank, 1);
    fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 2) == CORTADO_OK);
    fault += give(s, p->rank, (p->rank == p->size - 1) ? 99 : 1);
    fault += fails(cortado_solver_step(s, 2), CORTADO_ERR_DATA, "99");
    if (p->size > 1)
        fault += fails(cortado_solver_step(s, 1), CORTADO_ERR_RUN, "can only be closed");
    cortado_solver_close(s);
    s = NULL;
    fault += open_on(p, &s);
    if (mpi_verdict(fault) > 0) return 1;
    fault += give(s, p->rank, 2);
    fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 2) == CORTADO_OK);
    cortado_solver_close(s);
    return fault;
}

/* However others wait. */
static void one_rank_tells_the_others(void **state)
{
    static const char *const way[] = { "", "memory { zero: 3 }", "clip_gradients: 1",
                                       "comm { progress: THREAD overlap: true }",
                                       "compression { type: TOPK density: 0.1 min_bytes: 16 }" };
    const place *p = *state;
    int fault = 0;

    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        int wrong;

        write_file(p, GIVEN, way[i]);
        wrong = stops_everybody(p);
        if (wrong > 0) fprintf(stderr, "with \"%s\": %d faults\n", way[i], wrong);
        fault += wrong;
    }
    assert_int_equal(mpi_verdict(fault), 0);
}

/* ---- layers that the program computes */

/* "scale": times a column's weight. "loss": half the mean squared distance of two bottoms. "sums":
 * the same without the mean. "source": as many samples as param_str says. What fails does so where
 * `fails_in` says, on the last rank. */
typedef struct computed {
    char kind[16];
    int64_t n, columns;
    bool is_last;
    float first[4];
} computed;

static char fails_in[16];

static int fails_here(const computed *c, const char *call, char *why, size_t n_why)
{
    if (!c->is_last || (strcmp(fails_in, call) != 0)) return 0;
    snprintf(why, n_why, "%s of the last rank", call);
    return 1;
}

static int program_open(void *ctx, const cortado_layer *layer, void **made_p, char *why,
                        size_t n_why)
{
    computed *c = calloc(1, sizeof(*c));

    (void)ctx;
    if (c == NULL) exit(3);
    snprintf(c->kind, sizeof(c->kind), "%s", layer->layer);
    c->is_last = (layer->rank == layer->n_rank - 1);
    c->n = strtol(layer->param_str, NULL, 10) + ((strcmp(fails_in, "batch") == 0) && c->is_last);
    for (int i = 0; i < 4; i++)
        c->first[i] = 1.0f + 0.25f * (float)i + (float)layer->rank; /* rank 0's count */
    if (fails_here(c, "open", why, n_why)) {
        free(c);
        return 1;
    }
    *made_p = c;
    return 0;
}

static int program_setup(void *ctx, void *made, const cortado_blob *bottom,
                         cortado_layer_form *form, char *why, size_t n_why)
{
    computed *c = made;

    (void)ctx;
    if (fails_here(c, "setup", why, n_why)) return 1;
    form->sums = (strcmp(c->kind, "sums") == 0);
    if (strcmp(c->kind, "source") == 0) return 0;
    c->n = bottom[0].dim[0];
    c->columns = bottom[0].dim[1];
    if (strcmp(c->kind, "scale") != 0) return 0;
    form->n_weight = 1;
    form->weight[0] =
        (cortado_layer_weight){ .n_dim = 1, .dim = { c->columns }, .values = c->first };
    return 0;
}

static int program_reshape(void *ctx, void *made, const cortado_blob *bottom, cortado_blob *top,
                           char *why, size_t n_why)
{
    const computed *c = made;

    (void)ctx;
    if (fails_here(c, "reshape", why, n_why)) return 1;
    if (strcmp(c->kind, "source") == 0)
        top[0] = (cortado_blob){ .n_dim = 2, .dim = { c->n, 6 } };
    else if (strcmp(c->kind, "scale") == 0)
        top[0] = bottom[0];
    else
        top[0].n_dim = 0;
    return 0;
}

static float divisor(const computed *c)
{
    return (strcmp(c->kind, "sums") == 0) ? 2.0f : 2.0f * (float)c->n;
}

static int program_forward(void *ctx, void *made, const cortado_blob *bottom,
                           const cortado_blob *top, const cortado_blob *weight, char *why,
                           size_t n_why)
{
    const computed *c = made;
    double sum = 0;

    (void)ctx;
    if (fails_here(c, "forward", why, n_why)) return 1;
    for (int64_t i = 0; i < c->n * c->columns; i++) {
        double d = 0;

        if (strcmp(c->kind, "scale") == 0)
            top[0].data[i] = weight[0].data[i % c->columns] * bottom[0].data[i];
        else
            d = (double)bottom[0].data[i] - (double)bottom[1].data[i];
        sum += d * d;
    }
    if (strcmp(c->kind, "source") == 0)
        for (int64_t i = 0; i < top[0].count; i++) top[0].data[i] = (float)i;
    else if (strcmp(c->kind, "scale") != 0)
        top[0].data[0] = (float)(sum / (double)divisor(c));
    return 0;
}

static int program_backward(void *ctx, void *made, const cortado_blob *bottom,
                            const cortado_blob *top, const cortado_blob *weight, char *why,
                            size_t n_why)
{
    const computed *c = made;

    (void)ctx;
    if (fails_here(c, "backward", why, n_why)) return 1;
    for (int64_t i = 0; i < c->n * c->columns; i++) {
        int64_t k = i % c->columns;

        if (strcmp(c->kind, "scale") == 0) {
            bottom[0].diff[i] = weight[0].data[k] * top[0].diff[i];
            weight[0].diff[k] += bottom[0].data[i] * top[0].diff[i];
        } else {
            bottom[0].diff[i] =
                top[0].diff[0] * 2 * (bottom[0].data[i] - bottom[1].data[i]) / divisor(c);
        }
    }
    return 0;
}

static void program_close(void *ctx, void *made)
{
    (void)ctx;
    free(made);
}

static const cortado_layer_calls program_calls = { .open = program_open,
                                                   .setup = program_setup,
                                                   .reshape = program_reshape,
                                                   .forward = program_forward,
                                                   .backward = program_backward,
                                                   .close = program_close };

#define COMPUTED(loss, weight)                                                                     \
    "net_param { name: 'computed' "                                                                \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'want' dummy_data_param { shape { "     \
    "dim: %d dim: 6 } shape { dim: %d dim: 4 } data_filler { type: 'gaussian' std: 1 } } } "       \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "      \
    "num_output: 4 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'scale' type: 'Python' bottom: 'ip' top: 'scaled' python_param { module: 'm' "  \
    "layer: 'scale' } } "                                                                          \
    "layer { name: 'loss' type: 'Python' bottom: 'scaled' bottom: 'want' top: 'loss' "             \
    "loss_weight: " weight " python_param { module: 'm' layer: '" loss "' } } } "
#define SOURCE                                                                                     \
    "net_param { layer { name: 'in' type: 'Python' top: 'data' python_param { module: 'm' layer: " \
    "'source' param_str: '3' } } layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: "     \
    "'ip' inner_product_param { num_output: 2 } } layer { name: 'l' type: 'Reduction' bottom: "    \
    "'ip' top: 'l' loss_weight: 0.001 reduction_param { operation: SUMSQ } } } "

/* Weights of ranks and of one that has the whole batch, to the order in which sums are added up. */
static int near_alone(cortado_solver *s, cortado_solver *alone)
{
    static const char *const layer[] = { "ip", "ip", "scale" };
    static const int number[] = { 0, 1, 0 };
    int fault = 0;

    for (int k = 0; k < 3; k++) {
        cortado_blob a, b;

        fault += MPI_FAULT_UNLESS(
            cortado_net_weight(cortado_solver_net(s), layer[k], number[k], &a) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(
            cortado_net_weight(cortado_solver_net(alone), layer[k], number[k], &b) == CORTADO_OK);
        for (int64_t i = 0; (fault == 0) && (i < a.count); i++) /* 5 steps of sums of 3 to 24 */
            fault +=
                MPI_FAULT_UNLESS(fabsf(a.data[i] - b.data[i]) <= 2e-5f * (1 + fabsf(b.data[i])));
    }
    return fault;
}

/* Samples of a batch, so many in each rank's file. */
static void write_computed(const place *p, const char *net, int n, const char *more)
{
    char text[2000];

    snprintf(text, sizeof(text), net, n, n);
    write_file(p, text, more);
}

/* First weights are rank 0's, and losses count by their samples: 3 a rank, or all on one. */
static void programs_compute_on_ranks(void **state)
{
    static const char *const net[] = { COMPUTED("loss", "1"), COMPUTED("sums", "0.1") };
    static const char *const way[] = { "", "iter_size: 2", "memory { zero: 3 }" };
    const place *p = *state;
    int fault = 0;

    cortado_layers_by(&program_calls);
    fails_in[0] = '\0';
    for (int k = 0; k < 6; k++) {
        cortado_solver *s = NULL, *alone = NULL;
        uint64_t sum = 0, first = 0;

        write_computed(p, net[k % 2], 3, way[k / 2]);
        fault += open_on(p, &s);
        write_computed(p, net[k % 2], 3 * p->size, way[k / 2]);
        fault += MPI_FAULT_UNLESS(cortado_solver_open(p->file, CORTADO_KEEP_OUTPUTS, &alone) ==
                                  CORTADO_OK);
        if (mpi_verdict(fault) > 0) break;
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 5) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_step(alone, 5) == CORTADO_OK);
        fault += MPI_FAULT_UNLESS(cortado_solver_checksum(s, &sum) == CORTADO_OK);
        first = sum;
        MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        fault += MPI_FAULT_UNLESS(first == sum);
        if (k < 4) fault += near_alone(s, alone); /* zero keeps weights elsewhere */
        cortado_solver_close(s);
        cortado_solver_close(alone);
    }
    cortado_layers_by(NULL);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* Wherever the last one fails: in the middle of a step others wait for its gradients. */
static void a_failing_layer_stops_everybody(void **state)
{
    static const char *const call[] = { "open", "setup", "reshape", "forward", "backward" };
    const place *p = *state;
    MPI_Comm comm = MPI_COMM_WORLD;
    int fault = 0;

    cortado_layers_by(&program_calls);
    write_computed(p, COMPUTED("loss", "1"), 3, "");
    for (int k = 0; k < 5; k++) {
        cortado_solver *s = NULL;
        cortado_status status;
        char word[40];

        snprintf(word, sizeof(word), "(Python): %s of the last rank", call[k]);
        snprintf(fails_in, sizeof(fails_in), "%s", call[k]);
        status = cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &s);
        if (k < 3) fault += fails(status, (k < 2) ? CORTADO_ERR_CONFIG : CORTADO_ERR_SHAPE, word);
        if (k >= 3) fault += fails(cortado_solver_step(s, 3), CORTADO_ERR_DATA, word);
        cortado_solver_close(s);
    }
    strcpy(fails_in, "batch");
    write_file(p, SOURCE, "");
    if (p->size > 1) {
        cortado_solver *s = NULL;

        fault += fails(cortado_solver_open_on(p->file, NULL, CORTADO_KEEP_OUTPUTS, &comm, &s),
                       CORTADO_ERR_CONFIG, "give each rank as many samples");
    }
    fails_in[0] = '\0';
    {
        cortado_solver *s = NULL;

        fault += open_on(p, &s);
        fault += MPI_FAULT_UNLESS(cortado_solver_step(s, 2) == CORTADO_OK);
        cortado_solver_close(s);
    }
    cortado_layers_by(NULL);
    assert_int_equal(mpi_verdict(fault), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(steps_are_a_jobs, make_place, end_place),
    cmocka_unit_test_setup_teardown(snapshots_go_on, make_place, end_place),
    cmocka_unit_test_setup_teardown(errors_are_everybodys, make_place, end_place),
    cmocka_unit_test_setup_teardown(one_rank_cannot_open, make_place, end_place),
    cmocka_unit_test_setup_teardown(one_rank_tells_the_others, make_place, end_place),
    cmocka_unit_test_setup_teardown(programs_compute_on_ranks, make_place, end_place),
    cmocka_unit_test_setup_teardown(a_failing_layer_stops_everybody, make_place, end_place),
};

MPI_MAIN(tests, 120)
