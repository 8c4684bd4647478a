/* Times measured by cortado time --json, for a plan. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan_job.h"
#include "framework/base/file.h"

/* A file's times: seconds of each layer of the plan's net, both directions. */
typedef struct profile {
    const char *path;
    int64_t batch;
    double *seconds; /* [layer][direction] */
} profile;

static ct_status fail(const profile *f, const char *what)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: no profile of cortado time --json: %s", f->path, what);
}

static int find_layer(const ct_net *net, const char *name, int from)
{
    for (int i = 0; i < net->n_layer; i++) {
        int at = (from + i) % net->n_layer;

        if (strcmp(net->layer[at]->name, name) == 0) return at;
    }
    return -1;
}

static ct_status read_layers(const ct_job_net *n, const json_t *layers, profile *f)
{
    int at = 0;

    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *l = json_array_get(layers, i);
        const char *name = json_string_value(json_object_get(l, "name"));
        double forward = json_number_value(json_object_get(l, "forward_ms"));
        double backward = json_number_value(json_object_get(l, "backward_ms"));

        if (name == NULL) return fail(f, "a layer has no name");
        if (!(forward >= 0) || !(backward >= 0)) return fail(f, "a layer's time is below 0");
        at = find_layer(n->net, name, at);
        if (at < 0) continue; /* a Reorder that another batch needs */
        f->seconds[at * CT_JOB_N_DIRECTION + CT_JOB_FORWARD] += 1e-3 * forward;
        f->seconds[at * CT_JOB_N_DIRECTION + CT_JOB_BACKWARD] += 1e-3 * backward;
    }
    return CT_OK;
}

static ct_status read_root(const ct_job_net *n, const json_t *root, profile *f)
{
    const json_t *layers = json_object_get(root, "layers");
    const char *hash = json_string_value(json_object_get(root, "net_hash"));
    char own[24];

    f->batch = json_integer_value(json_object_get(root, "batch"));
    if (!json_is_array(layers) || (hash == NULL)) return fail(f, "layers or net_hash are missing");
    if (f->batch < 1) return fail(f, "batch is not above 0");
    snprintf(own, sizeof(own), "%016" PRIx64, n->hash);
    if (strcmp(own, hash) != 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the profile is of a net of hash %.40s, but \"%s\" has hash %s", f->path,
                       hash, n->net->name, own);
    return read_layers(n, layers, f);
}

static ct_status read_profile(const ct_job_net *n, const char *path, profile *f)
{
    size_t rows = (size_t)n->net->n_layer * CT_JOB_N_DIRECTION, size = 0;
    char *text = NULL;
    json_error_t error;
    json_t *root;
    ct_status status;

    *f = (profile){ .path = path };
    CT_TRY(ct_settings_read(path, &text, &size));
    root = json_loadb(text, size, 0, &error);
    free(text);
    if (root == NULL) return fail(f, error.text);
    f->seconds = calloc(rows + 1, sizeof(*f->seconds));
    status = (f->seconds != NULL) ? read_root(n, root, f)
                                  : CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    json_decref(root);
    return status;
}

/* One file: times grow with the batch. Two: a constant and a slope. */
static ct_status join(const ct_job_net *n, const profile *a, const profile *b, ct_job_line *line)
{
    int rows = n->net->n_layer * CT_JOB_N_DIRECTION;

    if ((b->path != NULL) && (a->batch == b->batch))
        return CT_FAIL(CT_ERR_CONFIG, "%s, %s: both profiles are of batch %" PRId64, a->path,
                       b->path, a->batch);
    for (int i = 0; i < rows; i++) {
        const profile *low = ((b->path != NULL) && (b->batch < a->batch)) ? b : a;
        const profile *high = (low == a) ? b : a;

        line[i] = (b->path == NULL) ? (ct_job_line){ 0, a->seconds[i] / (double)a->batch }
                                    : ct_job_line_of((double)low->batch, low->seconds[i],
                                                     (double)high->batch, high->seconds[i]);
    }
    return CT_OK;
}

/* "FILE" or "FILE,FILE". */
static ct_status read_text(const ct_job_net *n, const char *text, ct_job_line *line)
{
    char *copy = strdup(text), *comma;
    profile a = { 0 }, b = { 0 };
    ct_status status;

    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for --profile");
    comma = strchr(copy, ',');
    if (comma != NULL) *comma = '\0';
    status = read_profile(n, copy, &a);
    if ((status == CT_OK) && (comma != NULL)) status = read_profile(n, comma + 1, &b);
    if (status == CT_OK) status = join(n, &a, &b, line);
    free(a.seconds);
    free(b.seconds);
    free(copy);
    return status;
}

/* Of a class its own profile; else that of --profile, at its speed. */
static const char *profile_of(const ct_plan_job_state *p, int k)
{
    if ((p->machine != NULL) && (p->machine->n_node_class > 0) &&
        (p->machine->node_class[k].profile[0] != '\0'))
        return p->machine->node_class[k].profile;
    return ct_options_text(p->call->options, "profile");
}

ct_status ct_plan_job_measure(ct_plan_job_state *p)
{
    ct_job_net *n = &p->net;
    size_t rows = (size_t)n->net->n_layer * CT_JOB_N_DIRECTION;
    const char *common = ct_options_text(p->call->options, "profile");

    for (int k = 0; k < p->job.n_class; k++) {
        const char *text = profile_of(p, k);

        if (text == NULL) continue;
        if (n->measured == NULL)
            n->measured = calloc(CT_MAX_NODE_CLASS * rows, sizeof(*n->measured));
        if (n->measured == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for profiles");
        CT_TRY(read_text(n, text, n->measured + (size_t)k * rows));
        p->job.kind[k].measured = k;
        p->job.kind[k].measured_speed = (text == common) ? p->job.kind[k].speed : 1;
    }
    return CT_OK;
}
