#include "cli/serve/capacity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "framework/base/file.h"
#include "framework/base/text.h"

/* Bytes, tokens and seconds. */
typedef struct figures {
    double weights, values, planned, kept; /* bytes; of keys and values at most */
    double work;                           /* … and what attention works in beside them */
    int64_t budget;
    double budget_s, token_s;
} figures;

static bool has_pictures(const ct_capacity *c)
{
    return ct_deployed_samples(c->net) != NULL;
}

static const char *unit(const ct_capacity *c)
{
    return has_pictures(c) ? "picture" : "token";
}

static double work_bytes(const ct_capacity *c)
{
    return has_pictures(c) ? 0 : (double)ct_packed_net_work_bytes(ct_deployed_net(c->net));
}

/* Of keys and values. */
static double token_bytes(const ct_capacity *c)
{
    return has_pictures(c) ? 0 : ct_packed_net_token_bytes(ct_deployed_net(c->net));
}

static ct_status find(const ct_capacity *c, figures *f)
{
    const ct_memory *m = &ct_deployed_whole(c->net)->memory;
    ct_scheduler *s = NULL;
    ct_scheduler_stats stats;
    size_t values;

    CT_TRY(ct_scheduler_create(c->queue, c->cost, &s));
    ct_scheduler_read_stats(s, &stats);
    ct_scheduler_destroy(s);
    CT_TRY(ct_deployed_plan(c->files, stats.budget, &values));
    *f = (figures){ .values = (double)values,
                    .planned = (double)(m->planned - m->lasting),
                    .kept = token_bytes(c) * (double)c->model->cache_tokens,
                    .work = work_bytes(c),
                    .budget = stats.budget,
                    .budget_s = ct_batch_cost_s(c->cost, stats.budget),
                    .token_s = ct_batch_cost_s(c->cost, 1) };
    /* packed weights are in the plan, and what they were packed from is there no more */
    f->weights = (double)m->allocated - f->planned;
    return CT_OK;
}

static int64_t longest_of(const ct_served_model *m)
{
    return (m->most_context > 0) ? m->most_context : m->most_length;
}

static void add_row(ct_text *t, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add_row(ct_text *t, const char *name, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    ct_text_add(t, "%-16s%s\n", name, text);
}

static const char *makes(const ct_capacity *c)
{
    const ct_served_model *m = c->model;

    if (has_pictures(c)) return (m->n_class > 0) ? "classes of pictures" : "rows of pictures";
    if (m->most_context > 0) return "completions";
    return (m->embedding_size > 0) ? "embeddings" : "rows of tokens";
}

static void add_table(const ct_capacity *c, const figures *f, ct_text *t)
{
    const ct_served_model *m = c->model;
    const double mib = 0x1p20;

    add_row(t, "model", "%.200s: %s", m->name, makes(c));
    add_row(t, "weights", "%.1f MiB", f->weights / mib);
    add_row(t, "activations", "%.1f MiB at the budget; planned are %.1f MiB, for %" PRId64 " %ss",
            f->values / mib, f->planned / mib, c->queue->most_tokens, unit(c));
    if (m->most_context > 0)
        add_row(t, "keys and values", "%.1f MiB at most: %" PRId64 " tokens, %.1f KiB each",
                f->kept / mib, m->cache_tokens, token_bytes(c) / 1024);
    if (m->most_context > 0) add_row(t, "attention", "%.1f MiB to work in", f->work / mib);
    if (c->tokenizer != NULL)
        add_row(t, "tokenizer", "%.200s: %" PRId64 " ids", ct_tokenizer_source(c->tokenizer),
                ct_tokenizer_size(c->tokenizer));
    else if (!has_pictures(c))
        add_row(t, "tokenizer", "none: clients send ids");
    if (m->most_context > 0) add_row(t, "chats", "%s", c->chat);
    add_row(t, "budget", "%" PRId64 " %ss a batch, %.3g ms: %.0f %ss/s", f->budget, unit(c),
            1e3 * f->budget_s, (double)f->budget / f->budget_s, unit(c));
    add_row(t, has_pictures(c) ? "one picture" : "one token", "%.3g ms: %.0f %ss/s",
            1e3 * f->token_s, 1 / f->token_s, unit(c));
    if (!has_pictures(c))
        add_row(t, "longest text", "%" PRId64 " tokens%s", longest_of(m),
                (m->most_context > 0) ? ", the prompt and what follows it" : "");
    if (c->ranks > 1) add_row(t, "ranks", "%d, each with all of that", c->ranks);
}

static void add_object(const ct_capacity *c, const figures *f, ct_text *t)
{
    const ct_served_model *m = c->model;
    ct_json_writer w = ct_json_into(t);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "model", m->name);
    ct_json_add_text(&w, "makes", makes(c));
    ct_json_add_decimals(&w, "weight_bytes", f->weights, 0);
    ct_json_add_decimals(&w, "activation_bytes", f->values, 0);
    ct_json_add_decimals(&w, "planned_bytes", f->planned, 0);
    ct_json_add_integer(&w, "planned_tokens", c->queue->most_tokens);
    ct_json_add_decimals(&w, "kv_bytes", f->kept, 0);
    ct_json_add_integer(&w, "kv_tokens", m->cache_tokens);
    ct_json_add_decimals(&w, "attention_bytes", f->work, 0);
    ct_json_add_text(&w, "tokenizer",
                     (c->tokenizer != NULL) ? ct_tokenizer_source(c->tokenizer) : NULL);
    ct_json_add_integer(&w, "budget_tokens", f->budget);
    ct_json_add_digits(&w, "budget_s", f->budget_s, 6);
    ct_json_add_digits(&w, "budget_tokens_s", (double)f->budget / f->budget_s, 6);
    ct_json_add_digits(&w, "token_s", f->token_s, 6);
    ct_json_add_integer(&w, "longest_tokens", longest_of(m));
    ct_json_add_integer(&w, "ranks", c->ranks);
    ct_json_end(&w);
    ct_text_add(t, "\n");
}

static ct_status write_text(const ct_text *t, const char *file)
{
    if (t->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for what --check says");
    if (file != NULL) return ct_file_write(file, t->text, t->length);
    if ((fwrite(t->text, 1, t->length, stdout) == t->length) && (fflush(stdout) == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write to standard output");
}

ct_status ct_capacity_tell(const ct_capacity *c, const char *json)
{
    bool instead = (json != NULL) && (strcmp(json, "-") == 0);
    ct_text table = { 0 }, object = { 0 };
    ct_status status;
    figures f;

    CT_TRY(find(c, &f));
    add_table(c, &f, &table);
    add_object(c, &f, &object);
    status = instead ? CT_OK : write_text(&table, NULL);
    if ((status == CT_OK) && (json != NULL)) status = write_text(&object, instead ? NULL : json);
    ct_text_destroy(&table);
    ct_text_destroy(&object);
    return status;
}
