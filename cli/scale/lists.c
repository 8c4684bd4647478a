#include "cli/scale/scale.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers */

static bool is_dots(const char *at, size_t n)
{
    return ((n == 3) && (strncmp(at, "...", 3) == 0)) ||
           ((n == strlen("…")) && (strncmp(at, "…", n) == 0));
}

static ct_status append(const char *option, const char *text, int64_t v, int64_t *out, int *n)
{
    if (*n == CT_SCALE_MAX_POINT)
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: more than %d", option, text, CT_SCALE_MAX_POINT);
    if ((*n > 0) && (v <= out[*n - 1]))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: %lld after %lld: give them ascending, each once",
                       option, text, (long long)v, (long long)out[*n - 1]);
    out[(*n)++] = v;
    return CT_OK;
}

/* Between the last number and `to`, with the ratio of the two before it. */
static ct_status fill(const char *option, const char *text, int64_t to, int64_t *out, int *n)
{
    int64_t ratio = (*n >= 2) ? out[*n - 1] / out[*n - 2] : 0;

    if ((ratio < 2) || (out[*n - 2] * ratio != out[*n - 1]))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--%s=%s: \"...\" goes on with a whole ratio, as in 1,2,...,8", option,
                       text);
    while (out[*n - 1] < to / ratio || out[*n - 1] * ratio < to)
        CT_TRY(append(option, text, out[*n - 1] * ratio, out, n));
    return CT_OK;
}

ct_status ct_scale_numbers(const char *option, const char *text, int64_t *out, int *n_p)
{
    bool dots = false;
    int n = 0;

    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        char *end = NULL;
        long long v;

        if (is_dots(at, length) && !dots) {
            dots = true;
        } else {
            v = strtoll(at, &end, 10);
            if ((end != at + length) || (length == 0) || (v < 1) || (v > ((int64_t)1 << 31)))
                return CT_FAIL(
                    CT_ERR_CONFIG,
                    "--%s=%s: \"%.*s\": expected whole numbers from 1 up to 2^31, as in 1,2,4",
                    option, text, (int)length, at);
            if (dots) CT_TRY(fill(option, text, v, out, &n));
            dots = false;
            CT_TRY(append(option, text, v, out, &n));
        }
        if (at[length] == '\0') break;
        at += length + 1;
    }
    if (dots) return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: ends in \"...\"", option, text);
    *n_p = n;
    return CT_OK;
}

/* ---- words */

ct_status ct_scale_words(const char *option, const char *text, const char *const *known, int n,
                         bool *has)
{
    for (int i = 0; i < n; i++) has[i] = false;
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        char word[64];
        const char *near;
        int k = 0;

        snprintf(word, sizeof(word), "%.*s", (int)length, at);
        while ((k < n) && (strcmp(word, known[k]) != 0)) k++;
        if (k == n) {
            near = ct_text_nearest(word, known, n);
            return CT_FAIL(CT_ERR_CONFIG, "--%s: unknown \"%s\"%s%s%s", option, word,
                           (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                           (near != NULL) ? "\"?" : "");
        }
        has[k] = true;
        if (at[length] == '\0') return CT_OK;
        at += length + 1;
    }
}

/* ---- ablations */

typedef struct ablation {
    const char *name;         /* with '=' at its end: a value follows, and is the %s */
    const char *option[3];    /* of `cortado time`                              */
    const char *simulated[4]; /* of the simulator                            */
} ablation;

/* What "swcaffe" means: its published scheme, one message after backward. */
static const ablation known[] = {
    { "flat", { "--set=comm.allreduce=rhd" }, { "--set=comm.allreduce=rhd", "--order=rank" } },
    { "hier", { "--set=comm.allreduce=hier" }, { "--set=comm.allreduce=hier" } },
    { "overlap-off", { "--set=comm.overlap=false" }, { "--overlap=off" } },
    { "overlap-backward", { "--set=comm.forward_overlap=false" }, { "--overlap=backward" } },
    { "swcaffe",
      { "--set=comm.overlap=false", "--set=comm.allreduce=rhd", "--set=comm.bucket_mb=65536" },
      { "--overlap=off", "--set=comm.allreduce=rhd", "--set=comm.bucket_mb=65536" } },
    { "compression=", { "--compression=%s" }, { "--compression=%s" } },
    { "allreduce=", { "--set=comm.allreduce=%s" }, { "--set=comm.allreduce=%s" } },
    { "set=", { "--set=%s" }, { "--set=%s" } },
    { "placement=", { NULL }, { "--placement=%s" } },
    { "read=", { NULL }, { NULL } },
};

enum { N_KNOWN = sizeof(known) / sizeof(known[0]) };

static const ablation *find_ablation(const char *item)
{
    for (int i = 0; i < N_KNOWN; i++) {
        size_t n = strlen(known[i].name);
        bool value = known[i].name[n - 1] == '=';

        if (value ? (strncmp(item, known[i].name, n) == 0) : (strcmp(item, known[i].name) == 0))
            return &known[i];
    }
    return NULL;
}

static void add_option(ct_argv *w, const char *text, const char *value)
{
    const char *mark = strstr(text, "%s");

    if (mark == NULL)
        ct_argv_add(w, "%s", text);
    else
        ct_argv_add(w, "%.*s%s", (int)(mark - text), text, value);
}

static ct_status add_config(ct_scale *s, const char *item)
{
    const ablation *a = find_ablation(item);
    ct_scale_config *c = &s->config[s->n_config];
    const char *names[N_KNOWN], *near, *value;

    if (a == NULL) {
        for (int i = 0; i < N_KNOWN; i++) names[i] = known[i].name;
        near = ct_text_nearest(item, names, N_KNOWN);
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: unknown \"%s\"; did you mean \"%s\"?", item,
                       (near != NULL) ? near : "overlap-off");
    }
    if (s->n_config == CT_SCALE_MAX_CONFIG)
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: more than %d", CT_SCALE_MAX_CONFIG - 1);
    if (strlen(item) >= sizeof(c->name))
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: more than %zu bytes: %s", sizeof(c->name) - 1,
                       item);
    for (int i = 0; i < s->n_config; i++) {
        if (strcmp(s->config[i].name, item) == 0) return CT_OK;
    }
    value = item + strlen(a->name);
    snprintf(c->name, sizeof(c->name), "%s", item);
    if (strcmp(a->name, "placement=") == 0)
        snprintf(c->placement, sizeof(c->placement), "%s", value);
    if (strcmp(a->name, "read=") == 0) snprintf(c->read, sizeof(c->read), "%s", value);
    for (int k = 0; (k < 3) && (a->option[k] != NULL); k++)
        add_option(&c->options, a->option[k], value);
    for (int k = 0; (k < 4) && (a->simulated[k] != NULL); k++)
        add_option(&c->simulated, a->simulated[k], value);
    s->n_config += 1;
    return CT_OK;
}

/* A piece that is no ablation belongs to the value before it: compression=topk:density=0.01,… */
static ct_status add_configs(ct_scale *s, const char *text)
{
    char *copy = strdup(text), item[256] = "";
    ct_status status = (copy != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for --ablate");

    for (char *rest = copy, *piece; (status == CT_OK) && ((piece = strsep(&rest, ",")) != NULL);) {
        if ((item[0] != '\0') && (strchr(item, '=') != NULL) && (find_ablation(piece) == NULL)) {
            snprintf(item + strlen(item), sizeof(item) - strlen(item), ",%s", piece);
            continue;
        }
        if (item[0] != '\0') status = add_config(s, item);
        snprintf(item, sizeof(item), "%s", piece);
    }
    if ((status == CT_OK) && (item[0] != '\0')) status = add_config(s, item);
    free(copy);
    return status;
}

ct_status ct_scale_configs(ct_scale *s)
{
    s->n_config = 1;
    snprintf(s->config[0].name, sizeof(s->config[0].name), "default");
    for (int i = 0; i < ct_options_n(s->options, "ablate"); i++)
        CT_TRY(add_configs(s, ct_options_entry(s->options, "ablate", i, NULL)));
    return CT_OK;
}
