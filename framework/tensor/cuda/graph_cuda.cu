/* Work of a stream recorded, and given again as one. */
#include "framework/tensor/cuda/device_cuda.h"

static cudaStream_t main_stream; /* the process's, like the device */

/* The default stream cannot be recorded. This one is ordered with it: whoever copies by the default
 * stream finds what this one computed. */
static ct_status stream_open(ct_stream *st_p)
{
    if (main_stream == NULL) CT_TRY(ct_cuda_check(cudaStreamCreate(&main_stream), "stream"));
    *st_p = (ct_stream)main_stream;
    return CT_OK;
}

static ct_status begin(ct_stream st)
{
    return ct_cuda_check(cudaStreamBeginCapture((cudaStream_t)st, cudaStreamCaptureModeThreadLocal),
                         "graph");
}

static ct_status end(ct_stream st, void **graph_p)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    ct_status status = ct_cuda_check(cudaStreamEndCapture((cudaStream_t)st, &graph), "graph");

    *graph_p = NULL;
    if ((status == CT_OK) && (graph != NULL))
        status = ct_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    if (graph != NULL) (void)cudaGraphDestroy(graph);
    if (status == CT_OK) *graph_p = (void *)exec;
    return status;
}

static ct_status run(ct_stream st, void *graph)
{
    return ct_cuda_check(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)st), "graph");
}

static void release(void *graph)
{
    (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

extern "C" const ct_graph_ops ct_graph_cuda = {
    stream_open, begin, end, run, release, ct_cuda_waits
};
