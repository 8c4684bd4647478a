/* cortado-sim: run by smpirun, on the platform that `cortado simulate` writes. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "cli/simulate/program/sim.h"
#include "cli/simulate/sim_setup.h"
#include "comm/core/sim_codec.h"
#include "runtime/config/config.h"

static ct_status read_positive(const ct_sim *sim, const char *name, double *value_p)
{
    const char *text = ct_options_text(sim->options, name);
    char *end = NULL;

    *value_p = 0;
    if (text == NULL) return CT_OK;
    *value_p = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !isfinite(*value_p) || (*value_p <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: expected a number above 0", name, text);
    return CT_OK;
}

static ct_status read_solver(ct_sim *sim)
{
    const ct_options *o = sim->options;
    const char *spec = ct_options_text(o, "compression");

    sim->solver = malloc(sizeof(*sim->solver));
    if (sim->solver == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    ct__solver_parameter__init(sim->solver);
    for (int i = 0; i < ct_options_n(o, "set"); ++i) {
        ct_origin origin;
        const char *entry = ct_options_entry(o, "set", i, &origin), *value = strchr(entry, '=');
        char path[96];

        if ((value == NULL) || ((size_t)(value - entry) >= sizeof(path)))
            return CT_FAIL(CT_ERR_CONFIG, "--set=%s: expected FIELD=VALUE", entry);
        snprintf(path, sizeof(path), "%.*s", (int)(value - entry), entry);
        CT_TRY(ct_prototxt_set(&sim->solver->base, path, value + 1, "--set"));
    }
    if (spec != NULL) CT_TRY(ct_config_compression(sim->solver, spec, "--compression"));
    return CT_OK;
}

static ct_sim_overlap read_overlap(const char *word)
{
    if (word == NULL) return CT_SIM_BOTH;
    if (strcmp(word, "off") == 0) return CT_SIM_OFF;
    return (strcmp(word, "backward") == 0) ? CT_SIM_BACKWARD : CT_SIM_BOTH;
}

/* Reads what training or the bench needs, on every rank for itself. CT_ERR_CONFIG … */
static ct_status sim_prepare(ct_sim *sim)
{
    const ct_options *o = sim->options;
    const char *file = ct_options_text(o, "profile");
    const char *progress = ct_options_text(o, "progress");
    double images_per_s = 0;

    if (ct_options_text(o, "bench") != NULL) return CT_OK;
    sim->thread = (progress == NULL) || (strcmp(progress, "thread") == 0);
    sim->n_step = (int)ct_options_count(o, "iterations", 2);
    sim->n_warmup = (int)ct_options_count(o, "warmup", 1);
    if (sim->n_step < 1) return CT_FAIL(CT_ERR_CONFIG, "--iterations: at least 1");
    if (ct_options_text(o, "pass") != NULL) return CT_OK;
    if (file == NULL) return CT_FAIL(CT_ERR_CONFIG, "--profile, --pass or --bench is missing");
    CT_TRY(read_positive(sim, "images_per_s", &images_per_s));
    sim->overlap = read_overlap(ct_options_text(o, "overlap"));
    CT_TRY(read_solver(sim));
    CT_TRY(ct_profile_read(file, &sim->profile));
    ct_profile_scale(sim->profile, images_per_s, ct_options_count(o, "batch", 0));
    if ((ct_options_text(o, "jitter_seed") != NULL) && (sim->profile->n_sample == 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s has no step_ms_samples to draw jitter from", file);
    return CT_OK;
}

static void sim_release(ct_sim *sim)
{
    if (sim->solver != NULL) ct__solver_parameter__free_unpacked(sim->solver, NULL);
    ct_profile_destroy(sim->profile);
}

/* This machine's clock: the other one is the simulation's. */
static double real_s(void)
{
    struct rusage used;

    (void)getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static ct_status write_out(ct_sim *sim, const ct_text *body)
{
    const char *file = ct_options_text(sim->options, "json");
    const char *order = ct_options_text(sim->options, "order");
    ct_text t = { .text = NULL };
    ct_json_writer w = ct_json_into(&t);
    ct_status status = CT_OK;

    if (sim->comm->rank != 0) return CT_OK;
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "kind", "simulated");
    ct_json_add_text(&w, "machine", sim->comm->topo->machine.name);
    ct_json_add_integer(&w, "ranks", sim->comm->size);
    ct_json_add_integer(&w, "nodes", sim->comm->topo->n_node);
    ct_json_add_text(&w, "placement", ct_sim_placement(sim->options));
    ct_json_add_text(&w, "order", (order != NULL) ? order : "tree");
    ct_json_add_members(&w, body->text);
    ct_json_add_decimals(&w, "wall_s", real_s() - sim->began, 3);
    ct_json_end(&w);
    ct_text_add(&t, "\n");
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
    ct_json_writer w = ct_json_members_into(&json);
    ct_status status = CT_OK;

    if (sim->profile != NULL)
        status = ct_sim_train(sim, &w);
    else if (ct_options_text(sim->options, "bench") != NULL)
        status = ct_sim_bench(sim, &w);
    else
        status = ct_sim_forward(sim, &w);
    if (status == CT_OK) status = write_out(sim, &json);
    ct_text_destroy(&json);
    return status;
}

/* The ranks are one process, with one log: what is no error, rank 0 says for all. */
static void say(void *ctx, const char *text)
{
    int rank = 0, size = 0;

    (void)ctx;
    (void)ct_comm_everyone(&rank, &size);
    if ((rank == 0) || (text[0] == 'E')) (void)fputs(text, stderr);
}

/* SMPI's own allreduce is a matter of messages. */
static ct_status check_network(const ct_sim *sim, const ct_machine *m)
{
    const char *name = ct_options_text(sim->options, "algorithm");

    if (sim->solver != NULL)
        name = (sim->solver->comm != NULL) ? sim->solver->comm->allreduce : "auto";
    if ((m->in_network.bandwidth == 0) || (name == NULL) || (strcmp(name, "auto") != 0))
        return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "machine %s has in_network, and the simulator knows no sums in the network: name "
        "an algorithm, or take in_network out of the file",
        m->name);
}

/* What is wrong, every rank finds alike: the first says it, and all end. */
static ct_status set_up(ct_sim *sim, int rank, int n_rank, int argc, char **argv,
                        ct_options **options_p, ct_topo **topo_p)
{
    ct_log_init(0, 1, "");
    ct_log_set_sink(say, NULL);
    CT_TRY(ct_options_parse(ct_sim_option_table, ct_sim_option_table_n, argc, argv, options_p));
    sim->options = *options_p;
    CT_TRY(ct_sim_place(sim->options, n_rank, topo_p));
    sim->node_speed = ct_topo_speed(*topo_p, (*topo_p)->node[rank]);
    sim->speed = ct_codec_speed_at(ct_machine_codec_speed(&(*topo_p)->machine), sim->node_speed);
    ct_sim_codec_set(&sim->speed);
    CT_TRY(sim_prepare(sim));
    return check_network(sim, &(*topo_p)->machine);
}

int main(int argc, char **argv)
{
    ct_sim sim = { .options = NULL };
    ct_options *options = NULL;
    ct_topo *topo = NULL;
    ct_status status = CT_OK;
    MPI_Comm all;
    int rank = 0, n_rank = 1;

    sim.began = real_s();
    MPI_Init(&argc, &argv);
    all = ct_comm_everyone(&rank, &n_rank);
    argv[0] = (char *)(uintptr_t) "sim"; /* options speak of a verb */
    status = set_up(&sim, rank, n_rank, argc, argv, &options, &topo);
    if (status != CT_OK) _exit(ct_status_exit_code(status));
    status = ct_comm_create_placed(all, topo, &sim.comm);
    if (status == CT_OK) status = run(&sim);
    /* all ranks are one process, and after MPI_Abort() that ends with 0 */
    if (status != CT_OK) _exit(ct_status_exit_code(status));
    sim_release(&sim);
    ct_comm_destroy(sim.comm);
    ct_options_destroy(options);
    MPI_Finalize();
    return 0;
}
