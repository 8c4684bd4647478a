#include "tests/test.h"
#include "tests/solver_harness.h"
#include "tests/net_layers.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/proto/prototxt.h"
#include "framework/snapshot/model.h"

double probe_gradient(int weight, int element, int64_t micro_step, double value)
{
    return 0.5 * value + sin((double)(1 + weight * 7 + element + 3 * micro_step));
}

static ct_status probe_setup(ct_layer *l, const ct_shape *bottom)
{
    static const Ct__FillerParameter none = CT__FILLER_PARAMETER__INIT;
    Ct__FillerParameter *gaussian = l->state;

    (void)bottom;
    *gaussian = none;
    gaussian->type = (char *)(uintptr_t) "gaussian";
    gaussian->has_std = 1;
    gaussian->std = 1;
    ct_layer_add_weight(l, &(ct_shape){ 2, { 5, 1 } }, gaussian);
    ct_layer_add_weight(l, &(ct_shape){ 1, { 3 } }, NULL);
    return CT_OK;
}

static ct_status probe_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &(ct_shape){ 0, { 0 } });
    return CT_OK;
}

static ct_status probe_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__InnerProductParameter *p = l->param->inner_product_param;
    double share = (double)ex->batch_local / (double)ex->batch_global;
    bool broken = (p != NULL) && (ex->micro_step >= (int64_t)p->num_output);

    ct_blob_data(in->top[0])[0] = broken ? NAN : (float)(share * (double)(ex->micro_step + 1));
    return CT_OK;
}

static ct_status probe_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    double share = (double)ex->batch_local / (double)ex->batch_global;

    (void)l;
    for (int w = 0; w < 2; w++) {
        float beta = ct_weight_beta(in, ex, w), *g = ct_blob_diff(&in->weight[w]);
        const float *v = ct_blob_data(&in->weight[w]);
        int64_t n = ct_tensor_count(&in->weight[w].data);

        for (int64_t i = 0; (g != NULL) && (i < n); i++) {
            double mine = share * probe_gradient(w, (int)i, ex->micro_step, (double)v[i]);

            g[i] = (float)mine + ((beta != 0.0f) ? g[i] : 0.0f);
        }
    }
    return CT_OK;
}

static const ct_layer_ops probe = {
    .type = "Probe",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1,
    .state_size = sizeof(Ct__FillerParameter),
    .setup = probe_setup,
    .reshape = probe_reshape,
    .forward = probe_forward,
    .backward = probe_backward,
};

const ct_layer_ops *const *test_solver_table(void)
{
    return test_full_table(&probe);
}

Ct__SolverParameter *test_solver_parse(const char *text)
{
    ProtobufCMessage *message = NULL;

    if (ct_prototxt_parse(&ct__solver_parameter__descriptor, "solver", text, strlen(text), NULL,
                          &message) != CT_OK)
        fail_msg("the test's own prototxt does not read:\n%s", text);
    return (Ct__SolverParameter *)message;
}

static ct_status create(const char *text, thread_rank *rank, ct_solver_options *o, test_solver *t_p)
{
    *t_p = (test_solver){ .param = test_solver_parse(text) };
    o->table = test_solver_table();
    o->provenance = "{\"test\":true}";
    o->env = (ct_net_env){ .n_rank = 1, .precision = t_p->param->precision };
    o->param = t_p->param;
    if (rank != NULL) {
        o->env.rank = rank->rank;
        o->env.n_rank = rank->job->n;
        o->open_exchange = thread_rank_open;
        o->open_exchange_ctx = rank;
    }
    return ct_solver_create(o, &t_p->solver);
}

ct_status test_solver_create(const char *text, thread_rank *rank, volatile int *stop,
                             struct ct_report *report, test_solver *t_p)
{
    ct_solver_options o = { .stop_signal = stop, .report = report };

    return create(text, rank, &o, t_p);
}

ct_status test_solver_create_stored(const char *text, thread_rank *rank, ct_storage_open_fn open,
                                    void *ctx, test_solver *t_p)
{
    ct_solver_options o = { .open_state = open, .open_state_ctx = ctx };

    return create(text, rank, &o, t_p);
}

ct_status test_solver_create_with(const char *text, thread_rank *rank, ct_solver_options *o,
                                  test_solver *t_p)
{
    return create(text, rank, o, t_p);
}

void test_solver_destroy(test_solver *t)
{
    ct_solver_destroy(t->solver);
    if (t->param != NULL) ct__solver_parameter__free_unpacked(t->param, NULL);
    memset(t, 0, sizeof(*t));
}

static ct_status save(ct_status opened, ct_model *m, const char *file)
{
    ct_status status = (opened == CT_OK) ? ct_model_save(m, file) : opened;

    ct_model_close(m);
    return status;
}

ct_status test_weights_save(const char *file, const ct_net *net)
{
    ct_model *m = NULL;
    ct_status status = ct_model_of_net(net, NULL, NULL, &m);

    return save(status, m, file);
}

ct_status test_weights_convert(const char *from, const char *to)
{
    ct_model *m = NULL;
    ct_status status = ct_model_open(from, &m);

    return save(status, m, to);
}

static struct {
    pthread_mutex_t lock;
    ct_text text;
} captured = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep_line(void *ctx, const char *line)
{
    (void)ctx;
    pthread_mutex_lock(&captured.lock);
    ct_text_add(&captured.text, "%s", line);
    pthread_mutex_unlock(&captured.lock);
}

void test_log_all_start(void)
{
    ct_text_destroy(&captured.text);
    ct_log_set_sink(keep_line, NULL);
}

const char *test_log_all(void)
{
    return (captured.text.text != NULL) ? captured.text.text : "";
}

void test_log_all_stop(void)
{
    ct_log_set_sink(NULL, NULL);
    ct_text_destroy(&captured.text);
}

void test_directory_make(char *path, size_t size)
{
    snprintf(path, size, "/tmp/ct_solver_XXXXXX");
    if (mkdtemp(path) == NULL) fail_msg("cannot make %s", path);
}

void test_directory_remove(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    char file[1024];

    while ((d != NULL) && ((e = readdir(d)) != NULL)) {
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.') unlink(file);
    }
    if (d != NULL) closedir(d);
    rmdir(path);
}

void test_log_holds(const char *text)
{
    static char log[65536];

    if (strstr(test_log_all(), text) != NULL) return;
    snprintf(log, sizeof(log), "%s", test_log_all());
    test_log_all_stop();
    fail_msg("\"%s\" is not in:\n%s", text, log);
}

static char dir[64]; /* tests run one at a time */

int test_solver_setup(void **state)
{
    (void)state;
    test_directory_make(dir, sizeof(dir));
    test_log_all_start();
    return 0;
}

int test_solver_teardown(void **state)
{
    (void)state;
    if (getenv("CORTADO_TEST_LOG") != NULL) fprintf(stdout, "%s", test_log_all());
    test_log_all_stop();
    test_directory_remove(dir);
    return 0;
}

const char *test_solver_dir(void)
{
    return dir;
}
