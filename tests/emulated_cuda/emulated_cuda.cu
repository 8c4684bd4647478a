/* Memory that only kernels and copies may touch, threads of a block as coroutines, cuBLAS's
 * products as loops. One host thread uses it. */
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

ct_emulated_dim threadIdx, blockIdx, blockDim, gridDim;

/* ---- memory */

namespace
{
const size_t ARENA = (size_t)2 << 30, PAGE = 4096;
char *arena;
std::map<size_t, size_t> used; /* offset: bytes */
int open_depth;

void fail(const char *what)
{
    fprintf(stderr, "emulated CUDA: %s\n", what);
    abort();
}

char *arena_base()
{
    if (arena != nullptr) return arena;
    void *at = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) fail("no address space");
    return arena = (char *)at;
}

bool on_device(const void *p)
{
    return (arena != nullptr) && ((const char *)p >= arena) && ((const char *)p < arena + ARENA);
}
} // namespace

void ct_emulated_open(void)
{
    if (open_depth++ == 0) mprotect(arena_base(), ARENA, PROT_READ | PROT_WRITE);
}

void ct_emulated_close(void)
{
    if (--open_depth == 0) mprotect(arena_base(), ARENA, PROT_NONE);
}

cudaError_t cudaMalloc(void **data_p, size_t bytes)
{
    size_t need = (bytes + PAGE) / PAGE * PAGE + PAGE, at = 0; /* a page free between two blocks */

    arena_base();
    for (const auto &u : used) {
        if (u.first - at >= need) break;
        at = u.first + u.second;
    }
    if (at + need > ARENA) return cudaErrorMemoryAllocation;
    used[at] = need;
    *data_p = arena + at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data)
{
    if (data == nullptr) return cudaSuccess;
    if (!on_device(data) || (used.erase((size_t)((char *)data - arena)) != 1))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **data_p, size_t bytes)
{
    *data_p = malloc(bytes + 1);
    return (*data_p != nullptr) ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *data)
{
    free(data);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *data, int byte, size_t bytes)
{
    if ((bytes > 0) && !on_device(data)) return cudaErrorInvalidValue;
    ct_emulated_open();
    if (bytes > 0) memset(data, byte, bytes);
    ct_emulated_close();
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t)
{
    return cudaMemset(data, byte, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t)
{
    if (bytes == 0) return cudaSuccess;
    if ((on_device(to) != (kind != cudaMemcpyDeviceToHost)) ||
        (on_device(from) != (kind != cudaMemcpyHostToDevice)))
        return cudaErrorInvalidValue;
    ct_emulated_open();
    memmove(to, from, bytes);
    ct_emulated_close();
    return cudaSuccess;
}

/* ---- device, streams, events: everything is done when it is called */

struct ct_emulated_event {
    std::chrono::steady_clock::time_point at;
};

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return (device == 0) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "emulated on the host");
    p->totalGlobalMem = ARENA;
    p->major = 8;
    p->multiProcessorCount = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int)
{
    snprintf(text, (size_t)size, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_p, size_t *all_p)
{
    *free_p = *all_p = ARENA;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *st, unsigned)
{
    static char one;

    *st = &one;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = new ct_emulated_event();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    event->at = std::chrono::steady_clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t err)
{
    return (err == cudaErrorMemoryAllocation) ? "out of memory"
           : (err == cudaSuccess)             ? "no error"
                                              : "invalid argument";
}

/* ---- kernels */

namespace
{
const size_t STACK = 64 << 10;

struct fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
};

ucontext_t scheduler;
fiber *current; /* NULL: no kernel with barriers runs */
void (*kernel)(void *);
void *kernel_ctx;

void fiber_main()
{
    kernel(kernel_ctx);
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

/* Threads take turns, in the other direction after each barrier, so that one that is missing
 * shows. */
void run_block(std::vector<fiber> &team)
{
    bool forward = true;
    size_t n = team.size(), left = n;

    for (size_t t = 0; t < n; t++) {
        fiber &f = team[t];

        f.done = false;
        f.stack.resize(STACK);
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = &scheduler;
        makecontext(&f.context, fiber_main, 0);
    }
    while (left > 0) {
        size_t ended = 0;

        for (size_t k = 0; k < n; k++) {
            size_t t = forward ? k : n - 1 - k;

            if (team[t].done) continue;
            current = &team[t];
            threadIdx.x = (unsigned)t;
            swapcontext(&scheduler, &current->context);
            ended += team[t].done;
        }
        if ((ended != 0) && (ended != left)) fail("a thread left its block before a barrier");
        left -= ended;
        forward = !forward;
    }
    current = nullptr;
}
} // namespace

void ct_emulated_barrier(void)
{
    if (current == nullptr) fail("a barrier in a kernel launched as one without");
    swapcontext(&current->context, &scheduler);
}

void ct_emulated_launch(unsigned blocks, unsigned threads, bool barriers, void (*closure)(void *),
                        void *ctx)
{
    static std::vector<fiber> team;

    if ((blocks == 0) || (threads == 0) || (threads > 1024)) fail("an impossible grid");
    ct_emulated_open();
    gridDim = { blocks, 1, 1 };
    blockDim = { threads, 1, 1 };
    kernel = closure;
    kernel_ctx = ctx;
    team.resize(barriers ? threads : team.size());
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = { b, 0, 0 };
        if (barriers) {
            run_block(team);
            continue;
        }
        for (unsigned t = 0; t < threads; t++) {
            threadIdx = { t, 0, 0 };
            closure(ctx);
        }
    }
    ct_emulated_close();
}

/* ---- cuBLAS */

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    static char one;

    *handle = (cublasHandle_t)&one;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

static int64_t at(cublasOperation_t t, int64_t row, int64_t column, int64_t ld)
{
    return (t == CUBLAS_OP_N) ? row + column * ld : column + row * ld;
}

cublasStatus_t cublasSgemm_64(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                              int64_t n, int64_t k, const float *alpha, const float *a, int64_t lda,
                              const float *b, int64_t ldb, const float *beta, float *c, int64_t ldc)
{
    if ((m < 0) || (n < 0) || (k < 0) || (lda < ((ta == CUBLAS_OP_N) ? m : k)) || (ldc < m) ||
        (ldb < ((tb == CUBLAS_OP_N) ? k : n)) || (lda < 1) || (ldb < 1) || (ldc < 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    ct_emulated_open();
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) {
            double sum = 0.0;

            for (int64_t p = 0; p < k; p++)
                sum += (double)a[at(ta, i, p, lda)] * (double)b[at(tb, p, j, ldb)];
            c[i + j * ldc] =
                (float)((double)*alpha * sum +
                        ((*beta != 0.0f) ? (double)*beta * (double)c[i + j * ldc] : 0.0));
        }
    }
    ct_emulated_close();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemmStridedBatched_64(cublasHandle_t h, cublasOperation_t ta,
                                            cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
                                            const float *alpha, const float *a, int64_t lda,
                                            long long a_step, const float *b, int64_t ldb,
                                            long long b_step, const float *beta, float *c,
                                            int64_t ldc, long long c_step, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        cublasStatus_t st = cublasSgemm_64(h, ta, tb, m, n, k, alpha, a + i * a_step, lda,
                                           b + i * b_step, ldb, beta, c + i * c_step, ldc);

        if (st != CUBLAS_STATUS_SUCCESS) return st;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemv_64(cublasHandle_t h, cublasOperation_t ta, int64_t m, int64_t n,
                              const float *alpha, const float *a, int64_t lda, const float *x,
                              int64_t step_x, const float *beta, float *y, int64_t step_y)
{
    bool turned = (ta == CUBLAS_OP_T);

    if ((step_x != 1) || (step_y != 1)) return CUBLAS_STATUS_INVALID_VALUE;
    return cublasSgemm_64(h, ta, CUBLAS_OP_N, turned ? n : m, 1, turned ? m : n, alpha, a, lda, x,
                          turned ? m : n, beta, y, turned ? n : m);
}
