/* Files that stand beside others: a config.json and a tokenizer_config.json, an index of
 * safetensors, the list of the best sets, a sweep. Any bytes end in what they say, or in an error.
 * The first byte says which file of a folder the rest is; the others are good ones. */
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/sweep.h"
#include "framework/snapshot/hf_config.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"
#include "serve/api/chat_template.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static const char *const name[] = { "config.json", "tokenizer_config.json",
                                    "model.safetensors.index.json", "s.best", "sweep.prototxt" };

static const char solver[] = "net_param { } base_lr: 1 lr_policy: 'fixed' max_iter: 40 momentum: 0";

enum { N_NAME = sizeof(name) / sizeof(name[0]), LENGTH = 8 };

/* {"a": F32 of 2 x 1}, and its values. */
static void write_shard(const char *folder)
{
    static const char header[] = "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":"
                                 "[2,1],\"data_offsets\":[0,8]}}";
    uint8_t file[LENGTH + sizeof(header) - 1 + 8] = { sizeof(header) - 1 };
    char path[160];

    memcpy(file + LENGTH, header, sizeof(header) - 1);
    snprintf(path, sizeof(path), "%s/model-1.safetensors", folder);
    fuzz_write(path, file, sizeof(file));
}

static void read_config(const char *weights)
{
    json_t *config = NULL;
    int64_t heads[2];

    if (ct_hf_config_read(weights, &config) != CT_OK) abort();
    ct_hf_config_heads(config, heads);
    if ((heads[0] < 0) || (heads[1] < 0)) abort();
    json_decref(config);
}

static void read_weights(const char *path)
{
    ct_model *m = NULL;

    if (ct_model_open(path, &m) == CT_OK) (void)ct_model_load(m);
    ct_model_close(m);
}

static void read_best(const char *folder)
{
    char prefix[160];
    char *file = NULL;

    snprintf(prefix, sizeof(prefix), "%s/s", folder);
    if ((ct_snapshot_best_weights(prefix, &file) == CT_OK) && (file != NULL)) abort();
    free(file);
}

/* What a run lists of its tests can be read. */
static void write_best(const char *folder, const uint8_t *data, size_t size)
{
    ct_snapshot_state s = { .keep_best = (int)(size % 4), .iteration = 1 << 20 };
    char prefix[160], *file = NULL;

    snprintf(prefix, sizeof(prefix), "%s/s", folder);
    snprintf(s.best.metric, sizeof(s.best.metric), "accuracy");
    for (size_t i = 0; (i < size) && (s.best.n < CT_MAX_BEST); i++)
        s.best.set[s.best.n++] =
            (ct_best_set){ .iteration = (int64_t)i, .value = data[i] / 7.0, .own = true };
    if (ct_snapshot_list_best(prefix, &s, size % 2 == 0, 0) != CT_OK) abort();
    if ((ct_snapshot_best_weights(prefix, &file) != CT_OK) || (file != NULL)) abort();
}

static void read_sweep(const char *path)
{
    ct_sweep s = { .n_run = 0 };
    ct_status status = ct_sweep_read(path, "/nowhere", &s);

    if ((status == CT_OK) && ((s.n_run < 1) || (s.n_run > CT_SWEEP_MAX_RUN))) abort();
    ct_sweep_destroy(&s);
}

FUZZ_TOKENS(1, &ct__sweep_parameter__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder_path();
    char path[160], weights[160];
    int k;

    if ((size == 0) || (size > 1 << 16)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    k = data[0] % N_NAME;
    write_shard(folder);
    snprintf(path, sizeof(path), "%s/s", folder); /* the solver of a sweep */
    fuzz_write(path, solver, sizeof(solver) - 1);
    snprintf(path, sizeof(path), "%s/%s", folder, name[k]);
    snprintf(weights, sizeof(weights), "%s/model-1.safetensors", folder);
    fuzz_write(path, data + 1, size - 1);
    switch (k) {
    case 0:
        read_config(weights);
        read_weights(weights);
        break;
    case 1:
        (void)ct_chat_template_find(weights);
        break;
    case 2:
        read_weights(path);
        break;
    case 3:
        read_best(folder);
        write_best(folder, data + 1, size - 1);
        break;
    default:
        read_sweep(path);
        break;
    }
    (void)unlink(path);
    return 0;
}
