/* Codecs of gradients on a device, in a pipe, beside the CPU's in another: the same sums, the same
 * bits on every rank, nothing lost, and no byte over the bus but payloads. Skips where no CUDA
 * device works. */
#include "tests/mpi/codec_rig.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>

#include "comm/autotune/autotune.h"
#include "comm/codec/codec_kernels.h"
#include "comm/core/node.h"
#include "comm/collective/schedule.h"
#include "comm/codec/sign.h"
#include "framework/base/memory.h"

static const ct_device *real;
static ct_device counting; /* real, but it counts what copies bring */
static int64_t down, up;
static int64_t sums; /* bytes of the sums that a list exchange brings up, by theory */
static int64_t lost; /* … entries dropped, where they can be told; else -1          */

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

static ct_grad_pipe_config config_of(const ct_codec_ops *codec, const char *wire, bool quantize,
                                     const char *exchange)
{
    bool plain = (codec == &ct_codec_topk);

    return (ct_grad_pipe_config){ .policy = &ct_autotune,
                                  .allreduce = "ring",
                                  .overlap = true,
                                  .codec = codec,
                                  .codec_config = { .density = 0.01f,
                                                    .exchange = exchange,
                                                    .selection = "auto",
                                                    .wire = wire,
                                                    .quantize = quantize,
                                                    .momentum_correction = !plain,
                                                    .mask_momentum = !plain },
                                  .momentum = 0.9f };
}

static bool exchange_is(const ct_grad_pipe_config *config, const char *name)
{
    return strcmp(config->codec_config.exchange, name) == 0;
}

static int check_bytes(int64_t want_down, int64_t want_up)
{
    if ((down != want_down) || (up != want_up))
        fprintf(stderr, "%lld bytes down and %lld up, not %lld and %lld\n", (long long)down,
                (long long)up, (long long)want_down, (long long)want_up);
    return MPI_FAULT_UNLESS(down == want_down) + MPI_FAULT_UNLESS(up == want_up);
}

/* What a coded step brings over the bus: the note and the payload down, the others' up. */
static int count_bytes(const ct_comm *c, int64_t n_coded, int64_t n_dense, ct_payload_form form)
{
    int64_t payload = (int64_t)ct_payload_bytes(form, RIG_CODED, RIG_CODED / 100);
    int64_t others = c->size - 1, dense = (others > 0) ? 4 * RIG_CODED : 0;
    int64_t note = (int64_t)sizeof(ct_coder_note), one = (others > 0) ? note + payload : note;

    return check_bytes(n_coded * one + n_dense * dense,
                       n_coded * others * payload + n_dense * dense);
}

/* … and up what the exchange made of it: the sum's entries, and those that are given back; hier:
 * the gradient down, and a slice of the node's sum up. */
static int count_list_bytes(const ct_comm *c, const ct_grad_pipe_config *config, int64_t n_coded,
                            int64_t n_dense, ct_payload_form form)
{
    int64_t n = RIG_CODED, k = n / 100, first = 0, length = n, dense = n_dense * 4 * n;
    int64_t each_down = 0, each_up = 0, extra = 0;
    int lanes = c->node_size;

    if (exchange_is(config, "hier")) {
        MPI_Allreduce(MPI_IN_PLACE, &lanes, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        first = ct_part(n, lanes, (c->node_rank < lanes) ? c->node_rank : lanes);
        length = (c->node_rank < lanes) ? ct_part(n, lanes, c->node_rank + 1) - first : 0;
        k = (k * length + n - 1) / n;
        each_down = 4 * n;
        each_up = 4 * length;
    }
    if (length > 0)
        each_down += (int64_t)sizeof(ct_coder_note) + (int64_t)ct_payload_bytes(form, length, k);
    extra = up - (n_coded * each_up + sums + dense);
    if (lost >= 0) return check_bytes(n_coded * each_down + dense, up - extra + 8 * lost);
    if ((extra < 0) || (extra % 8 != 0)) fprintf(stderr, "%lld bytes more up\n", (long long)extra);
    return check_bytes(n_coded * each_down + dense, up) +
           MPI_FAULT_UNLESS((extra >= 0) && (extra % 8 == 0));
}

/* Signs of all elements down, and the others' up; split: those of the other parts, and then of its
 * own with what came for it. */
static int count_sign_bytes(const ct_comm *c, bool splits, int64_t n_coded, int64_t n_dense)
{
    ct_sign_cut cut = { .n = RIG_CODED, .parts = splits ? c->size : 1 };
    int64_t all = (int64_t)ct_sign_at(&cut, cut.parts), others = c->size - 1;
    int64_t dense = (others > 0) ? n_dense * 4 * RIG_CODED : 0, first = 0, n = 0, want = 0;
    int64_t note = (int64_t)sizeof(ct_coder_note);

    if (others == 0) return check_bytes(n_coded * note, 0);
    if (!splits) return check_bytes(n_coded * (note + all) + dense, n_coded * others * all + dense);
    for (int j = 0; j < c->size; ++j) {
        ct_sign_part(&cut, j, &first, &n);
        if (c->topo->order[j] != c->rank)
            want += (int64_t)ct_sign_bytes(n);
        else if (n > 0)
            want += others * (int64_t)ct_sign_bytes(n);
    }
    return check_bytes(n_coded * (note + all) + dense, n_coded * want + dense);
}

/* Both factors down, and up: the last Q, the basis, and with other ranks the sum of Q. */
static int count_factor_bytes(const ct_comm *c, int r, int64_t n_coded, int64_t n_dense)
{
    int64_t p = 4 * r * RIG_ROWS, q = 4 * r * (RIG_CODED / RIG_ROWS);
    int64_t dense = (c->size > 1) ? n_dense * 4 * RIG_CODED : 0;

    return check_bytes(n_coded * (p + q) + dense,
                       n_coded * (p + ((c->size > 1) ? 2 : 1) * q) + dense);
}

/* Counts what the step just made should bring up. V is 0 where an entry was sent and not given
 * back, and nowhere else; between two ranks gtopk gives back nothing but own entries. */
static void count_step(const rig *host, const ct_grad_pipe_config *config, bool dense)
{
    int64_t filled = 0, zeros = 0;
    ct_codec_state v;

    if (dense) return;
    for (int i = 0; i < RIG_CODED; ++i) filled += (host->arena[i] != 0);
    sums += (int64_t)ct_payload_bytes(CT_PAYLOAD_PAIRS, RIG_CODED, filled);
    if (!exchange_is(config, "gtopk") || (host->comm->size != 2) ||
        (strcmp(config->codec_config.wire, "pairs") != 0) ||
        (config->codec_config.warmup_iterations > 0) || !ct_grad_pipe_state(host->gp, 0, 0, &v)) {
        lost = -1;
        return;
    }
    for (int i = 0; i < RIG_CODED; ++i) zeros += (v.data[i] == 0);
    lost += RIG_CODED / 100 - zeros;
}

/* V and U, or Q, as a snapshot would have them. */
static int same_states(const rig *host, const device_rig *d)
{
    ct_codec_state a, b;
    int fault = 0;

    for (int i = 0; ct_grad_pipe_state(host->gp, 0, i, &a); ++i) {
        if (!ct_grad_pipe_state(d->r.gp, 0, i, &b)) return fault + 1;
        fault += MPI_FAULT_UNLESS((strcmp(a.name, b.name) == 0) && (a.count == b.count));
        fault += MPI_FAULT_UNLESS(memcmp(a.data, b.data, sizeof(float) * (size_t)a.count) == 0);
    }
    return fault;
}

/* Bit by bit: what no residual is folded into. */
static int as_cpu(ct_comm *c, const ct_grad_pipe_config *config, ct_payload_form form, int warmup)
{
    enum { STEPS = 16 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config with = *config;
    float grad[RIG_CODED], sum[RIG_CODED];
    int fault = 0;

    with.codec_config.warmup_iterations = warmup;
    fault += open_both(&host, &d, c, &with, 0.01f);
    down = up = sums = lost = 0;
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        float rate = (s < 10) ? 0.1f : 0.01f;

        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&host, s, 0.5f, rate, grad);
        fault += device_step(&d, s, rate, grad, sum);
        fault += MPI_FAULT_UNLESS(memcmp(sum, host.arena, sizeof(sum)) == 0);
        count_step(&host, config, s < warmup);
    }
    fault += rig_same_on_all(d.r.hash);
    if (config->codec == &ct_codec_onebit)
        fault += count_sign_bytes(c, exchange_is(config, "split"), STEPS - warmup, warmup);
    else if (config->codec == &ct_codec_powersgd)
        fault += count_factor_bytes(c, config->codec_config.rank, STEPS - warmup, warmup);
    else if ((c->size == 1) || exchange_is(config, "allgather"))
        fault += count_bytes(c, STEPS - warmup, warmup, form);
    else
        fault += count_list_bytes(c, config, STEPS - warmup, warmup, form);
    fault += same_states(&host, &d);
    close_both(&host, &d);
    return fault;
}

/* A density that falls: as many elements, and the same. */
static int falls_as_cpu(ct_comm *c, const char *exchange, const char *selection)
{
    enum { STEPS = 20, WARMUP = 14 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config config = config_of(&ct_codec_redsync, "half", false, exchange);
    float grad[RIG_CODED], sum[RIG_CODED];
    int fault = 0;

    config.codec_config.selection = selection;
    config.codec_config.warmup_iterations = WARMUP;
    config.codec_config.warmup_density = 0.25f;
    fault += open_both(&host, &d, c, &config, 0.01f);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&host, s, 0.5f, 0.1f, grad);
        fault += device_step(&d, s, 0.1f, grad, sum);
        fault += MPI_FAULT_UNLESS(memcmp(sum, host.arena, sizeof(sum)) == 0);
    }
    fault += rig_same_on_all(d.r.hash);
    fault += same_states(&host, &d);
    close_both(&host, &d);
    return fault;
}

static int all_as_cpu(ct_comm *c, const char *exchange)
{
    ct_grad_pipe_config pairs = config_of(&ct_codec_redsync, "pairs", false, exchange);
    ct_grad_pipe_config half = config_of(&ct_codec_redsync, "half", false, exchange);
    ct_grad_pipe_config mean = config_of(&ct_codec_redsync, "auto", true, exchange);
    ct_grad_pipe_config plain = config_of(&ct_codec_topk, "auto", false, exchange);
    int fault = as_cpu(c, &pairs, CT_PAYLOAD_PAIRS, 0) + as_cpu(c, &half, CT_PAYLOAD_HALF, 0);

    pairs.nesterov = true;
    fault += as_cpu(c, &pairs, CT_PAYLOAD_PAIRS, 5) + as_cpu(c, &plain, CT_PAYLOAD_PAIRS, 3);
    mean.codec_config.selection = "trimmed";
    fault += falls_as_cpu(c, exchange, "auto") + falls_as_cpu(c, exchange, "search");
    return fault + as_cpu(c, &mean, CT_PAYLOAD_MEAN, 0);
}

static int allgather_as_cpu(ct_comm *c)
{
    return all_as_cpu(c, "allgather");
}

static int lists_as_cpu(ct_comm *c)
{
    return all_as_cpu(c, "gtopk") + all_as_cpu(c, "oktopk");
}

static int dense_as_cpu(ct_comm *c)
{
    return all_as_cpu(c, "dense");
}

/* Where gradients lie in memory that a node's ranks share they are added up in another order than
 * messages have: here the CPU's lie apart, as those of devices do. */
static int hier_as_cpu(ct_comm *c)
{
    int fault = 0;

    ct_node_set_limit(c->node_memory, 0);
    fault = all_as_cpu(c, "hier");
    ct_node_set_limit(c->node_memory, -1);
    return fault;
}

static int signs_as_cpu(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_codec_onebit, "auto", false, "split");
    int fault = as_cpu(c, &config, CT_PAYLOAD_PAIRS, 0);

    config.nesterov = true;
    fault += as_cpu(c, &config, CT_PAYLOAD_PAIRS, 3);
    config.codec_config.exchange = "allgather";
    fault += as_cpu(c, &config, CT_PAYLOAD_PAIRS, 0);
    config.codec_config.momentum_correction = false;
    return fault + as_cpu(c, &config, CT_PAYLOAD_PAIRS, 2);
}

static int factors_as_cpu(ct_comm *c)
{
    ct_grad_pipe_config config = config_of(&ct_codec_powersgd, "auto", false, "auto");
    int fault = 0;

    for (int r = 1; r <= 7; r += (r == 1) ? 1 : 5) {
        config.codec_config.rank = r;
        fault += as_cpu(c, &config, CT_PAYLOAD_PAIRS, (r == 2) ? 3 : 0);
    }
    return fault;
}

/* Dense steps in between: what was sent and what is left is what there was, on all ranks together;
 * and states as a snapshot takes them and gives them back. */
static int keeps_all(ct_comm *c, const ct_codec_ops *codec, const char *exchange)
{
    enum { STEPS = 36 };
    static rig host;
    static device_rig d;
    static double all[RIG_CODED];
    ct_grad_pipe_config config = config_of(codec, "half", false, exchange);
    float grad[RIG_CODED], sum[RIG_CODED];
    double most = 0;
    ct_codec_state v;
    int fault = 0;

    config.codec_config.momentum_correction = config.codec_config.mask_momentum = false;
    config.codec_config.rank = 3;
    config.codec_config.resync_iterations = 7;
    config.codec_config.warmup_iterations = 2;
    fault += open_both(&host, &d, c, &config, 0);
    memset(all, 0, sizeof(all));
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += device_step(&d, s, 0.1f, grad, sum);
        for (int i = 0; i < RIG_CODED; ++i)
            all[i] += (double)grad[i] - ((c->rank == 0) ? (double)sum[i] : 0);
        if (s != 18) continue;
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(d.r.gp, 0, 0, &v));
        for (int i = 0; i < RIG_CODED; ++i) {
            all[i] += 0.25;
            v.data[i] += 0.25f;
        }
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_restored(d.r.gp) == CT_OK);
    }
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_state(d.r.gp, 0, 0, &v));
    fault += MPI_FAULT_UNLESS(strcmp(v.name, CT_CODEC_RESIDUAL) == 0);
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

static int nothing_is_lost(ct_comm *c)
{
    const ct_codec_ops *topk = &ct_codec_topk;

    return keeps_all(c, topk, "allgather") + keeps_all(c, topk, "gtopk") +
           keeps_all(c, topk, "oktopk") + keeps_all(c, topk, "hier") + keeps_all(c, topk, "dense") +
           keeps_all(c, &ct_codec_onebit, "split") + keeps_all(c, &ct_codec_onebit, "allgather") +
           keeps_all(c, &ct_codec_powersgd, "auto");
}

/* Norms are limited where the gradient lies. */
static int limited_by(ct_comm *c, const char *exchange)
{
    enum { STEPS = 12 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config config = config_of(&ct_codec_redsync, "pairs", false, exchange);
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

static int limited(ct_comm *c)
{
    return limited_by(c, "allgather") + limited_by(c, "hier");
}

/* Casts, too. What is rounded may differ in the last of 8 bits, where the factor's last bit does;
 * the sum, of ranks whose norms are at most 3 / sqrt(ranks), has one of 3 sqrt(ranks). */
static int limited_cast(ct_comm *c, const ct_codec_ops *codec)
{
    enum { STEPS = 6, WARMUP = 2 };
    static rig host;
    static device_rig d;
    ct_grad_pipe_config config = config_of(codec, "auto", false, "auto");
    float grad[RIG_CODED], sum[RIG_CODED];
    int fault = 0;

    config.codec_config.momentum_correction = false;
    config.codec_config.local_clip = 3;
    config.codec_config.warmup_iterations = WARMUP;
    fault += open_both(&host, &d, c, &config, 0);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        double off = 0, norm = 0;

        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        fault += rig_step(&host, s, 0.5f, 0.1f, grad);
        fault += device_step(&d, s, 0.1f, grad, sum);
        for (int i = 0; i < RIG_CODED; ++i) {
            off = fmax(off, fabs((double)sum[i] - (double)host.arena[i]));
            norm += (double)sum[i] * sum[i];
        }
        fault += MPI_FAULT_UNLESS(off <= 3 * c->size * 0x1p-7);
        fault += MPI_FAULT_UNLESS((norm > 0) && (sqrt(norm) < 1.01 * 3 * sqrt(c->size)));
    }
    fault += rig_same_on_all(d.r.hash);
    close_both(&host, &d);
    return fault;
}

static int casts_limited(ct_comm *c)
{
    return limited_cast(c, &ct_codec_bf16) + limited_cast(c, &ct_codec_fp16);
}

/* AUTO measures codecs and the bus, and takes whatever is faster there; sums are the same on all
 * ranks. What has to be the same in every run cannot hang on that. */
static int auto_chooses(ct_comm *c)
{
    enum { STEPS = 4 };
    static rig r;
    device_rig d;
    ct_grad_pipe_config config = config_of(&ct_codec_auto, "auto", false, "auto");
    ct_grad_range one = { .key = "fc[0]", .count = RIG_CODED, .rows = RIG_ROWS, .rate_mult = 1 };
    ct_grad_pipe *refused = NULL;
    float grad[RIG_CODED], sum[RIG_CODED];
    void *block = NULL;
    log_capture log;
    int fault = MPI_FAULT_UNLESS(real->host_acquire(sizeof(float) * RIG_N, &block) == CT_OK);

    memset(block, 0, sizeof(float) * RIG_N);
    d = (device_rig){ .r = { .arena = block, .hash = 1, .comm = c } };
    d.grad = on_device(block, sizeof(float) * RIG_N);
    d.weight = on_device(block, sizeof(float) * RIG_N);
    one.on_device = d.grad;
    one.weight = d.weight;
    config.dev = real;
    config.progress = CT_PROGRESS_POLL;
    config.deterministic = (c->size > 1);
    log_capture_start(&log);
    if (config.deterministic)
        fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, block, &one, 1, &refused) ==
                                  CT_ERR_CONFIG);
    log_capture_stop();
    config.deterministic = false;
    fault += MPI_FAULT_UNLESS(ct_grad_pipe_create(c, &config, block, &one, 1, &d.r.gp) == CT_OK);
    for (int64_t s = 0; (s < STEPS) && (fault == 0); ++s) {
        for (int i = 0; i < RIG_CODED; ++i) grad[i] = rig_noise(c->rank, s, i);
        if (ct_grad_pipe_on_device(d.r.gp, 0)) {
            fault += device_step(&d, s, 0.1f, grad, sum);
        } else {
            fault += rig_step(&d.r, s, 0.5f, 0.1f, grad);
            memcpy(sum, d.r.arena, sizeof(sum));
        }
        r.hash = rig_hash(r.hash, sum, RIG_CODED);
    }
    fault += rig_same_on_all(r.hash);
    ct_grad_pipe_destroy(d.r.gp);
    real->host_release(block);
    real->mem_release(d.grad);
    real->mem_release(d.weight);
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
    on_machines(allgather_as_cpu);
}

static void test_lists_as_on_the_cpu(void **unused)
{
    (void)unused;
    on_machines(lists_as_cpu);
    on_machines(dense_as_cpu);
}

static void test_hier_as_on_the_cpu(void **unused)
{
    (void)unused;
    on_machines(hier_as_cpu);
}

static void test_signs_as_on_the_cpu(void **unused)
{
    (void)unused;
    on_machines(signs_as_cpu);
}

static void test_factors_as_on_the_cpu(void **unused)
{
    (void)unused;
    on_machines(factors_as_cpu);
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

static void test_casts_limited(void **unused)
{
    (void)unused;
    on_machines(casts_limited);
}

static void test_auto_chooses(void **unused)
{
    ct_comm *c = NULL;
    int fault = 0;

    (void)unused;
    if (!has_device()) skip(); /* on one machine: where kernels are loops, measuring takes long */
    fault = MPI_FAULT_UNLESS(ct_comm_create(MPI_COMM_WORLD, "auto", &c) == CT_OK);
    if (fault == 0) fault = auto_chooses(c);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_on_the_cpu),
                                        cmocka_unit_test(test_lists_as_on_the_cpu),
                                        cmocka_unit_test(test_hier_as_on_the_cpu),
                                        cmocka_unit_test(test_signs_as_on_the_cpu),
                                        cmocka_unit_test(test_factors_as_on_the_cpu),
                                        cmocka_unit_test(test_nothing_is_lost),
                                        cmocka_unit_test(test_limited),
                                        cmocka_unit_test(test_casts_limited),
                                        cmocka_unit_test(test_auto_chooses) };

    rig_make_table();
    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
