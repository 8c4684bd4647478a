/* Codecs of gradients on a device, in a pipe, beside the CPU's in another: the same sums, the same
 * bits on every rank, nothing lost, and no byte over the bus but payloads. Skips where no CUDA
 * device works. */
#include "tests/mpi/coded_rig.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "comm/device_codec.h"
#include "framework/base/memory.h"

static const ct_device *real;
static ct_device counting; /* real, but it counts what copies bring */
static int64_t down, up;

static ct_status count_copies(ct_stream st, void *host, void *data, size_t bytes, bool is_down,
                              void **ticket_p)
{
    *(is_down ? &down : &up) += (int64_t)bytes;
    return real->copy_begin(st, host, data, bytes, is_down, ticket_p);
}

static bool has_device(void)
{
    log_capture log;
    ct_status status;

    if (real != NULL) return true;
    log_capture_start(&log);
    status = ct_device_open("cuda", 0, &real);
    log_capture_stop();
    if (status != CT_OK) {
        real = NULL;
        return false;
    }
    counting = *real;
    counting.copy_begin = count_copies;
    return true;
}

/* The rig's parameter, on the device. */
typedef struct device_rig {
    rig r; /* its arena is the host's side */
    float *grad, *weight;
} device_rig;

static float *on_device(const float *from, size_t bytes)
{
    void *data = NULL;

    if ((real->mem_acquire(bytes, &data) != CT_OK) ||
        (real->from_host(NULL, data, from, bytes) != CT_OK))
        return NULL;
    return data;
}

static int open_both(rig *host, device_rig *d, ct_comm *c, const ct_grad_pipe_config *config,
                     float decay)
{
    ct_grad_pipe_config there = *config;
    ct_grad_range one;
    void *block = NULL;
    int fault = rig_open(host, c, config, decay);

    d->r = *host;
    d->r.gp = NULL;
    fault += MPI_FAULT_UNLESS(real->host_acquire(sizeof(float) * RIG_N, &block) == CT_OK);
    memset(block, 0, sizeof(float) * RIG_N);
    d->r.arena = block;
    d->grad = on_device(block, sizeof(float) * RIG_N);
    d->weight = on_device(host->weight, sizeof(host->weight));
    one = (ct_grad_range){ .key = "fc[0]",
                           .count = RIG_CODED,
                           .rows = RIG_ROWS,
                           .on_device = d->grad,
                           .weight = d->weight,
                           .decay = decay,
                           .rate_mult = 0.5f };
    there.dev = &counting;
    there.progress = CT_PROGRESS_POLL;
    return fault +
           MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &there, d->r.arena, &one, 1, &d->r.gp) ==
                            CT_OK) +
           MPI_FAULT_UNLESS(ct_grad_pipe_on_device(d->r.gp, 0));
}

static void close_both(rig *host, device_rig *d)
{
    ct_grad_pipe_destroy(d->r.gp);
    real->host_release(d->r.arena);
    real->mem_release(d->grad);
    real->mem_release(d->weight);
    rig_close(host);
}

/* A step of the device's; out: the sum. */
static int device_step(device_rig *d, int64_t s, float rate, const float *grad, float *out)
{
    size_t bytes = sizeof(float) * RIG_CODED;
    int fault = 0;

    fault += MPI_FAULT_UNLESS(ct_grad_pipe_begin(d->r.gp, s, 0.5f, rate) == CT_OK);
    fault += MPI_FAULT_UNLESS(real->from_host(NULL, d->grad, grad, bytes) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_ready(d->r.gp, 0) == CT_OK);
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_finish(d->r.gp, NULL, NULL) == CT_OK);
    fault += MPI_FAULT_UNLESS(real->to_host(NULL, out, d->grad, bytes) == CT_OK);
    for (int i = 0; i < RIG_CODED; ++i) d->r.weight[i] -= out[i];
    fault += MPI_FAULT_UNLESS(real->from_host(NULL, d->weight, d->r.weight, bytes) == CT_OK);
    d->r.hash = rig_hash(d->r.hash, out, RIG_CODED);
    return fault;
}

static ct_grad_pipe_config config_of(const ct_coded_ops *codec, const char *wire, bool quantize)
{
    bool plain = (codec == &ct_coded_topk);

    return (ct_grad_pipe_config){ .allreduce = "ring",
                                  .overlap = true,
                                  .codec = codec,
                                  .codec_config = { .density = 0.01f,
                                                    .exchange = "allgather",
                                                    .selection = "auto",
                                                    .wire = wire,
                                                    .quantize = quantize,
                                                    .momentum_correction = !plain,
                                                    .mask_momentum = !plain },
                                  .momentum = 0.9f };
}

/* What a coded step brings over the bus: the note and the payload down, the others' up. */
static int count_bytes(const ct_comm *c, int64_t n_coded, int64_t n_dense, ct_wire_form form)
{
    int64_t payload = (int64_t)ct_wire_bytes(form, RIG_CODED, RIG_CODED / 100);
    int64_t others = c->size - 1, dense = (others > 0) ? 4 * RIG_CODED : 0;
    int64_t note = (int64_t)sizeof(ct_coder_note), one = (others > 0) ? note + payload : note;

    if ((down != n_coded * one + n_dense * dense) ||
        (up != n_coded * others * payload + n_dense * dense))
        fprintf(stderr, "%lld bytes down and %lld up\n", (long long)down, (long long)up);
    return MPI_FAULT_UNLESS(down == n_coded * one + n_dense * dense) +
           MPI_FAULT_UNLESS(up == n_coded * others * payload + n_dense * dense);
}

/* Bit by bit: what no residual is folded into. */
static int as_cpu(ct_comm *c, const ct_grad_pipe_config *config, ct_wire_form form, int warmup)
{
    enum { STEPS = 24 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config with = *config;
    float grad[RIG_CODED], sum[RIG_CODED];
    int fault = 0;

    with.codec_config.warmup_iterations = warmup;
    fault += open_both(&host, &d, c, &with, 0.01f);
    down = up = 0;
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        float rate = (s < 15) ? 0.1f : 0.01f;

        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&host, s, 0.5f, rate, grad);
        fault += device_step(&d, s, rate, grad, sum);
        fault += MPI_FAULT_UNLESS(memcmp(sum, host.arena, sizeof(sum)) == 0);
    }
    fault += rig_same_on_all(d.r.hash);
    fault += count_bytes(c, STEPS - warmup, warmup, form);
    close_both(&host, &d);
    return fault;
}

static int all_as_cpu(ct_comm *c)
{
    ct_grad_pipe_config pairs = config_of(&ct_coded_redsync, "pairs", false);
    ct_grad_pipe_config half = config_of(&ct_coded_redsync, "half", false);
    ct_grad_pipe_config mean = config_of(&ct_coded_redsync, "auto", true);
    ct_grad_pipe_config plain = config_of(&ct_coded_topk, "auto", false);
    int fault = as_cpu(c, &pairs, CT_WIRE_PAIRS, 0) + as_cpu(c, &half, CT_WIRE_HALF, 0);

    pairs.nesterov = true;
    fault += as_cpu(c, &pairs, CT_WIRE_PAIRS, 5) + as_cpu(c, &plain, CT_WIRE_PAIRS, 3);
    mean.codec_config.selection = "trimmed";
    return fault + as_cpu(c, &mean, CT_WIRE_MEAN, 0);
}

/* Dense steps in between: what was sent and what is left is what there was, on all ranks together;
 * and states as a snapshot takes them and gives them back. */
static int nothing_is_lost(ct_comm *c)
{
    enum { STEPS = 60 };
    static rig host;
    static device_rig d;
    static double all[RIG_CODED];
    ct_grad_pipe_config config = config_of(&ct_coded_topk, "half", false);
    float grad[RIG_CODED], sum[RIG_CODED];
    double most = 0;
    ct_coded_state v;
    int fault = 0;

    config.codec_config.resync_iterations = 7;
    config.codec_config.warmup_iterations = 2;
    fault += open_both(&host, &d, c, &config, 0);
    memset(all, 0, sizeof(all));
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += device_step(&d, s, 0.1f, grad, sum);
        for (int i = 0; i < RIG_CODED; ++i)
            all[i] += (double)grad[i] - ((c->rank == 0) ? (double)sum[i] : 0);
        if (s != 30) continue;
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(d.r.gp, 0, 0, &v));
        for (int i = 0; i < RIG_CODED; ++i) {
            all[i] += 0.25;
            v.data[i] += 0.25f;
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_restored(d.r.gp) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(d.r.gp, 0, 0, &v));
    fault += MPI_FAULT_UNLESS(strcmp(v.name, CT_CODED_RESIDUAL) == 0);
    for (int i = 0; i < RIG_CODED; ++i) all[i] -= (double)v.data[i];
    MPI_Allreduce(MPI_IN_PLACE, all, RIG_CODED, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < RIG_CODED; ++i) most = fmax(most, fabs(all[i]));
    /* values up to 20 and their sums, rounded about three times a step and rank */
    if (!(most < 3 * STEPS * c->size * 20 * 20 * 0x1p-24)) fprintf(stderr, "off by %g\n", most);
    fault += MPI_FAULT_UNLESS(most < 3 * STEPS * c->size * 20 * 20 * 0x1p-24);
    fault += rig_same_on_all(d.r.hash);
    close_both(&host, &d);
    return fault;
}

/* Norms are limited where the gradient lies. */
static int limited(ct_comm *c)
{
    enum { STEPS = 12 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config config = config_of(&ct_coded_redsync, "pairs", false);
    float grad[RIG_CODED], sum[RIG_CODED];
    int fault = 0;

    config.codec_config.local_clip = 3;
    config.codec_config.density = 1; /* so that no choice hangs on a last bit */
    fault += open_both(&host, &d, c, &config, 0);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        float off = 0;

        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&host, s, 0.5f, 0.1f, grad);
        fault += device_step(&d, s, 0.1f, grad, sum);
        for (int i = 0; i < RIG_CODED; ++i) off = fmaxf(off, fabsf(sum[i] - host.arena[i]));
        /* a gradient of norm 3 has no element over 3; the factor's last bit differs */
        fault += MPI_FAULT_UNLESS(off <= 3 * STEPS * (float)c->size * 0x1p-23f);
    }
    close_both(&host, &d);
    return fault;
}

static void on_machines(int (*f)(ct_comm *c))
{
    if (!has_device()) {
        print_message("skipped: no CUDA device, or built without CUDA=1\n");
        skip();
    }
    assert_int_equal(mpi_verdict(mpi_on_machines(f)), 0);
}

static void test_as_on_the_cpu(void **unused)
{
    (void)unused;
    on_machines(all_as_cpu);
}

static void test_nothing_is_lost(void **unused)
{
    (void)unused;
    on_machines(nothing_is_lost);
}

static void test_limited(void **unused)
{
    (void)unused;
    on_machines(limited);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_on_the_cpu),
                                        cmocka_unit_test(test_nothing_is_lost),
                                        cmocka_unit_test(test_limited) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
