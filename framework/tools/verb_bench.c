#include <stdlib.h>
#include <string.h>

#include "framework/tools/bench_comm.h"
#include "framework/tools/tools.h"

#define COMM "bench comm"

static const ct_option table[] = {
    { "sizes", CT_OPTION_TEXT, COMM, "LIST",
      "buffer sizes in bytes, such as 4K,64K,1M (4K to 256M)" },
    { "algorithm", CT_OPTION_TEXT, COMM, "NAME|all",
      "an allreduce, several with commas between, or all; mpi is the blocking MPI_Allreduce "
      "(all)" },
    { "algorithms", CT_OPTION_TEXT, COMM, "LIST", "the same as --algorithm" },
    { "repeat", CT_OPTION_COUNT, COMM, "N", "repetitions of each (by size, 5 to 200)" },
    { "memory", CT_OPTION_CHOICE, COMM, "arena|plain",
      "hier's buffers: where ranks of a node can share them, as in training, or not (arena)" },
    { "topology", CT_OPTION_TEXT, COMM, "SPEC", "a topology as train takes it" },
    { "threads", CT_OPTION_COUNT, COMM, "N", "threads a rank" },
    { "json", CT_OPTION_MAYBE, COMM, "FILE",
      "a line of JSON for each point, into the file or, without one, instead of the table" },
    { "log", CT_OPTION_CHOICE, COMM, "error|warn|info|debug", "how much to log (info)" },
};

enum { N_OPTION = sizeof(table) / sizeof(table[0]) };

/* Rank 0 prints or writes; a failure is everyone's. */
static ct_status show(const ct_call *call, const ct_bench_plan *plan, const ct_bench_result *result,
                      const char *file)
{
    bool to_stdout = (file != NULL) && (strcmp(file, "-") == 0);
    ct_text json = { 0 };
    ct_status status = CT_OK;

    if (!to_stdout) ct_bench_print(call->job->comm, plan, result);
    if ((file != NULL) && (call->job->rank == 0)) {
        ct_bench_json(call->job->comm, plan, result, &json);
        if (json.failed)
            status = CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
        else if (!to_stdout)
            status = ct_file_write(file, json.text, json.length);
        else if ((fputs(json.text, stdout) < 0) || (fflush(stdout) != 0))
            status = CT_FAIL(CT_ERR_IO, "writing the result to standard output failed");
        ct_text_destroy(&json);
    }
    return ct_job_share(call->job, status);
}

static ct_status bench_comm(const ct_call *call, const ct_options *o)
{
    const char *topology = ct_options_text(o, "topology"), *memory = ct_options_text(o, "memory");
    const char *algorithm = ct_options_text(o, "algorithm");
    ct_bench_plan plan = { .n_size = 0 };
    ct_bench_result *result = NULL;
    ct_status status = CT_OK;

    if (algorithm == NULL) algorithm = ct_options_text(o, "algorithms");
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(o, "threads", 0)));
    CT_TRY(ct_job_connect(call->job, (topology != NULL) ? topology : "auto"));
    CT_TRY(ct_bench_sizes(ct_options_text(o, "sizes"), &plan));
    CT_TRY(ct_bench_algorithms(call->job->comm, algorithm, &plan));
    plan.repeat = (int)ct_options_count(o, "repeat", 0);
    plan.plain = (memory != NULL) && (strcmp(memory, "plain") == 0);
    result = calloc((size_t)(plan.n_size * plan.n_algo), sizeof(*result));
    if (result == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the results");
    status = ct_bench_comm(call->job->comm, &plan, result);
    if (status == CT_OK) status = show(call, &plan, result, ct_options_text(o, "json"));
    free(result);
    return status;
}

ct_status ct_verb_bench(ct_call *call)
{
    char verb[] = COMM;
    ct_options *o = NULL;
    ct_status status = CT_OK;

    if ((call->argc < 2) || (strcmp(call->argv[1], "comm") != 0))
        return CT_FAIL(CT_ERR_CONFIG, "cortado bench: expected \"cortado bench comm [options]\"");
    if ((call->argc > 2) && (strcmp(call->argv[2], "--help") == 0)) {
        if (call->job->rank == 0) ct_options_help(table, N_OPTION, verb, stdout);
        return CT_OK;
    }
    call->argv[1] = verb;
    CT_TRY(ct_options_parse(table, N_OPTION, call->argc - 1, call->argv + 1, &o));
    status = bench_comm(call, o);
    ct_options_destroy(o);
    return status;
}
