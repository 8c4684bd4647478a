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

static const char *const name[] = { "config.json", "tokenizer_config.json",
                                    "model.safetensors.index.json", "s.best", "sweep.prototxt" };

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

static void read_sweep(const char *path)
{
    ct_sweep s = { .n_run = 0 };
    ct_status status = ct_sweep_read(path, "/nowhere", &s);

    if ((status == CT_OK) && ((s.n_run < 1) || (s.n_run > CT_SWEEP_MAX_RUN))) abort();
    ct_sweep_destroy(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *folder = fuzz_folder_path();
    char path[160], weights[160];
    int k;

    if ((size == 0) || (size > 1 << 16)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    k = data[0] % N_NAME;
    write_shard(folder);
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
        break;
    default:
        read_sweep(path);
        break;
    }
    (void)unlink(path);
    return 0;
}
