/* The CUDA device: memory and copies. The only place where a CUDA error becomes a ct_status. */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#include "framework/math/cuda/math_cuda.h"
#include "framework/tensor/cuda/device_cuda.h"

ct_status ct_cuda_check(cudaError_t err, const char *what)
{
    if (err == cudaSuccess) return CT_OK;
    (void)cudaGetLastError(); /* told here: else the next kernel's launch would be blamed for it */
    return CT_FAIL(CT_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(err));
}

/* Zeros are there when this returns. cudaMemset() itself returns before, and streams that do not
 * wait for the default one (copies, codecs, sums over ranks) might write first. */
static ct_status cuda_acquire(size_t bytes, void **data_p)
{
    void *data = NULL;
    ct_status status;

    CT_TRY(ct_cuda_check(cudaMalloc(&data, (bytes > 0) ? bytes : 1), "cudaMalloc"));
    status = ct_cuda_check(cudaMemset(data, 0, bytes), "cudaMemset");
    if (status == CT_OK) status = ct_cuda_check(cudaStreamSynchronize(NULL), "cudaMemset");
    if (status != CT_OK) {
        (void)cudaFree(data);
        return status;
    }
    *data_p = data;
    return CT_OK;
}

static void cuda_release(void *data)
{
    (void)ct_cuda_check(cudaFree(data), "cudaFree");
}

/* One process drives one device from its main thread: the scratch of sums and the pinned block
 * belong to the device, like the context that CUDA itself keeps. */
static struct {
    double *scratch;
    void *stage;
    size_t stage_bytes;
} process;

double *ct_cuda_scratch(void)
{
    return process.scratch;
}

void *ct_cuda_stage(size_t bytes)
{
    if (bytes <= process.stage_bytes) return process.stage;
    if (process.stage != NULL) (void)cudaFreeHost(process.stage);
    process.stage = NULL;
    process.stage_bytes = 0;
    bytes = (bytes + ((size_t)1 << 20)) >> 20 << 20;
    if (ct_cuda_check(cudaMallocHost(&process.stage, bytes), "pinned memory") != CT_OK) return NULL;
    process.stage_bytes = bytes;
    return process.stage;
}

static cudaStream_t stream_of(ct_stream st)
{
    return (cudaStream_t)st;
}

static ct_status cuda_sync(ct_stream st)
{
    return ct_cuda_wait(stream_of(st), "cudaStreamSynchronize");
}

static ct_status cuda_to_host(ct_stream st, void *host, const void *data, size_t bytes)
{
    CT_TRY(ct_cuda_check(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream_of(st)),
                         "copy to host"));
    return cuda_sync(st);
}

/* Returns when the host block may be used again, so that callers need no events of their own. */
static ct_status cuda_from_host(ct_stream st, void *data, const void *host, size_t bytes)
{
    CT_TRY(ct_cuda_check(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream_of(st)),
                         "copy from host"));
    return cuda_sync(st);
}

static ct_status cuda_copy(ct_stream st, void *to, const void *from, size_t bytes)
{
    return ct_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(st)),
                         "copy on device");
}

static ct_status cuda_zero(ct_stream st, void *data, size_t bytes)
{
    return ct_cuda_check(cudaMemsetAsync(data, 0, bytes, stream_of(st)), "cudaMemsetAsync");
}

static ct_status cuda_host_acquire(size_t bytes, void **data_p)
{
    return ct_cuda_check(cudaMallocHost(data_p, (bytes > 0) ? bytes : 1), "pinned memory");
}

static void cuda_host_release(void *data)
{
    (void)ct_cuda_check(cudaFreeHost(data), "cudaFreeHost");
}

/* Copies have a stream each way, beside the one that computes; events order them. */
enum { MOST_EVENTS = 1 << 12 };

static struct {
    cudaStream_t down, up, ahead;   /* ahead: batches, which gradients need not wait behind */
    cudaEvent_t spare[MOST_EVENTS]; /* events are made in the first steps, then used again */
    int n_spare;
} copies;

static ct_status copies_open(void)
{
    if (copies.down != NULL) return CT_OK;
    CT_TRY(ct_cuda_check(cudaStreamCreateWithFlags(&copies.down, cudaStreamNonBlocking), "stream"));
    CT_TRY(
        ct_cuda_check(cudaStreamCreateWithFlags(&copies.ahead, cudaStreamNonBlocking), "stream"));
    return ct_cuda_check(cudaStreamCreateWithFlags(&copies.up, cudaStreamNonBlocking), "stream");
}

static ct_status event_take(cudaEvent_t *event_p)
{
    if (copies.n_spare > 0) {
        *event_p = copies.spare[--copies.n_spare];
        return CT_OK;
    }
    return ct_cuda_check(cudaEventCreateWithFlags(event_p, cudaEventDisableTiming),
                         "cudaEventCreate");
}

static void event_give(cudaEvent_t event)
{
    if (copies.n_spare < MOST_EVENTS)
        copies.spare[copies.n_spare++] = event;
    else
        (void)cudaEventDestroy(event);
}

/* `behind` goes on after what `first` was given so far. An event may be used again at once: waits
 * take its state when they are called. */
static ct_status follow(cudaStream_t first, cudaStream_t behind)
{
    cudaEvent_t event;

    CT_TRY(event_take(&event));
    CT_TRY(ct_cuda_check(cudaEventRecord(event, first), "cudaEventRecord"));
    CT_TRY(ct_cuda_check(cudaStreamWaitEvent(behind, event, 0), "cudaStreamWaitEvent"));
    event_give(event);
    return CT_OK;
}

ct_status ct_cuda_follow(ct_stream first, ct_stream behind)
{
    return follow(stream_of(first), stream_of(behind));
}

static ct_status cuda_copy_begin(ct_stream st, void *host, void *data, size_t bytes, bool down,
                                 void **ticket_p)
{
    cudaStream_t compute = stream_of(st), way;
    cudaEvent_t event;

    *ticket_p = NULL;
    CT_TRY(copies_open());
    way = down ? copies.down : copies.up;
    CT_TRY(follow(compute, way)); /* up, too: what lies there may still be read */
    CT_TRY(ct_cuda_copy_beside(way, down ? host : data, down ? data : host, bytes, down,
                               "copy beside computation"));
    if (!down) return follow(way, compute);
    CT_TRY(event_take(&event));
    CT_TRY(ct_cuda_check(cudaEventRecord(event, way), "cudaEventRecord"));
    *ticket_p = (void *)event;
    return CT_OK;
}

static ct_status cuda_copy_done(void *ticket, bool wait, bool *done_p)
{
    cudaEvent_t event = (cudaEvent_t)ticket;
    cudaError_t err;

    if (wait) CT_TRY(ct_cuda_wait_event(event, "copy beside computation"));
    err = ct_cuda_query(event);
    *done_p = (err == cudaSuccess);
    if (err == cudaErrorNotReady) return CT_OK;
    event_give(event);
    return ct_cuda_check(err, "copy beside computation");
}

static ct_status cuda_copy_ahead(ct_stream st, const void *host, void *data, size_t bytes,
                                 void **ticket_p)
{
    cudaEvent_t event;

    *ticket_p = NULL;
    CT_TRY(copies_open());
    CT_TRY(follow(stream_of(st), copies.ahead)); /* what lies there may still be read */
    CT_TRY(ct_cuda_copy_beside(copies.ahead, data, host, bytes, false, "copy ahead"));
    CT_TRY(event_take(&event));
    CT_TRY(ct_cuda_check(cudaEventRecord(event, copies.ahead), "cudaEventRecord"));
    *ticket_p = (void *)event;
    return CT_OK;
}

static ct_status cuda_copy_follow(ct_stream st, void *ticket)
{
    return ct_cuda_check(cudaStreamWaitEvent(stream_of(st), (cudaEvent_t)ticket, 0), "copy ahead");
}

/* A few numbers travel in the launch of a kernel: no block, no copy, no event. */
enum { FEW_BYTES = 64 };

struct few_bytes {
    unsigned char byte[FEW_BYTES];
};

static __global__ void put_few_kernel(few_bytes few, int64_t n, unsigned char *to)
{
    CT_CUDA_LOOP(i, n) to[i] = few.byte[i];
}

static ct_status put_few(ct_stream st, void *data, const void *host, size_t bytes)
{
    few_bytes few;

    memcpy(few.byte, host, bytes);
    CT_CUDA_RUN(put_few_kernel, ct_cuda_grid((int64_t)bytes), st, few, (int64_t)bytes,
                (unsigned char *)data);
    return ct_cuda_launched("upload");
}

/* Uploads: a few pinned blocks of each size, with as much on the device, taken in turn. The host
 * waits only where it comes back to one that has not crossed yet. */
enum { UPLOADS = 32, EACH = 4 };

static struct {
    struct {
        void *here, *there;
        size_t bytes;
        cudaEvent_t crossed, used; /* NULL: never used */
        int64_t turn;
    } slot[UPLOADS];
    int64_t turn;
} uploads;

static ct_status slot_make(int k, size_t bytes)
{
    if (uploads.slot[k].bytes >= bytes) return CT_OK;
    if (uploads.slot[k].used != NULL) CT_TRY(ct_cuda_wait_event(uploads.slot[k].used, "upload"));
    if (uploads.slot[k].here != NULL) (void)cudaFreeHost(uploads.slot[k].here);
    if (uploads.slot[k].there != NULL) (void)cudaFree(uploads.slot[k].there);
    uploads.slot[k].here = uploads.slot[k].there = NULL;
    uploads.slot[k].bytes = 0;
    CT_TRY(ct_cuda_check(cudaMallocHost(&uploads.slot[k].here, bytes), "pinned memory"));
    CT_TRY(ct_cuda_check(cudaMalloc(&uploads.slot[k].there, bytes), "cudaMalloc"));
    uploads.slot[k].bytes = bytes;
    if (uploads.slot[k].crossed != NULL) return CT_OK;
    CT_TRY(ct_cuda_check(cudaEventCreateWithFlags(&uploads.slot[k].crossed, cudaEventDisableTiming),
                         "event"));
    return ct_cuda_check(cudaEventCreateWithFlags(&uploads.slot[k].used, cudaEventDisableTiming),
                         "event");
}

/* Of those of about this size the one that was taken first; a new one while they are few. */
static int slot_of(size_t bytes)
{
    int oldest = 0, best = -1, spare = -1, n = 0;

    for (int i = 0; i < UPLOADS; i++) {
        size_t has = uploads.slot[i].bytes;

        if (uploads.slot[i].turn < uploads.slot[oldest].turn) oldest = i;
        if (has == 0) {
            if (spare < 0) spare = i;
        } else if ((has >= bytes) && (has <= 2 * bytes + 4096)) {
            n++;
            if ((best < 0) || (uploads.slot[i].turn < uploads.slot[best].turn)) best = i;
        }
    }
    if ((n < EACH) && (spare >= 0)) return spare;
    return (best >= 0) ? best : oldest;
}

static ct_status cuda_upload(ct_stream st, void *data, const void *host, size_t bytes)
{
    cudaStream_t compute = stream_of(st);
    int k;

    if (bytes == 0) return CT_OK;
    if (bytes <= FEW_BYTES) return put_few(st, data, host, bytes);
    CT_TRY(copies_open());
    k = slot_of(bytes);
    uploads.slot[k].turn = ++uploads.turn;
    CT_TRY(slot_make(k, bytes));
    if (ct_cuda_query(uploads.slot[k].crossed) != cudaSuccess)
        CT_TRY(ct_cuda_wait_event(uploads.slot[k].crossed, "upload"));
    memcpy(uploads.slot[k].here, host, bytes);
    CT_TRY(ct_cuda_check(cudaStreamWaitEvent(copies.up, uploads.slot[k].used, 0), "upload"));
    CT_TRY(ct_cuda_copy_beside(copies.up, uploads.slot[k].there, uploads.slot[k].here, bytes, false,
                               "upload"));
    CT_TRY(ct_cuda_check(cudaEventRecord(uploads.slot[k].crossed, copies.up), "upload"));
    CT_TRY(ct_cuda_check(cudaStreamWaitEvent(compute, uploads.slot[k].crossed, 0), "upload"));
    CT_TRY(cuda_copy(st, data, uploads.slot[k].there, bytes));
    return ct_cuda_check(cudaEventRecord(uploads.slot[k].used, compute), "upload");
}

extern "C" const ct_graph_ops ct_graph_cuda;
extern "C" const ct_mark_ops ct_marks_cuda;
static const ct_device cuda_device = {
    "cuda",          CT_DEVICE_CUDA,  cuda_acquire,      cuda_release,
    cuda_to_host,    cuda_from_host,  cuda_copy,         cuda_zero,
    cuda_sync,       &ct_math_cuda,   cuda_host_acquire, cuda_host_release,
    cuda_copy_begin, cuda_copy_done,  cuda_upload,       &ct_graph_cuda,
    &ct_marks_cuda,  cuda_copy_ahead, cuda_copy_follow,
};

extern "C" ct_status ct_device_cuda_open(int local_rank, const ct_device **dev_p)
{
    int n = 0;
    cudaError_t err = cudaGetDeviceCount(&n);

    if ((err != cudaSuccess) || (n == 0))
        return CT_FAIL(CT_ERR_DEVICE,
                       "no GPU works here (%s); solver_mode: CPU computes on the processor",
                       (err != cudaSuccess) ? cudaGetErrorString(err) : "none is visible");
    CT_TRY(ct_cuda_check(cudaSetDevice(local_rank % n), "cudaSetDevice"));
    CT_TRY(ct_math_cuda_open());
    if (process.scratch == NULL) /* and a few numbers more: sums that the host reads */
        CT_TRY(ct_cuda_check(
            cudaMalloc((void **)&process.scratch, (CT_CUDA_SCRATCH + 8) * sizeof(double)),
            "cudaMalloc"));
    *dev_p = &cuda_device;
    return CT_OK;
}

extern "C" int ct_device_cuda_count(void)
{
    int n = 0;

    return (cudaGetDeviceCount(&n) == cudaSuccess) ? n : 0;
}

extern "C" ct_status ct_device_cuda_look(int i, ct_device_place *place_p)
{
    cudaDeviceProp p;

    memset(place_p, 0, sizeof(*place_p));
    CT_TRY(ct_cuda_check(cudaGetDeviceProperties(&p, i), "cudaGetDeviceProperties"));
    CT_TRY(ct_cuda_check(cudaDeviceGetPCIBusId(place_p->id, (int)sizeof(place_p->id), i),
                         "cudaDeviceGetPCIBusId"));
    snprintf(place_p->name, sizeof(place_p->name), "%.80s, compute %d.%d, %d multiprocessors",
             p.name, p.major, p.minor, p.multiProcessorCount);
    place_p->memory = (double)p.totalGlobalMem;
    return CT_OK;
}

/* ---- what the device that this process has open really does */

#ifdef CT_CUDA_EMULATED
enum { TURNS = 2, SIDE = 64 };
static const size_t BYTES = (size_t)1 << 20;
#else
enum { TURNS = 10, SIDE = 4096 };
static const size_t BYTES = (size_t)512 << 20;
#endif

/* Seconds of one of TURNS calls of run, after one that is not counted. */
template <class F> static ct_status time_of(F run, double *seconds_p)
{
    cudaEvent_t from, to;
    float ms = 0.0f;

    CT_TRY(ct_cuda_check(cudaEventCreate(&from), "cudaEventCreate"));
    CT_TRY(ct_cuda_check(cudaEventCreate(&to), "cudaEventCreate"));
    CT_TRY(run());
    CT_TRY(ct_cuda_check(cudaEventRecord(from, 0), "cudaEventRecord"));
    for (int i = 0; i < TURNS; i++) CT_TRY(run());
    CT_TRY(ct_cuda_check(cudaEventRecord(to, 0), "cudaEventRecord"));
    CT_TRY(ct_cuda_check(cudaEventSynchronize(to), "cudaEventSynchronize"));
    CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime"));
    (void)cudaEventDestroy(from);
    (void)cudaEventDestroy(to);
    *seconds_p = 1e-3 * (double)ms / TURNS;
    return CT_OK;
}

static ct_status measure(char *block, double *copy_p, double *product_p, double *narrow_p)
{
    const int64_t n = SIDE;
    float *a = (float *)block, *b = a + n * n, *c = b + n * n;
    double copy, product, narrow, flop = 2.0 * (double)n * (double)n * (double)n;

    CT_TRY(time_of(
        [=]() {
            return ct_cuda_check(
                cudaMemcpyAsync(block + BYTES, block, BYTES, cudaMemcpyDeviceToDevice, 0), "copy");
        },
        &copy));
    CT_TRY(time_of(
        [=]() {
            return ct_math_cuda.gemm(NULL, false, false, n, n, n, 1.0f, a, n, b, n, 0.0f, c, n);
        },
        &product));
    CT_TRY(time_of(
        [=]() {
            return ct_math_cuda_gemm_batch(NULL, CT_OPERAND_BF16, false, false, n, n, n, 1.0f, a, n,
                                           0, b, n, 0, 0.0f, c, n, 0, 1);
        },
        &narrow));
    *copy_p = 2.0 * (double)BYTES / copy;
    *product_p = flop / product;
    *narrow_p = flop / narrow;
    return CT_OK;
}

extern "C" ct_status ct_device_cuda_measure(double *copy_p, double *product_p, double *narrow_p)
{
    void *block = NULL;
    ct_status status;

    CT_TRY(ct_cuda_check(cudaMalloc(&block, 2 * BYTES), "cudaMalloc"));
    status = ct_cuda_check(cudaMemset(block, 0, 2 * BYTES), "cudaMemset");
    if (status == CT_OK) status = measure((char *)block, copy_p, product_p, narrow_p);
    (void)cudaFree(block);
    return status;
}
