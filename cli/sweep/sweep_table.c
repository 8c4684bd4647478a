/* The ranked table of a sweep, as text, CSV and JSON. Times are not in it: whatever runs at once,
 * it has the same bytes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "cli/sweep/sweep.h"

/* Who went on to a later round, then who has a value, then the better one, then the earlier one. */
static bool is_before(const ct_sweep *s, int a, int b)
{
    const ct_sweep_run *x = &s->run[a], *y = &s->run[b];
    bool tested_x = x->result.tested && !x->result.diverged;
    bool tested_y = y->result.tested && !y->result.diverged;

    if (x->result.done != y->result.done) return x->result.done;
    if (x->result.diverged != y->result.diverged) return y->result.diverged;
    if (x->round != y->round) return x->round > y->round;
    if (tested_x != tested_y) return tested_x;
    if (tested_x && (x->result.value != y->result.value))
        return s->rises ? (x->result.value > y->result.value) : (x->result.value < y->result.value);
    return a < b;
}

void ct_sweep_rank(const ct_sweep *s, int *list, int n)
{
    for (int i = 1; i < n; i++) { /* few thousands at most, nearly in order */
        int run = list[i], k = i;

        for (; (k > 0) && is_before(s, run, list[k - 1]); k--) list[k] = list[k - 1];
        list[k] = run;
    }
}

static const char *state_of(const ct_sweep *s, const ct_sweep_run *r)
{
    if (!r->result.done) return "open";
    if (r->result.diverged) return "diverged";
    if (r->result.patience) return "patience";
    return (r->round + 1 < s->n_round) ? "dropped" : "finished";
}

static void add_value(const ct_sweep_result *r, const char *none, ct_text *out)
{
    if (r->tested)
        ct_text_add(out, "%.7g", r->value);
    else
        ct_text_add(out, "%s", none);
}

/* ---- the forms */

static void add_csv_word(const char *word, ct_text *out)
{
    if (word[strcspn(word, ",\"\n")] == '\0') {
        ct_text_add(out, "%s", word);
        return;
    }
    ct_text_add(out, "\"");
    for (; *word != '\0'; word++) {
        if (*word == '"') ct_text_add(out, "\"");
        ct_text_add_bytes(out, word, 1);
    }
    ct_text_add(out, "\"");
}

static void make_csv(const ct_sweep *s, const int *list, ct_text *out)
{
    ct_text_add(out, "rank,run,");
    for (size_t i = 0; i < s->param->n_vary; i++) {
        add_csv_word(s->param->vary[i]->field, out);
        ct_text_add(out, ",");
    }
    add_csv_word(s->param->metric, out);
    ct_text_add(out, ",best_iter,iter,state\n");
    for (int k = 0; k < s->n_run; k++) {
        const ct_sweep_run *r = &s->run[list[k]];

        ct_text_add(out, "%d,%04d,", k + 1, list[k] + 1);
        for (size_t i = 0; i < s->param->n_vary; i++) {
            add_csv_word(r->value[i], out);
            ct_text_add(out, ",");
        }
        add_value(&r->result, "", out);
        ct_text_add(out, ",%" PRId64 ",%" PRId64 ",%s\n", r->result.best, r->result.iteration,
                    state_of(s, r));
    }
}

static void make_json(const ct_sweep *s, const int *list, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "metric", s->param->metric);
    ct_json_add_text(&w, "direction", s->rises ? "HIGHER" : "LOWER");
    ct_json_begin_list(&w, "runs");
    for (int k = 0; k < s->n_run; k++) {
        const ct_sweep_run *r = &s->run[list[k]];
        char run[16];

        snprintf(run, sizeof(run), "%04d", list[k] + 1);
        ct_json_break(&w);
        ct_json_begin_object(&w, NULL);
        ct_json_add_integer(&w, "rank", k + 1);
        ct_json_add_text(&w, "run", run);
        ct_json_begin_object(&w, "set");
        for (size_t i = 0; i < s->param->n_vary; i++)
            ct_json_add_text(&w, s->param->vary[i]->field, r->value[i]);
        ct_json_end(&w);
        ct_json_add_digits(&w, "value", r->result.tested ? r->result.value : (double)NAN, 7);
        ct_json_add_integer(&w, "best_iter", r->result.best);
        ct_json_add_integer(&w, "iter", r->result.iteration);
        ct_json_add_text(&w, "state", state_of(s, r));
        ct_json_end(&w);
    }
    ct_json_break(&w);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}

/* Columns as wide as their words. */
static void make_text(const ct_sweep *s, const int *list, ct_text *out)
{
    for (int k = -1; k < s->n_run; k++) {
        const ct_sweep_run *r = (k >= 0) ? &s->run[list[k]] : NULL;

        if (r == NULL)
            ct_text_add(out, "%4s  %4s", "rank", "run");
        else
            ct_text_add(out, "%4d  %04d", k + 1, list[k] + 1);
        for (size_t i = 0; i < s->param->n_vary; i++) {
            size_t width = strlen(s->param->vary[i]->field);

            for (int j = 0; j < s->n_run; j++)
                if (strlen(s->run[j].value[i]) > width) width = strlen(s->run[j].value[i]);
            ct_text_add(out, "  %*s", (int)width,
                        (r == NULL) ? s->param->vary[i]->field : r->value[i]);
        }
        if (r == NULL) {
            ct_text_add(out, "  %12s  %6s  %6s  state\n", s->param->metric, "at", "iter");
            continue;
        }
        if (r->result.tested)
            ct_text_add(out, "  %12.6g  %6" PRId64, r->result.value, r->result.best);
        else
            ct_text_add(out, "  %12s  %6s", "-", "-");
        ct_text_add(out, "  %6" PRId64 "  %s\n", r->result.iteration, state_of(s, r));
    }
}

/* Takes over text. */
static ct_status write_form(const ct_sweep *s, const char *name, ct_text *text)
{
    ct_text path = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&path, "%s/%s", s->folder, name);
    if (path.failed || text->failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the table");
    if (status == CT_OK) status = ct_file_write(path.text, text->text, text->length);
    ct_text_destroy(&path);
    ct_text_destroy(text);
    return status;
}

ct_status ct_sweep_report(const ct_sweep *s)
{
    int *list = calloc((size_t)s->n_run, sizeof(*list));
    ct_text text = { 0 }, csv = { 0 }, json = { 0 };
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the table");
    for (int i = 0; i < s->n_run; i++) list[i] = i;
    ct_sweep_rank(s, list, s->n_run);
    make_text(s, list, &text);
    make_csv(s, list, &csv);
    make_json(s, list, &json);
    free(list);
    if (!text.failed) fputs(text.text, stdout);
    ct_text_destroy(&text);
    status = write_form(s, "table.csv", &csv);
    if (status == CT_OK) return write_form(s, "table.json", &json);
    ct_text_destroy(&json);
    return status;
}
