/* Simulated points: the machine becomes a platform of SimGrid, smpirun runs cortado-sim on it. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hash.h"
#include "cli/scale/machine_study.h"
#include "cli/scale/simulator.h"

typedef struct simulation {
    const ct_machine_study *m;
    char program[PATH_MAX], hash[20]; /* of the simulator */
    ct_scale_jobs jobs;
} simulation;

/* ---- the simulator */

static ct_status hash_file(const char *path, char out[20])
{
    char *data = NULL;
    size_t size = 0;
    ct_hash h;

    CT_TRY(ct_file_read(path, &data, &size));
    ct_hash_init(&h);
    ct_hash_add(&h, data, size);
    free(data);
    snprintf(out, 20, "%016llx", (unsigned long long)ct_hash_value(&h));
    return CT_OK;
}

/* ---- platforms: one for each number of nodes and placement */

static ct_status write_platform(const simulation *w, int64_t nodes, const char *placement,
                                const char *xml, const char *hosts)
{
    const ct_machine_study *m = w->m;
    ct_topo *t = NULL;
    ct_status status;

    CT_TRY(ct_topo_place(m->machine, (int)(nodes * m->per_node), (int)m->per_node, placement, &t));
    status = ct_simulator_platform(t, xml, hosts);
    ct_topo_destroy(t);
    return status;
}

/* smpirun, its platform, the settings, the simulator and what it needs to know of the machine. */
static ct_status add_start(simulation *w, ct_scale_job *job, int64_t nodes, const char *placement)
{
    const ct_machine_study *m = w->m;
    ct_argv *c = &job->child.command;
    char name[100], xml[800], hosts[800];

    snprintf(name, sizeof(name), "%.40s-n%lld-r%lld-%.20s", m->machine_hash, (long long)nodes,
             (long long)m->per_node, placement);
    for (char *k = name; *k != '\0'; k++) *k = (*k == ':') ? '-' : *k;
    ct_study_path(&m->scale->study, xml, sizeof(xml), "work/%s.xml", name);
    ct_study_path(&m->scale->study, hosts, sizeof(hosts), "work/%s.hosts", name);
    CT_TRY(write_platform(w, nodes, placement, xml, hosts));
    ct_simulator_start(m->machine, (int)(nodes * m->per_node), xml, hosts, w->program, c);
    ct_argv_add(c, "--machine=%s", m->machine_text);
    ct_argv_add(c, "--ranks_per_node=%lld", (long long)m->per_node);
    ct_argv_add(c, "--json=%s", job->out);
    return CT_OK;
}

/* Private memory and page tables of ranks whose large buffers are folded into one block. */
static double memory_for(const ct_machine_study *m, int64_t nodes)
{
    const ct_profile_param *last = &m->profile->param[m->profile->n_param - 1];
    double gradients = 4.0 * (double)(last->offset + last->count);

    return 6.4e7 + (double)(nodes * m->per_node) * (1.5e6 + gradients / 128);
}

/* ---- runs */

static ct_status add_training(simulation *w, int64_t nodes, const ct_scale_config *c)
{
    const ct_machine_study *m = w->m;
    json_t *d = ct_machine_study_define(m, "simulated", nodes, c), *options;
    int64_t iterations = ct_machine_study_iterations(m, nodes);
    ct_scale_job *job = NULL;
    ct_argv *words;

    json_object_set_new(d, "iterations", json_integer(iterations));
    json_object_set_new(d, "warmup", json_integer(m->warmup));
    json_object_set_new(d, "simulator", json_string(w->hash));
    CT_TRY(ct_scale_jobs_add(m->scale, &w->jobs, d, &job));
    if (job == NULL) return CT_OK;
    CT_TRY(add_start(w, job, nodes, ct_machine_study_placement(m, c)));
    words = &job->child.command;
    ct_argv_add(words, "--profile=%s", m->profile_path);
    ct_argv_add(words, "--batch=%lld", (long long)ct_machine_study_batch(m, nodes));
    if (m->images_per_s > 0) ct_argv_add(words, "--images_per_s=%.9g", m->images_per_s);
    if (m->jitter_seed > 0) ct_argv_add(words, "--jitter_seed=%lld", (long long)m->jitter_seed);
    ct_argv_add(words, "--iterations=%lld", (long long)iterations);
    ct_argv_add(words, "--warmup=%lld", (long long)m->warmup);
    if (c->placement[0] == '\0') ct_argv_add(words, "--placement=%s", m->placement);
    options = json_object_get(d, "options");
    for (size_t i = 0; i < json_array_size(options); i++)
        ct_argv_add(words, "%s", json_string_value(json_array_get(options, i)));
    job->child.memory = memory_for(m, nodes);
    return CT_OK;
}

/* The collectives alone at the largest simulated point; rings of many ranks are millions of
 * messages, so they stay out above 256. */
static ct_status add_bench(simulation *w, int64_t nodes)
{
    static const char *const algorithm[] = { "rhd", "hier", "tree", "torus", "ring" };
    const ct_machine_study *m = w->m;
    const char *sizes = ct_options_text(m->scale->options, "sizes");

    for (size_t i = 0; i < sizeof(algorithm) / sizeof(algorithm[0]); i++) {
        json_t *d = json_object();
        ct_scale_job *job = NULL;

        if ((nodes * m->per_node > 256) && (strcmp(algorithm[i], "ring") == 0)) continue;
        if (sizes == NULL) sizes = "4096,65536,1048576,16777216,104857600";
        json_object_set_new(d, "kind", json_string("bench-simulated"));
        json_object_set_new(d, "machine", json_string(m->machine->name));
        json_object_set_new(d, "machine_hash", json_string(m->machine_hash));
        json_object_set_new(d, "net", json_string("allreduce"));
        json_object_set_new(d, "nodes", json_integer(nodes));
        json_object_set_new(d, "ranks", json_integer(nodes * m->per_node));
        json_object_set_new(d, "placement", json_string(m->placement));
        json_object_set_new(d, "mode", json_string(algorithm[i]));
        json_object_set_new(d, "config", json_string(sizes));
        json_object_set_new(d, "simulator", json_string(w->hash));
        CT_TRY(ct_scale_jobs_add(m->scale, &w->jobs, d, &job));
        if (job == NULL) continue;
        CT_TRY(add_start(w, job, nodes, m->placement));
        ct_argv_add(&job->child.command, "--placement=%s", m->placement);
        ct_argv_add(&job->child.command, "--bench=%s", sizes);
        ct_argv_add(&job->child.command, "--algorithm=%s", algorithm[i]);
        job->child.memory = memory_for(m, nodes);
    }
    return CT_OK;
}

static double memory_here(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[200];
    double kb = 0;

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        if (sscanf(line, "MemAvailable: %lf kB", &kb) == 1) break;
    }
    if (f != NULL) fclose(f);
    return 1024 * kb;
}

static ct_status list_runs(simulation *w)
{
    const ct_scale *s = w->m->scale;
    int64_t largest = 0;

    for (int i = 0; i < s->n_node; i++) {
        if (s->node[i] > w->m->simulate_to) break;
        largest = s->node[i];
        for (int c = 0; c < s->n_config; c++) {
            if (s->config[c].read[0] == '\0') /* reading is modelled only */
                CT_TRY(add_training(w, s->node[i], &s->config[c]));
        }
    }
    if ((largest > 1) && !ct_options_flag(s->options, "no_bench")) CT_TRY(add_bench(w, largest));
    return CT_OK;
}

ct_status ct_scale_simulated(const ct_machine_study *m)
{
    simulation *w = calloc(1, sizeof(*w));
    int64_t gib = ct_options_count(m->scale->options, "memory_gib", 0);
    int64_t n_job = ct_options_count(m->scale->options, "jobs", m->scale->n_core);
    double memory = (gib > 0) ? ldexp((double)gib, 30) : 0.7 * memory_here();
    ct_status status;

    if (w == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of runs");
    w->m = m;
    CT_TRY_GOTO(status, out, ct_simulator_find(m->scale->self, w->program));
    CT_TRY_GOTO(status, out, hash_file(w->program, w->hash));
    CT_TRY_GOTO(status, out, list_runs(w));
    status = ct_scale_jobs_run(m->scale, &w->jobs, (int)n_job, memory);
out:
    ct_scale_jobs_destroy(&w->jobs);
    free(w);
    return status;
}
