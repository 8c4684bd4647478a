/* cortado info: the build, the machine, the layers, a data set. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/info/manual.h"
#include "cli/info/set_picture.h"
#include "comm/core/comm.h"
#include "framework/base/status.h"
#include "framework/data/group.h"
#include "framework/data/reader.h"
#include "framework/data/stripes.h"
#include "framework/net/layer.h"
#include "framework/proto/upgrade.h"
#include "framework/proto/prototxt.h"
#include "framework/solver/update_rule.h"
#include "runtime/compute.h"
#include "runtime/config/features.h"
#include "runtime/call.h"
#include "runtime/machine_limit.h"

/* ---- a data set */

static void print_shards(const ct_reader *r)
{
    ct_shards s = { .n = r->count, .stripes = r->stripes, .n_file = r->n_file };

    if (r->n_file < 2) return;
    ct_shards_deal(&s);
    printf("shards      %d files, %lld stripes of %lld samples or one more\n", s.n_file,
           (long long)s.stripes, (long long)(s.n / s.stripes));
    printf("a batch     of up to %lld samples touches at most %d files\n",
           (long long)(s.n / s.stripes), ct_shards_touched(&s, s.n / s.stripes));
    for (int64_t ranks = 64; ranks <= 4096; ranks *= 8)
        printf("readers     %lld ranks with such batches: at most %d meet at a file\n",
               (long long)ranks, ct_shards_readers(&s, s.n / s.stripes, ranks));
}

/* Prints what a data set is: LMDB, in shards and with boxes, too, or an HDF5 file with `data` and
 * `label`. */
static ct_status show_data(const char *path)
{
    static const char *const name[2] = { "data", "label" };
    bool hdf5 = ct_stage_can("hdf5", path), boxes = false;
    ct_reader_options o = { .who = path, .source = path, .n_field = 2, .field_name = name };
    ct_reader *r = NULL;

    if (!hdf5) CT_TRY(ct_lmdb_has_boxes(path, path, &boxes));
    if (boxes) o.n_field = 1;
    CT_TRY(ct_reader_open(hdf5 ? "hdf5" : boxes ? "annotated" : "lmdb", &o, &r));
    printf("data set    %s: %s, %lld samples\n", path, r->ops->name, (long long)r->count);
    printf("first       %s\n", ct_shape_str(&r->field[0]).text);
    printf("bytes       %lld of samples; %.0f a sample in the mean, %lld the largest\n",
           (long long)r->bytes, (double)r->bytes / (double)r->count, (long long)r->largest);
    if (!hdf5) printf("index       %s\n", r->io->walked ? "was made now" : "up to date");
    print_shards(r);
    ct_reader_close(r);
    return CT_OK;
}

/* --data, and --picture where it is given. */
static ct_status show_set(const ct_options *o)
{
    const char *path = ct_options_text(o, "data"), *file = ct_options_text(o, "picture");

    CT_TRY(show_data(path));
    if (file == NULL) return CT_OK;
    return ct_set_picture(path, ct_options_text(o, "model"), file);
}

char *openblas_get_config(void);

/* ---- layers and the build */

static int by_type(const void *a, const void *b)
{
    const ct_layer_ops *const *x = a, *const *y = b;

    return strcasecmp((*x)->type, (*y)->type);
}

/* The layer types in alphabetical order, ended by NULL. */
static const ct_layer_ops **sorted_layers(void)
{
    const ct_layer_ops **list;
    size_t n = 0;

    while (ct_layer_table[n] != NULL) n++;
    list = calloc(n + 1, sizeof(list[0]));
    if (list == NULL) return NULL;
    memcpy(list, ct_layer_table, n * sizeof(list[0]));
    qsort(list, n, sizeof(list[0]), by_type);
    return list;
}

static void print_build(void)
{
    const ct_layer_ops **layers = sorted_layers();
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int size;

    MPI_Get_library_version(mpi, &size);
    mpi[strcspn(mpi, "\r\n")] = '\0';
    printf("cortado     %s\ncompiler    %s\nflags       %s\nmpi         %s\nblas        %s\n",
           ct_build_version(), ct_build_compiler(), ct_build_flags(), mpi, openblas_get_config());
    printf("features   ");
    for (const ct_feature *f = ct_feature_table; f->name != NULL; f++) {
        printf(" %s%s", f->built_in ? "" : "no-", f->name);
    }
    printf("\nlayers     ");
    for (int i = 0; (layers != NULL) && (layers[i] != NULL); i++) printf(" %s", layers[i]->type);
    free(layers);
    printf("\n");
}

static void print_range(int least, int most)
{
    char text[32];

    if (most < 0)
        snprintf(text, sizeof(text), "%d or more", least);
    else if (most > least)
        snprintf(text, sizeof(text), "%d to %d", least, most);
    else
        snprintf(text, sizeof(text), "%d", least);
    printf("  %-10s", text);
}

/* With the usual parameters; a build without CUDA knows those alone that need no form. */
static bool runs_on_gpu(const ct_layer_ops *ops)
{
    for (int i = 0; ct_device_override_table[i] != NULL; i++) {
        if (strcmp(ct_device_override_table[i]->type, ops->type) == 0) return true;
    }
    return ops->on_cuda;
}

/* What the net adds is no user's. */
static void print_layers(void)
{
    const ct_layer_ops **layers = sorted_layers();
    int n = 0, refused = 0;

    printf("%-26s  %-10s  %-10s  %-8s  %s\n", "type", "bottoms", "tops", "gradient", "on GPUs");
    for (int i = 0; (layers != NULL) && (layers[i] != NULL); i++) {
        const ct_layer_ops *ops = layers[i];

        if (ops->by_net) continue;
        n++;
        printf("%-26s", ops->type);
        print_range(ops->min_bottom, ops->max_bottom);
        print_range(ops->min_top, ops->max_top);
        printf("  %-8s  %s\n", (ops->backward != NULL) ? "yes" : "-",
               runs_on_gpu(ops) ? "yes" : "host");
    }
    free(layers);
    while (ct_foreign_table[refused].type != NULL) refused++;
    printf("%d layer types; %d more are known and refused, with what to use instead:", n, refused);
    for (int i = 0; i < refused; i++) printf(" %s", ct_foreign_table[i].type);
    printf("\n");
}

static ct_status print_limits(void)
{
    ct_machine_limit m;

    CT_TRY(ct_machine_limit_measure(1, &m));
    printf("limits      %.1f GFLOP/s of multiply-adds, %s, %d thread%s; memory %.1f GB/s read, "
           "%.1f GB/s triad\n            (3 arrays of %.0f MB); measured just now\n",
           m.flop * 1e-9, m.simd, m.n_thread, (m.n_thread > 1) ? "s" : "", m.read * 1e-9,
           m.triad * 1e-9, (double)m.array * 1e-6);
    return CT_OK;
}

static ct_status print_machine(const ct_options *o)
{
    const char *limits = ct_options_text(o, "limits");
    ct_threads threads;
    char host[64] = "?", cpu[160];
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    gethostname(host, sizeof(host) - 1);
    ct_cpu_name(cpu, sizeof(cpu));
    CT_TRY(ct_threads_set(MPI_COMM_NULL, (int)ct_options_count(o, "threads", 0), &threads));
    printf("host        %s\ncpu         %s\nmemory      %.1f GiB\n", host, cpu,
           memory / ldexp(1, 30));
    printf("threads     %d (%s) on %d cores: %s\n", threads.n, threads.from, threads.n_core,
           threads.cores);
    printf("blas core   %s\n", ct_blas_core_name());
    if ((limits == NULL) || (strcmp(limits, "true") == 0)) CT_TRY(print_limits());
    printf(
        "topology    cortado info --topology, in a job or with the name of a machine; ready ones:");
    for (const ct_ready_machine *m = ct_ready_machine_table; m->name != NULL; m++)
        printf(" %s", m->name);
    printf("\n");
    return CT_OK;
}

/* Those that this process sees; `all`: and what the first really does. */
static ct_status print_gpus(bool all)
{
    int n = ct_device_count("cuda");
    const ct_device *dev;
    double copy, product, narrow;

    for (int i = 0; i < n; i++) {
        ct_device_place p;

        CT_TRY(ct_device_look("cuda", i, &p));
        printf("gpu %-7d %s, %.1f GiB, %s\n", i, p.name, p.memory / ldexp(1, 30), p.id);
    }
    if (!all) {
        if (n == 0)
            printf("gpus        none that works%s\n",
                   ct_feature_has("cuda") ? "" : ": this cortado was built without CUDA=1");
        return CT_OK;
    }
    CT_TRY(ct_device_open("cuda", 0, &dev));
    CT_TRY(ct_device_measure("cuda", &copy, &product, &narrow));
    printf(
        "gpu limits  copy %.0f GB/s, read and written; products %.2f TFLOP/s in f32, %.2f of bf16; "
        "measured just now on gpu 0\n",
        copy * 1e-9, product * 1e-12, narrow * 1e-12);
    printf("gpu memory  in messages of this MPI: %s\n", ct_mpi_takes_cuda());
    return CT_OK;
}

/* One thing is printed; the others would be without a word. */
static ct_status check_one(const ct_options *o)
{
    static const char *const ask[] = { "topology", "data",       "config_reference",
                                       "manual",   "completion", "gpus",
                                       "layers" };
    const char *first = NULL;

    for (size_t i = 0; i < sizeof(ask) / sizeof(ask[0]); i++) {
        if ((ct_options_origin(o, ask[i]) != CT_ORIGIN_COMMAND) ||
            (strcmp(ct_options_text(o, ask[i]), "false") == 0))
            continue;
        if (first != NULL)
            return CT_FAIL(CT_ERR_CONFIG, "--%s and --%s: expected one of them", first, ask[i]);
        first = ask[i];
    }
    if ((ct_options_origin(o, "picture") == CT_ORIGIN_COMMAND) &&
        (ct_options_text(o, "data") == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--picture shows samples of a set: give it by --data");
    return CT_OK;
}

ct_status ct_verb_info(ct_call *call)
{
    CT_TRY(check_one(call->options));
    if ((ct_options_origin(call->options, "model") == CT_ORIGIN_COMMAND) &&
        (ct_options_text(call->options, "picture") == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--model is for the samples that --picture=FILE shows");
    if (ct_options_origin(call->options, "topology") == CT_ORIGIN_COMMAND)
        return ct_show_topology(call, ct_options_text(call->options, "topology"));
    if (ct_options_text(call->options, "data") != NULL) return show_set(call->options);
    if (ct_options_flag(call->options, "config_reference")) {
        ct_text text = { 0 };
        ct_status status = ct_config_reference(&text);

        ct_update_rule_reference(&text);
        if ((status == CT_OK) && text.failed)
            status = CT_FAIL(CT_ERR_NOMEM, "no memory for the reference");
        if ((status == CT_OK) && (text.text != NULL)) fputs(text.text, stdout);
        ct_text_destroy(&text);
        return status;
    }
    if (ct_options_text(call->options, "manual") != NULL)
        return ct_manual_print(ct_options_text(call->options, "manual"));
    if (ct_options_text(call->options, "completion") != NULL)
        return ct_completion_print(ct_options_text(call->options, "completion"));
    if (ct_options_flag(call->options, "gpus")) return print_gpus(true);
    if (ct_options_flag(call->options, "layers")) {
        print_layers();
        return CT_OK;
    }
    print_build();
    CT_TRY(print_gpus(false));
    CT_TRY(print_machine(call->options));
    ct_blas_core_log();
    return CT_OK;
}
