/* Memory that only kernels and copies may touch, threads of a block as coroutines. One host thread
 * uses it. Streams, events and graphs: emulated_streams.cu. */
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
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
    const size_t huge = 2 << 20; /* one entry instead of 512 for each change of protection */

    if (arena != nullptr) return arena;
    void *at = mmap(nullptr, ARENA + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) fail("no address space");
    arena = (char *)(((uintptr_t)at + huge - 1) / huge * huge);
    madvise(arena, ARENA, MADV_HUGEPAGE);
    return arena;
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

    if (ct_emulated_forbidden(nullptr)) return cudaErrorStreamCaptureUnsupported;
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
    ct_emulated_hang(); /* it waits for the device */
    ct_emulated_finish();
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
    ct_emulated_finish();
    free(data);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t st)
{
    if ((bytes > 0) && !on_device(data)) return cudaErrorInvalidValue;
    ct_emulated_give(st, [=]() {
        ct_emulated_open();
        if (bytes > 0) memset(data, byte, bytes);
        ct_emulated_close();
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *data, int byte, size_t bytes)
{
    return cudaMemsetAsync(data, byte, bytes, nullptr);
}

/* CORTADO_EMULATED_BUS: megabytes that cross between host and device in a second; else copies take
 * what they take. */
static void cross_bus(size_t bytes)
{
    const char *mb = getenv("CORTADO_EMULATED_BUS");

    if ((mb != nullptr) && (atof(mb) > 0)) usleep((useconds_t)((double)bytes / atof(mb)));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t st)
{
    if (bytes == 0) return cudaSuccess;
    if ((on_device(to) != (kind != cudaMemcpyDeviceToHost)) ||
        (on_device(from) != (kind != cudaMemcpyHostToDevice)))
        return cudaErrorInvalidValue;
    if ((kind != cudaMemcpyDeviceToDevice) && ct_emulated_forbidden(st))
        return cudaErrorStreamCaptureUnsupported;
    ct_emulated_give(st, [=]() {
        ct_emulated_open();
        memmove(to, from, bytes);
        ct_emulated_close();
        if (kind != cudaMemcpyDeviceToDevice) cross_bus(bytes);
    });
    return cudaSuccess;
}

/* ---- devices */

/* CORTADO_EMULATED_GPUS: as many, so that ranks need not share one. */
cudaError_t cudaGetDeviceCount(int *n)
{
    const char *many = getenv("CORTADO_EMULATED_GPUS");

    *n = (many != nullptr) ? atoi(many) : 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    int n;

    cudaGetDeviceCount(&n);
    return ((device >= 0) && (device < n)) ? cudaSuccess : cudaErrorInvalidValue;
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

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, (size_t)size, "0000:%02x:00.0", (unsigned)device);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_p, size_t *all_p)
{
    *free_p = *all_p = ARENA;
    return cudaSuccess;
}

/* ---- kernels */

namespace
{
const size_t STACK = 64 << 10;

/* A thread of a block, which waits in its own stack at barriers and between kernels. */
struct fiber {
    ucontext_t context;
    jmp_buf at;
    std::vector<char> stack;
    bool started, done;
};

ucontext_t start;
jmp_buf scheduler;
fiber *current; /* NULL: no kernel with barriers runs */
const std::function<void()> *kernel;

void leave_fiber(fiber *f)
{
    if (_setjmp(f->at) == 0) _longjmp(scheduler, 1);
}

void fiber_main()
{
    for (;;) {
        (*kernel)();
        current->done = true;
        leave_fiber(current);
    }
}

/* Jumps, since swapcontext() asks the kernel for the mask of signals each time. */
void enter_fiber(fiber *f)
{
    current = f;
    if (_setjmp(scheduler) != 0) return;
    if (f->started) _longjmp(f->at, 1);
    f->started = true;
    f->stack.resize(STACK);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.data();
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = &start;
    makecontext(&f->context, fiber_main, 0);
    setcontext(&f->context);
}

/* Threads take turns, in the other direction after each barrier, so that one that is missing
 * shows. */
void run_block(std::vector<fiber> &team)
{
    bool forward = true;
    size_t n = team.size(), left = n;

    for (fiber &f : team) f.done = false;
    while (left > 0) {
        size_t ended = 0;

        for (size_t k = 0; k < n; k++) {
            size_t t = forward ? k : n - 1 - k;

            if (team[t].done) continue;
            threadIdx.x = (unsigned)t;
            enter_fiber(&team[t]);
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
    leave_fiber(current);
}

void ct_emulated_launch(unsigned blocks, unsigned threads, bool barriers,
                        const std::function<void()> &thread)
{
    static std::vector<fiber> team;

    if ((blocks == 0) || (threads == 0) || (threads > 1024)) fail("an impossible grid");
    ct_emulated_open();
    gridDim = { blocks, 1, 1 };
    blockDim = { threads, 1, 1 };
    kernel = &thread;
    team.resize(barriers ? threads : team.size());
    for (unsigned b = 0; b < blocks; b++) {
        blockIdx = { b, 0, 0 };
        if (barriers) {
            run_block(team);
            continue;
        }
        for (unsigned t = 0; t < threads; t++) {
            threadIdx = { t, 0, 0 };
            thread();
        }
    }
    ct_emulated_close();
}

/* ---- NVTX */

static int range_depth, n_range;

int nvtxRangePushA(const char *name)
{
    if (name == nullptr) fail("a range without a name");
    n_range++;
    return range_depth++;
}

int nvtxRangePop(void)
{
    if (range_depth == 0) fail("a range ends that did not begin");
    return --range_depth;
}

int ct_emulated_ranges(int *open_p)
{
    *open_p = range_depth;
    return n_range;
}
