/* Streams, events and graphs. Everything is done when it is given, in that order, whatever the
 * stream; what is captured keeps that order. What captured streams have seen of each other is
 * accounted for, so that work that nobody waits for is told. */
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <unistd.h>
#include <vector>

struct ct_emulated_graph {
    std::vector<std::function<void()>> work;
};

namespace
{
/* How much of each captured stream's work comes before this point. */
typedef std::map<cudaStream_t, int> seen;

struct capture {
    ct_emulated_graph *graph;
    cudaStream_t origin;
    std::map<cudaStream_t, seen> joined; /* the streams that are captured */
    cudaError_t failed;
} now; /* graph NULL: nothing is captured */
int n_capture, n_given, n_wait;
bool stuck;
cudaError_t last_error, broken;

bool is_captured(cudaStream_t st)
{
    return (now.graph != nullptr) && (now.joined.count(st) != 0);
}

cudaError_t spoil(cudaError_t err)
{
    if (now.failed == cudaSuccess) now.failed = err;
    return last_error = err;
}

void merge(seen &into, const seen &other)
{
    for (const auto &o : other) {
        int &mine = into[o.first];

        if (o.second > mine) mine = o.second;
    }
}
} // namespace

struct ct_emulated_stream {
    unsigned flags;
};

struct ct_emulated_event {
    std::chrono::steady_clock::time_point at;
    bool recorded, behind; /* behind: what the device will not get to */
    int capture;           /* in which it was; 0: in none */
    seen before;
};

int ct_emulated_given(void)
{
    return n_given;
}

int ct_emulated_waits(void)
{
    return n_wait;
}

void ct_emulated_stick(bool now_stuck)
{
    stuck = now_stuck;
}

void ct_emulated_break(cudaError_t err)
{
    broken = last_error = err;
}

void ct_emulated_mend(void)
{
    broken = last_error = cudaSuccess;
}

void ct_emulated_hang(void)
{
    while (stuck) usleep(1000);
}

void ct_emulated_give(cudaStream_t st, std::function<void()> work)
{
    if (is_captured(st)) {
        now.joined[st][st]++;
        now.graph->work.push_back(std::move(work));
        return;
    }
    if ((now.graph != nullptr) && (st == nullptr)) {
        spoil(cudaErrorStreamCaptureImplicit);
        return;
    }
    n_given++;
    if (!stuck) work();
}

bool ct_emulated_forbidden(cudaStream_t st)
{
    if ((now.graph == nullptr) || ((st != nullptr) && !is_captured(st))) return false;
    spoil(cudaErrorStreamCaptureUnsupported);
    return true;
}

/* ---- graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t st, cudaStreamCaptureMode)
{
    if ((st == nullptr) || (now.graph != nullptr)) return cudaErrorStreamCaptureUnsupported;
    now = { new ct_emulated_graph(), st, { { st, {} } }, cudaSuccess };
    n_capture++;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t st, cudaStreamCaptureStatus *status_p)
{
    *status_p = cudaStreamCaptureStatusNone;
    if (!is_captured(st)) return cudaSuccess;
    *status_p = (now.failed == cudaSuccess) ? cudaStreamCaptureStatusActive
                                            : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
}

/* CORTADO_EMULATED_CAPTURE=none: no capture succeeds; one: the first that ends with it. */
static bool refused(void)
{
    static int n_asked;
    const char *what = getenv("CORTADO_EMULATED_CAPTURE");

    n_asked = (what == nullptr) ? 0 : n_asked + 1;
    return (what != nullptr) && ((n_asked > 1) || (strcmp(what, "one") != 0));
}

cudaError_t cudaStreamEndCapture(cudaStream_t st, cudaGraph_t *graph_p)
{
    cudaError_t err = now.failed;

    if ((now.graph == nullptr) || (st != now.origin)) return cudaErrorInvalidValue;
    if (refused()) err = cudaErrorStreamCaptureUnsupported;
    for (const auto &s : now.joined) {
        if (now.joined[st][s.first] < now.joined[s.first][s.first] && (err == cudaSuccess))
            err = cudaErrorStreamCaptureUnjoined;
    }
    *graph_p = now.graph;
    now.graph = nullptr;
    return err;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_p, cudaGraph_t graph, unsigned long long)
{
    *exec_p = new ct_emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t st)
{
    ct_emulated_give(st, [=]() {
        for (const auto &w : exec->work) {
            if (!stuck) w();
        }
    });
    return cudaSuccess;
}

/* ---- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *st, unsigned flags)
{
    *st = new ct_emulated_stream{ flags };
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *st)
{
    return cudaStreamCreateWithFlags(st, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t st)
{
    delete st;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t st)
{
    if (ct_emulated_forbidden(st)) return cudaErrorStreamCaptureUnsupported;
    if (broken != cudaSuccess) return broken;
    return stuck ? (last_error = cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t st)
{
    if (ct_emulated_forbidden(st)) return cudaErrorStreamCaptureUnsupported;
    n_wait++;
    ct_emulated_hang();
    return broken;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaStreamSynchronize(nullptr);
}

/* ---- events */

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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t st)
{
    event->recorded = true;
    event->behind = stuck;
    event->capture = is_captured(st) ? n_capture : 0;
    if (event->capture != 0) {
        event->before = now.joined[st];
        return cudaSuccess;
    }
    if ((now.graph != nullptr) && (st == nullptr)) return spoil(cudaErrorStreamCaptureImplicit);
    event->at = std::chrono::steady_clock::now();
    return cudaSuccess;
}

static bool is_of_this(cudaEvent_t event)
{
    return (now.graph != nullptr) && (event->capture == n_capture);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t st, cudaEvent_t event, unsigned)
{
    bool of_this = is_of_this(event);

    if (!of_this && (event->capture != 0)) return spoil(cudaErrorCapturedEvent);
    if (is_captured(st) && event->recorded && !of_this)
        return spoil(cudaErrorStreamCaptureIsolation);
    if (!of_this) return cudaSuccess;
    if (st == nullptr) return spoil(cudaErrorStreamCaptureImplicit);
    merge(now.joined[st], event->before);
    return cudaSuccess;
}

/* What is captured has no moment to look at. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->capture != 0) return spoil(cudaErrorCapturedEvent);
    return (stuck && event->behind) ? (last_error = cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->capture != 0) return spoil(cudaErrorCapturedEvent);
    n_wait += event->recorded;
    if (event->behind) ct_emulated_hang();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if ((from->capture != 0) || (to->capture != 0)) return cudaErrorInvalidValue;
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return cudaSuccess;
}

/* ---- errors */

cudaError_t cudaGetLastError(void)
{
    cudaError_t err = last_error;

    last_error = broken;
    return err;
}

const char *cudaGetErrorString(cudaError_t err)
{
    switch (err) {
    case cudaSuccess:
        return "no error";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined:
        return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
        return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
        return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    default:
        return "invalid argument";
    }
}
