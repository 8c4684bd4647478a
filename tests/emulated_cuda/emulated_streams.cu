/* Streams, events and graphs. Everything is done when it is given, in that order, whatever the
 * stream, unless it is told to come late; what is captured keeps that order. What captured streams
 * have seen of each other is accounted for, so that work that nobody waits for is told. */
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
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

/* ---- work that comes late. CORTADO_EMULATED_LATE=copies: streams that do not wait for the default
 * one do nothing until somebody waits for them. =work: the others do nothing until somebody waits,
 * so that copies come early. Whoever forgot to wait finds other numbers. */

namespace
{
struct lane;
struct item {
    std::function<void()> work;
    lane *behind; /* NULL: work; else a wait for its first `upto` */
    long upto;
};

/* Work in one order. Nothing of it is freed: events name it. */
struct lane {
    std::deque<item> queue;
    long given, done;
};

const int PATIENCE = 200; /* looks at an event that is late */
lane base; /* of the default stream, and of those that it waits for */
std::vector<lane *> lanes{ &base };

bool is_late(const lane *l)
{
    const char *what = getenv("CORTADO_EMULATED_LATE");

    if (what == nullptr) return false;
    if (strcmp(what, "copies") == 0) return l != &base;
    return (strcmp(what, "work") == 0) && (l == &base);
}

void run_to(lane *l, long n)
{
    while (l->done < n) {
        item i = std::move(l->queue.front());

        l->queue.pop_front();
        l->done++;
        if (i.behind != nullptr)
            run_to(i.behind, i.upto);
        else
            i.work();
    }
}
} // namespace

struct ct_emulated_stream {
    unsigned flags;
    lane *own; /* NULL: the default stream waits for it */
};

static lane *lane_of(cudaStream_t st)
{
    return ((st != nullptr) && (st->own != nullptr)) ? st->own : &base;
}

void ct_emulated_finish(void)
{
    for (lane *l : lanes) run_to(l, l->given);
}

struct ct_emulated_event {
    std::chrono::steady_clock::time_point at;
    bool recorded, behind; /* behind: what the device will not get to */
    int capture;           /* in which it was; 0: in none */
    seen before;
    lane *of; /* it is behind the first `upto` of it; NULL: never recorded */
    long upto;
    int asked; /* how often, since it was recorded */
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
    if (stuck) return;
    if (is_late(lane_of(st))) {
        lane_of(st)->queue.push_back({ std::move(work), nullptr, 0 });
        lane_of(st)->given++;
        return;
    }
    run_to(lane_of(st), lane_of(st)->given);
    work();
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
    ct_emulated_finish();
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
    *st = new ct_emulated_stream{ flags, nullptr };
    if ((flags & cudaStreamNonBlocking) == 0) return cudaSuccess;
    (*st)->own = new lane{};
    lanes.push_back((*st)->own);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *st)
{
    return cudaStreamCreateWithFlags(st, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t st)
{
    run_to(lane_of(st), lane_of(st)->given);
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
    run_to(lane_of(st), lane_of(st)->given);
    return broken;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ct_emulated_finish();
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
    event->of = lane_of(st);
    event->upto = event->of->given;
    event->asked = 0;
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
    if (!of_this && (event->of != nullptr) && (event->of->done < event->upto)) {
        if (is_late(lane_of(st))) {
            lane_of(st)->queue.push_back({ nullptr, event->of, event->upto });
            lane_of(st)->given++;
        } else {
            run_to(event->of, event->upto);
        }
    }
    if (!of_this) return cudaSuccess;
    if (st == nullptr) return spoil(cudaErrorStreamCaptureImplicit);
    merge(now.joined[st], event->before);
    return cudaSuccess;
}

/* What is captured has no moment to look at. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->capture != 0) return spoil(cudaErrorCapturedEvent);
    if ((event->of != nullptr) && (event->of->done < event->upto)) { /* who asks often gets there */
        if (++event->asked < PATIENCE) return last_error = cudaErrorNotReady;
        run_to(event->of, event->upto);
    }
    return (stuck && event->behind) ? (last_error = cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->capture != 0) return spoil(cudaErrorCapturedEvent);
    n_wait += event->recorded;
    if (event->behind) ct_emulated_hang();
    if (event->of != nullptr) run_to(event->of, event->upto);
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
