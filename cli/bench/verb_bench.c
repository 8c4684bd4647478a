#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/verb.h"
#include "framework/base/file.h"
#include "framework/base/number.h"

#define COMM  "bench comm"
#define CODEC "bench codec"
#define SERVE "bench serve"

static const ct_option table[] = {
    { "sizes", CT_OPTION_TEXT, COMM, "LIST",
      "buffer sizes in bytes, such as 4K,64K,1M (4K to 256M)" },
    { "kind", CT_OPTION_CHOICE, COMM, "allreduce|reduce_scatter|allgather",
      "what is timed: allreduces, or these halves of them (allreduce)" },
    { "algorithm", CT_OPTION_TEXT, COMM, "NAME|all",
      "an allreduce, several with commas between, or all; mpi is the blocking one of MPI (all)" },
    { "algorithms", CT_OPTION_TEXT, COMM, "LIST", "the same as --algorithm" },
    { "repeat", CT_OPTION_SOME, COMM, "N", "repetitions of each (by size, 5 to 200)" },
    { "memory", CT_OPTION_CHOICE, COMM, "arena|plain",
      "hier's buffers: where ranks of a node can share them, as in training, or not (arena)" },
    { "fit", CT_OPTION_MAYBE, COMM, "FILE",
      "measure the levels of the topology instead, and write a machine file for --topology" },
    { "topology", CT_OPTION_TEXT, COMM, "SPEC", "a topology as train takes it" },
    { "threads", CT_OPTION_COUNT, COMM, "N", "threads a rank" },
    { "json", CT_OPTION_MAYBE, COMM, "FILE",
      "a line of JSON for each point, into the file or, without one, instead of the table" },
    { "log", CT_OPTION_CHOICE, COMM, "error|warn|info|debug", "how much to log (info)" },
};

enum { N_OPTION = sizeof(table) / sizeof(table[0]) };

static const ct_option codec_table[] = {
    { "count", CT_OPTION_SEED, CODEC, "N", "elements (25000000)" },
    { "density", CT_OPTION_TEXT, CODEC, "D", "share of them that is selected (0.001)" },
    { "selection", CT_OPTION_CHOICE, CODEC, "exact|trimmed|search|sampled", "only this (all)" },
    { "repeat", CT_OPTION_COUNT, CODEC, "N", "repetitions (11)" },
    { "threads", CT_OPTION_COUNT, CODEC, "N", "threads a rank" },
    { "json", CT_OPTION_MAYBE, CODEC, "FILE",
      "a line of JSON for each row, into the file or, without one, instead of the table" },
    { "log", CT_OPTION_CHOICE, CODEC, "error|warn|info|debug", "how much to log (info)" },
};

enum { N_CODEC_OPTION = sizeof(codec_table) / sizeof(codec_table[0]) };

static const ct_option serve_table[] = {
    { "model", CT_OPTION_TEXT, SERVE, "FILE", "a deploy net of tokens, or of pictures" },
    { "weights", CT_OPTION_TEXT, SERVE, "FILES", "its weights (as fillers make them)" },
    { "shapes", CT_OPTION_TEXT, SERVE, "LIST",
      "sequences x tokens of each, 8x1@128: behind 128 in a cache; 10+20+30, mix20: tokens of "
      "each, packed and padded; numbers of pictures "
      "(1x10,1x40,1x100,1x200,1x500,20x10,20x40)" },
    { "precision", CT_OPTION_CHOICE, SERVE, "F32|BF16",
      "of products, and what lies between (F32)" },
    { "parallel", CT_OPTION_TEXT, SERVE, "FILE|tensor:N", "what of the net each rank has" },
    { "rows", CT_OPTION_CHOICE, SERVE, "ALL|LAST",
      "what a net of tokens gives of each text: all tokens' rows, or the last one's (ALL; LAST "
      "behind a cache)" },
    { "scores", CT_OPTION_OUT, SERVE, "FILE", "the rows of each shape's first run, as text" },
    { "trace", CT_OPTION_OUT, SERVE, "FILE",
      "what ran when on every rank, for chrome://tracing or ui.perfetto.dev" },
    { "pass", CT_OPTION_OUT, SERVE, "FILE",
      "with --parallel: what each step of the last shape's last run took, for simulate --pass" },
    { "trace_iterations", CT_OPTION_TEXT, SERVE, "A-B", "the runs to trace, from 0 on (0-4)" },
    { "repeat", CT_OPTION_SOME, SERVE, "N", "runs of each shape (by time, 3 to 200)" },
    { "threads", CT_OPTION_COUNT, SERVE, "N", "threads" },
    { "json", CT_OPTION_MAYBE, SERVE, "FILE",
      "a line of JSON for each shape, into the file or, without one, instead of the table" },
    { "log", CT_OPTION_CHOICE, SERVE, "error|warn|info|debug", "how much to log (info)" },
};

enum { N_SERVE_OPTION = sizeof(serve_table) / sizeof(serve_table[0]) };

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

static void name_machine(const ct_comm *c, const char *file, ct_machine *m)
{
    const char *base = ct_path_base(file);
    char host[64] = "?", day[32] = "";
    time_t now = time(NULL);
    struct tm parts;

    (void)gethostname(host, sizeof(host) - 1);
    if (localtime_r(&now, &parts) != NULL) (void)strftime(day, sizeof(day), "%Y-%m-%d", &parts);
    if (strcmp(file, "-") == 0) base = host;
    snprintf(m->name, sizeof(m->name), "%.*s", (int)strcspn(base, "."), base);
    snprintf(m->source, sizeof(m->source),
             "cortado bench comm --fit on %s, %s: %d ranks on %d nodes", host, day, c->size,
             c->topo->n_node);
}

/* Rank 0 writes the machine, and reads it back: what --topology would not take is found now. */
static ct_status write_machine(const char *file, const ct_machine *m)
{
    ct_text text = { 0 };
    ct_machine *again = NULL;
    ct_status status = ct_machine_write(m, &text);

    if (status == CT_OK) status = ct_machine_parse(file, text.text, text.length, &again);
    ct_machine_destroy(again);
    if ((status == CT_OK) && (strcmp(file, "-") != 0))
        status = ct_file_write(file, text.text, text.length);
    else if ((status == CT_OK) && ((printf("\n%s", text.text) < 0) || (fflush(stdout) != 0)))
        status = CT_FAIL(CT_ERR_IO, "writing the machine to standard output failed");
    ct_text_destroy(&text);
    return status;
}

static ct_status bench_fit(const ct_call *call, const char *file)
{
    ct_comm *c = call->job->comm;
    ct_fit_report report = { .flop = 0 };
    ct_status status = ct_bench_fit(c, &report);

    if (status == CT_OK) ct_bench_fit_print(c, &report);
    if ((status == CT_OK) && (c->rank == 0)) {
        name_machine(c, file, &report.machine);
        status = write_machine(file, &report.machine);
    }
    ct_bench_fit_free(&report);
    return ct_job_share(call->job, status);
}

static ct_coll_kind read_kind(const ct_options *o)
{
    const char *text = ct_options_text(o, "kind");
    int kind = 0;

    while ((text != NULL) && (strcmp(text, ct_coll_kind_name[kind]) != 0)) kind += 1;
    return (ct_coll_kind)kind;
}

static ct_status bench_comm(const ct_call *call, ct_options *o)
{
    const char *topology = ct_options_text(o, "topology"), *memory = ct_options_text(o, "memory");
    const char *algorithm = ct_options_text(o, "algorithm"), *fit = ct_options_text(o, "fit");
    const char *json = ct_options_text(o, "json"), *out = (fit != NULL) ? fit : json;
    ct_bench_plan plan = { .n_size = 0 };
    ct_bench_result *result = NULL;
    ct_status status = CT_OK;

    if (algorithm == NULL) algorithm = ct_options_text(o, "algorithms");
    if ((out != NULL) && (strcmp(out, "-") != 0) && (call->job->rank == 0))
        status = ct_file_check_writable(out);
    CT_TRY(ct_job_share(call->job, status));
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(o, "threads", 0)));
    CT_TRY(ct_job_connect(call->job, (topology != NULL) ? topology : "auto", false));
    if (fit != NULL) return bench_fit(call, fit);
    plan.kind = read_kind(o);
    CT_TRY(ct_bench_sizes(ct_options_text(o, "sizes"), &plan));
    CT_TRY(ct_bench_algorithms(call->job->comm, algorithm, &plan));
    plan.repeat = (int)ct_options_count(o, "repeat", 0);
    plan.plain = (memory != NULL) && (strcmp(memory, "plain") == 0);
    result = calloc((size_t)plan.n_size * (size_t)plan.n_algo, sizeof(*result));
    if (result == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the results");
    status = ct_bench_comm(call->job->comm, &plan, result);
    if (status == CT_OK) status = show(call, &plan, result, json);
    free(result);
    return status;
}

static ct_status read_density(const char *text, double *density_p)
{
    char *end = NULL;
    double d = 0.001;

    if ((text != NULL) &&
        (!ct_number_real(text, &end, &d) || (*end != '\0') || !(d > 0.0) || (d > 1.0)))
        return CT_FAIL(CT_ERR_CONFIG, "--density=%s: expected a number over 0, up to 1", text);
    *density_p = d;
    return CT_OK;
}

/* Every rank measures, as in training all of a node encode at once; rank 0 shows its figures. */
static ct_status bench_codec(const ct_call *call, ct_options *o)
{
    const char *file = ct_options_text(o, "json");
    ct_codec_bench plan = { .count = ct_options_count(o, "count", 25000000),
                            .repeat = (int)ct_options_count(o, "repeat", 11),
                            .selection = ct_options_text(o, "selection") };
    ct_codec_row row[CT_CODEC_ROWS];
    ct_text json = { 0 };
    ct_status status = CT_OK;
    int n = 0;

    CT_TRY(read_density(ct_options_text(o, "density"), &plan.density));
    if ((file != NULL) && (strcmp(file, "-") != 0) && (call->job->rank == 0))
        status = ct_file_check_writable(file);
    CT_TRY(ct_job_share(call->job, status));
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(o, "threads", 0)));
    plan.n_thread = call->job->threads.n;
    status = ct_job_share(call->job, ct_bench_codec(&plan, row, &n));
    if ((status != CT_OK) || (call->job->rank != 0)) return status;
    if (file == NULL) {
        ct_bench_codec_print(&plan, row, n);
        return CT_OK;
    }
    ct_bench_codec_json(&plan, row, n, &json);
    if (json.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
    else if (strcmp(file, "-") != 0)
        status = ct_file_write(file, json.text, json.length);
    else if ((fputs(json.text, stdout) < 0) || (fflush(stdout) != 0))
        status = CT_FAIL(CT_ERR_IO, "writing the result to standard output failed");
    ct_text_destroy(&json);
    return status;
}

static ct_status bench_serve(const ct_call *call, ct_options *o)
{
    const char *file = ct_options_text(o, "json"), *precision = ct_options_text(o, "precision");
    const char *shapes = ct_options_text(o, "shapes"), *rows = ct_options_text(o, "rows");
    ct_serve_bench plan = { .model = ct_options_text(o, "model"),
                            .weights = ct_options_text(o, "weights"),
                            .repeat = (int)ct_options_count(o, "repeat", 0),
                            .bf16 = (precision != NULL) && (strcmp(precision, "BF16") == 0),
                            .last = (rows != NULL) && (strcmp(rows, "LAST") == 0) };
    ct_serve_row row[CT_BENCH_MAX_BATCH];
    ct_call own = *call;
    ct_trace_file trace;
    ct_text json = { 0 };
    ct_status status = CT_OK;

    if (plan.model == NULL) return CT_FAIL(CT_ERR_CONFIG, "cortado bench serve needs --model");
    plan.parallel = ct_options_text(o, "parallel");
    plan.job = call->job;
    if ((call->job->size > 1) && (plan.parallel == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado bench serve runs on one rank, not on %d, unless "
                       "--parallel says what each has",
                       call->job->size);
    CT_TRY(ct_bench_shapes((shapes != NULL) ? shapes : CT_BENCH_SHAPES, &plan));
    if ((file != NULL) && (strcmp(file, "-") != 0) && (call->job->rank == 0))
        status = ct_file_check_writable(file);
    plan.scores = ct_options_text(o, "scores");
    plan.pass = ct_options_text(o, "pass");
    if ((plan.pass != NULL) && (plan.parallel == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--pass=%s: the steps of ranks that --parallel tells of",
                       plan.pass);
    if ((plan.scores != NULL) && (call->job->rank == 0) && (status == CT_OK))
        status = ct_file_check_writable(plan.scores);
    if ((plan.pass != NULL) && (call->job->rank == 0) && (status == CT_OK))
        status = ct_file_check_writable(plan.pass);
    CT_TRY(ct_job_share(call->job, status));
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(o, "threads", 0)));
    plan.n_thread = call->job->threads.n;
    if ((plan.parallel != NULL) || (ct_options_text(o, "trace") != NULL))
        CT_TRY(ct_job_connect(call->job, "auto", false));
    own.options = o;
    CT_TRY(ct_trace_file_open(&own, &trace));
    plan.trace = &trace;
    status = ct_bench_serve(&plan, row);
    ct_trace_file_close(&trace);
    CT_TRY(status);
    if (call->job->rank != 0) return CT_OK;
    if (file == NULL) {
        ct_bench_serve_print(&plan, row);
        return CT_OK;
    }
    ct_bench_serve_json(&plan, row, &json);
    if (json.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
    else if (strcmp(file, "-") != 0)
        status = ct_file_write(file, json.text, json.length);
    else if ((fputs(json.text, stdout) < 0) || (fflush(stdout) != 0))
        status = CT_FAIL(CT_ERR_IO, "writing the result to standard output failed");
    ct_text_destroy(&json);
    return status;
}

static const struct bench_kind {
    const char *name;
    const char *verb;
    const char *summary;
    const ct_option *table;
    int n_option;
    ct_status (*run)(const ct_call *call, ct_options *o);
} kind_table[] = {
    { "comm", COMM, "allreduces, each beside MPI's", table, N_OPTION, bench_comm },
    { "codec", CODEC, "selections of gradient compression", codec_table, N_CODEC_OPTION,
      bench_codec },
    { "serve", SERVE, "passes of a served net", serve_table, N_SERVE_OPTION, bench_serve },
};

enum { N_KIND = sizeof(kind_table) / sizeof(kind_table[0]) };

bool ct_bench_form(int i, ct_verb_form *form_p)
{
    const struct bench_kind *k = &kind_table[i];

    if (i >= N_KIND) return false;
    *form_p = (ct_verb_form){ k->verb, k->summary, k->table, k->n_option };
    return true;
}

ct_status ct_verb_bench(ct_call *call)
{
    const struct bench_kind *kind;
    char verb[16];
    ct_options *o = NULL;
    ct_status status = CT_OK;
    int i;

    CT_TRY(ct_help_find_kind(ct_verb_find("bench"), (call->argc > 1) ? call->argv[1] : NULL, &i));
    kind = &kind_table[i];
    snprintf(verb, sizeof(verb), "%s", kind->verb);
    call->argv[1] = verb;
    CT_TRY(ct_options_parse(kind->table, kind->n_option, call->argc - 1, call->argv + 1, &o));
    status = kind->run(call, o);
    ct_options_destroy(o);
    return status;
}
