/* cortado-sim: run by smpirun, on the platform that `cortado simulate` writes. */
#include <ctype.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/tools/sim/sim.h"

static const ct_option option_table[] = {
    { "machine", CT_OPTION_TEXT, "*", "NAME|FILE|SPEC", "the machine" },
    { "ranks_per_node", CT_OPTION_COUNT, "*", "N", "ranks on a node (1)" },
    { "placement", CT_OPTION_TEXT, "*", "block|cyclic|random:SEED", "of the ranks (block)" },
    { "order", CT_OPTION_CHOICE, "*", "tree|rank",
      "collectives join ranks that are near (tree), or take them as they are numbered" },
    { "profile", CT_OPTION_TEXT, "*", "FILE", "of the net: cortado time --json" },
    { "images_per_s", CT_OPTION_TEXT, "*", "S", "of one rank alone, instead of the profile's" },
    { "batch", CT_OPTION_COUNT, "*", "N", "of one rank, instead of the profile's" },
    { "iterations", CT_OPTION_COUNT, "*", "N", "that count (2)" },
    { "warmup", CT_OPTION_COUNT, "*", "N", "iterations before them (1)" },
    { "jitter_seed", CT_OPTION_COUNT, "*", "SEED",
      "each rank's steps vary as the profile's samples do; without it they do not" },
    { "overlap", CT_OPTION_CHOICE, "*", "off|backward|both", "how far communication hides (both)" },
    { "progress", CT_OPTION_CHOICE, "*", "thread|poll",
      "communication moves as soon as it can, or at the profile's poll points (thread)" },
    { "set", CT_OPTION_LIST, "*", "FIELD=VALUE", "a solver field, such as comm.bucket_mb" },
    { "compression", CT_OPTION_TEXT, "*", "TYPE[:FIELD=VALUE,...]", "as in cortado train" },
    { "bench", CT_OPTION_TEXT, "*", "BYTES[,BYTES]", "collectives alone, instead of training" },
    { "algorithm", CT_OPTION_TEXT, "*", "NAME|all", "of the bench (all)" },
    { "check", CT_OPTION_FLAG, "*", NULL, "the sums of the bench (needs a build with SIM_REAL=1)" },
    { "json", CT_OPTION_TEXT, "*", "FILE", "where the result goes; standard output without it" },
};

/* This machine's clock: the other one is the simulation's. */
static double real_s(void)
{
    struct rusage used;

    (void)getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static ct_status place(ct_sim *sim, int n_rank, ct_topo **topo_p)
{
    int64_t per_node = ct_options_count(sim->options, "ranks_per_node", 1);
    const char *order = ct_options_text(sim->options, "order");
    ct_machine *machine = NULL;
    ct_status status = CT_OK;

    if (sim->machine == NULL) return CT_FAIL(CT_ERR_CONFIG, "--machine is missing");
    if (isdigit((unsigned char)sim->machine[0]) && (access(sim->machine, F_OK) != 0))
        CT_TRY(ct_machine_from_spec(sim->machine, &machine));
    else
        CT_TRY(ct_machine_read(sim->machine, &machine));
    status = ct_topo_place(machine, n_rank, (int)per_node, sim->placement, topo_p);
    ct_machine_destroy(machine);
    CT_TRY(status);
    for (int r = 0; (order != NULL) && (strcmp(order, "rank") == 0) && (r < n_rank); ++r)
        (*topo_p)->order[r] = r;
    return CT_OK;
}

static ct_status write_out(ct_sim *sim, const ct_text *body)
{
    const char *file = ct_options_text(sim->options, "json");
    ct_text t = { .text = NULL };
    ct_status status = CT_OK;

    if (sim->comm->rank != 0) return CT_OK;
    ct_text_add(&t, "{\"kind\":\"simulated\",\"machine\":");
    ct_text_add_json(&t, sim->comm->topo->machine.name);
    ct_text_add(&t, ",\"ranks\":%d,\"nodes\":%d,\"placement\":", sim->comm->size,
                sim->comm->topo->n_node);
    ct_text_add_json(&t, sim->placement);
    ct_text_add(&t, ",\"order\":\"%s\",%s,\"wall_s\":%.3f}\n",
                (ct_options_text(sim->options, "order") != NULL)
                    ? ct_options_text(sim->options, "order")
                    : "tree",
                (body->text != NULL) ? body->text : "", real_s() - sim->began);
    if (t.failed || body->failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
    else if (file != NULL)
        status = ct_file_write(file, t.text, t.length);
    else
        (void)fwrite(t.text, 1, t.length, stdout);
    ct_text_destroy(&t);
    return status;
}

static ct_status run(ct_sim *sim)
{
    ct_text json = { .text = NULL };
    ct_status status = CT_OK;

    if (sim->profile == NULL)
        status = ct_sim_bench(sim, &json);
    else
        status = ct_sim_train(sim, &json);
    if (status == CT_OK) status = write_out(sim, &json);
    ct_text_destroy(&json);
    return status;
}

static void drop_line(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

/* What every rank finds wrong alike: rank 0 says it, and all end. */
static ct_status set_up(ct_sim *sim, int argc, char **argv, ct_options **options_p,
                        ct_topo **topo_p)
{
    int rank = 0, n_rank = 1;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_rank);
    ct_log_init(rank, n_rank, "simulated");
    if (rank != 0) ct_log_set_sink(drop_line, NULL);
    CT_TRY(ct_options_parse(option_table, sizeof(option_table) / sizeof(option_table[0]), argc,
                            argv, options_p));
    sim->options = *options_p;
    sim->machine = ct_options_text(sim->options, "machine");
    sim->placement = ct_options_text(sim->options, "placement");
    if (sim->placement == NULL) sim->placement = "block";
    CT_TRY(place(sim, n_rank, topo_p));
    return ct_sim_prepare(sim);
}

int main(int argc, char **argv)
{
    ct_sim sim = { .options = NULL };
    ct_options *options = NULL;
    ct_topo *topo = NULL;
    ct_status status = CT_OK;

    sim.began = real_s();
    MPI_Init(&argc, &argv);
    argv[0] = (char *)(uintptr_t) "sim"; /* options speak of a verb */
    status = set_up(&sim, argc, argv, &options, &topo);
    if (status != CT_OK) return ct_status_exit_code(status);
    ct_log_set_sink(NULL, NULL);
    status = ct_comm_create_placed(MPI_COMM_WORLD, topo, &sim.comm);
    if (status == CT_OK) status = run(&sim);
    if (status != CT_OK) MPI_Abort(MPI_COMM_WORLD, ct_status_exit_code(status));
    ct_sim_release(&sim);
    ct_comm_destroy(sim.comm);
    ct_options_destroy(options);
    MPI_Finalize();
    return 0;
}
