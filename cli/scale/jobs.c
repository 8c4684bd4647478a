#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/scale/scale.h"
#include "framework/base/file.h"

/* ---- why a run failed: the first error line of its log, or the last line that says anything */

static void find_why(const ct_child *c, char *why, size_t size)
{
    char line[400] = "", first[400] = "", last[400] = "";
    FILE *f = (c->log != NULL) ? fopen(c->log, "r") : NULL;

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        line[strcspn(line, "\r\n")] = '\0';
        if ((first[0] == '\0') && (((line[0] == 'E') && isdigit((unsigned char)line[1])) ||
                                   (strstr(line, "/CRITICAL]") != NULL))) /* ours; SimGrid's */
            snprintf(first, sizeof(first), "%s", line);
        if (line[strspn(line, " \t-")] != '\0') snprintf(last, sizeof(last), "%s", line);
    }
    if (f != NULL) fclose(f);
    if (c->timed_out)
        snprintf(why, size, "took longer than %.0f s (--limit)", c->limit_s);
    else
        snprintf(why, size, "exit code %d: %.350s", c->exit_code,
                 (first[0] != '\0') ? first : last);
}

static json_t *facts(const ct_scale_job *job)
{
    json_t *extra = json_object();
    ct_text command = { 0 };

    ct_argv_print(&job->child.env, &command);
    if (job->child.env.n > 0) ct_text_add(&command, " ");
    ct_argv_print(&job->child.command, &command);
    json_object_set_new(extra, "command", json_string((command.text != NULL) ? command.text : ""));
    json_object_set_new(extra, "wall_s", json_real(job->child.wall_s));
    json_object_set_new(extra, "exit_code", json_integer(job->child.exit_code));
    json_object_set_new(extra, "peak_rss", json_real(job->child.peak_rss));
    json_object_set_new(extra, "emulated", json_boolean(job->emulated));
    ct_text_destroy(&command);
    return extra;
}

/* ---- a list of them */

ct_status ct_scale_jobs_add(ct_scale *s, ct_scale_jobs *jobs, json_t *define, ct_scale_job **job_p)
{
    json_t *run = ct_run_find(&s->study, define);
    char name[200], path[800];
    ct_scale_job *job;

    *job_p = NULL;
    if (run != NULL) {
        json_decref(run);
        json_decref(define);
        jobs->n_done_before += 1;
        s->n_run += 1;
        return CT_OK;
    }
    if (jobs->n == jobs->capacity) {
        int capacity = (jobs->capacity > 0) ? 2 * jobs->capacity : 32;
        ct_scale_job *list = realloc(jobs->job, (size_t)capacity * sizeof(*list));

        if (list == NULL) {
            json_decref(define);
            return CT_FAIL(CT_ERR_NOMEM, "no memory for the list of runs");
        }
        jobs->job = list;
        jobs->capacity = capacity;
    }
    job = &jobs->job[jobs->n++];
    memset(job, 0, sizeof(*job));
    job->define = define;
    ct_run_name(define, name, sizeof(name));
    ct_study_path(&s->study, job->out, sizeof(job->out), "work/%s.json", name);
    ct_study_path(&s->study, path, sizeof(path), "logs/%s.log", name);
    job->child.log = strdup(path);
    job->child.limit_s = s->limit_s;
    if (job->child.log == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the list of runs");
    *job_p = job;
    return CT_OK;
}

void ct_scale_jobs_destroy(ct_scale_jobs *jobs)
{
    for (int i = 0; i < jobs->n; i++) {
        ct_child_destroy(&jobs->job[i].child);
        json_decref(jobs->job[i].define);
    }
    free(jobs->job);
    memset(jobs, 0, sizeof(*jobs));
}

/* ---- running them */

typedef struct turn {
    ct_scale *s;
    ct_scale_jobs *jobs;
} turn;

static ct_status started(void *ctx, int i)
{
    turn *t = ctx;
    const ct_scale_job *job = &t->jobs->job[i];
    char name[200];

    ct_run_name(job->define, name, sizeof(name));
    CT_INFO("run %d of %d: %s", i + 1, t->jobs->n, name);
    unlink(job->out);
    return CT_OK;
}

/* The program's JSON: an object, or one object a line, which become an array. */
static json_t *read_result(const char *path)
{
    char *data = NULL, *rest;
    size_t size = 0;
    json_t *all, *list;

    if ((access(path, R_OK) != 0) || (ct_file_read(path, &data, &size) != CT_OK)) return NULL;
    all = json_loadb(data, size, 0, NULL);
    if (all == NULL) {
        list = json_array();
        rest = data;
        for (char *line; (list != NULL) && ((line = strsep(&rest, "\n")) != NULL);) {
            json_t *one = (line[0] != '\0') ? json_loads(line, 0, NULL) : NULL;

            if (one != NULL) json_array_append_new(list, one);
        }
        all = json_object();
        json_object_set_new(all, "results", list);
        if (json_array_size(list) == 0) {
            json_decref(all);
            all = NULL;
        }
    } else if (json_is_array(all)) {
        list = all;
        all = json_object();
        json_object_set_new(all, "results", list);
    }
    free(data);
    return all;
}

static ct_status ended(void *ctx, int i)
{
    turn *t = ctx;
    ct_scale_job *job = &t->jobs->job[i];
    json_t *result = NULL, *extra = facts(job);
    char why[500] = "", name[200];
    int ranks, wanted;
    ct_status status;

    if ((job->child.exit_code == 0) && !job->child.timed_out) {
        result = read_result(job->out);
        if (result == NULL) snprintf(why, sizeof(why), "exit code 0, but it wrote no JSON");
    } else {
        find_why(&job->child, why, sizeof(why));
    }
    unlink(job->out);
    ranks = ct_json_int(result, "ranks", -1);
    wanted = ct_json_int(job->define, "ranks", -1);
    if ((result != NULL) && (json_object_get(result, "ranks") != NULL) && (ranks != wanted)) {
        snprintf(why, sizeof(why), "it ran on %d ranks instead of %d", ranks, wanted);
        json_decref(result);
        result = NULL;
    }
    t->s->n_run += 1;
    if (result == NULL) {
        t->s->n_failed += 1;
        ct_run_name(job->define, name, sizeof(name));
        CT_WARN("run %s failed: %s; its log: %s", name, why, job->child.log);
    }
    status = ct_run_save(&t->s->study, job->define, result, why, extra);
    json_decref(result);
    json_decref(extra);
    return status;
}

ct_status ct_scale_jobs_run(ct_scale *s, ct_scale_jobs *jobs, int n_job, double memory)
{
    turn t = { s, jobs };
    ct_child **child = calloc((size_t)jobs->n + 1, sizeof(*child));
    ct_status status;

    if (child == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d runs", jobs->n);
    if (jobs->n_done_before > 0)
        CT_INFO("%d runs are there already, %d to do", jobs->n_done_before, jobs->n);
    for (int i = 0; i < jobs->n; i++) child[i] = &jobs->job[i].child;
    status = ct_children_run(child, jobs->n, n_job, memory, started, ended, &t);
    free(child);
    return status;
}

/* ---- the net */

static ct_status nothing(void *ctx, int i)
{
    (void)ctx;
    (void)i;
    return CT_OK;
}

/* The exit codes of a verb, as statuses of ours. */
static ct_status status_of(int exit_code)
{
    return (exit_code == 2) ? CT_ERR_CONFIG : (exit_code == 3) ? CT_ERR_DATA : CT_ERR_ARG;
}

/* `cortado check` of the net as one configuration has it; its result into file. */
static ct_status check_config(ct_scale *s, const ct_scale_config *config, int64_t batch,
                              const char *file)
{
    bool ablated = (config != &s->config[0]) && (strcmp(config->name, CT_SCALE_PARALLEL) != 0);
    char log[800], why[500] = "";
    const char *said;
    ct_child c = { .limit_s = 300 }, *list[] = { &c };
    ct_status status;

    ct_study_path(&s->study, log, sizeof(log), "logs/check.log");
    c.log = strdup(log);
    ct_argv_add(&c.command, "%s", s->self);
    ct_argv_add(&c.command, "check");
    ct_argv_add(&c.command, "--%s=%s", s->word, s->file);
    if (batch > 0) ct_argv_add(&c.command, "--set=batch_size=%lld", (long long)batch);
    for (int i = 0; i < config->options.n; i++)
        ct_argv_add(&c.command, "%s", config->options.word[i]);
    ct_argv_add(&c.command, "--json=%s", file);
    status = ct_children_run(list, 1, 1, 0, NULL, nothing, NULL);
    if ((status == CT_OK) && (c.exit_code != 0)) {
        find_why(&c, why, sizeof(why));
        said = strstr(why, "] ");
        status = CT_FAIL(status_of(c.exit_code), "%s%s%s%s", ablated ? "--ablate=" : "",
                         ablated ? config->name : "", ablated ? ": " : "",
                         (said != NULL) ? said + 2 : why);
    }
    if ((c.exit_code == 0) || (c.exit_code == 2) || (c.exit_code == 3))
        (void)unlink(log); /* all of it is said */
    ct_child_destroy(&c);
    return status;
}

ct_status ct_scale_check_net(ct_scale *s, int64_t batch)
{
    char file[800];
    ct_status status = CT_OK;

    ct_study_path(&s->study, file, sizeof(file), "work/check.json");
    unlink(file);
    for (int i = s->n_config - 1; (status == CT_OK) && (i >= 0); i--) {
        if ((i == 0) || (s->config[i].options.n > 0))
            status = check_config(s, &s->config[i], batch, file);
    }
    if (status == CT_OK) status = ct_json_read(file, &s->net);
    unlink(file);
    return status;
}
