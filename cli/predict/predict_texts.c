/* Texts that a net of tokens, or of words, goes on with. Rank r has each size-th of them, from the
 * r-th on; rank 0 prints what all have made, in the order that they were given in. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/generate/continuation.h"
#include "cli/predict/predict.h"
#include "framework/base/json_writer.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/net/graph.h"
#include "framework/proto/upgrade.h"
#include "runtime/run_folder.h"
#include "serve/net/deployed.h"

typedef struct job_text {
    const char *name; /* the file; NULL: --prompt */
    char *prompt;     /* has a NUL behind it      */
    size_t n;
    ct_ids ids;
    ct_text made;
    double tokens, ended;
} job_text;

typedef struct texts {
    ct_call *call;
    job_text *text;
    int64_t n;
    char *tokenizer, *pattern; /* of the run; NULL: as options say. Of words: the vocabulary */
    ct_continuation c;
    ct_deployed *net; /* one of both */
    ct_word_net *words;
    bool of_words;
} texts;

/* ---- what to go on with */

static ct_status read_text(const char *file, job_text *x)
{
    struct stat st;

    x->name = file;
    if (stat(file, &st) != 0) return CT_FAIL(CT_ERR_IO, "%s: %s", file, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: a folder; the net goes on with texts: give files of text", file);
    CT_TRY(ct_file_read(file, &x->prompt, &x->n));
    if (memchr(x->prompt, '\0', x->n) == NULL) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: has bytes of value 0; the net goes on with texts: expected one", file);
}

static ct_status read_texts(texts *t)
{
    const ct_options *o = t->call->options;
    const char *prompt = ct_options_text(o, "prompt");
    int n = ct_options_n(o, "files");

    if ((prompt == NULL) == (n == 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado predict: the net goes on with texts: give --prompt=TEXT, or files "
                       "of text behind the options, %s",
                       (n == 0) ? "and there is neither" : "not both");
    t->text = calloc((size_t)n + 1, sizeof(t->text[0]));
    if (t->text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for texts");
    t->n = (n > 0) ? n : 1;
    for (int i = 0; i < n; i++)
        CT_TRY(read_text(ct_options_entry(o, "files", i, NULL), &t->text[i]));
    if (prompt == NULL) return CT_OK;
    t->text[0].prompt = strdup(prompt);
    t->text[0].n = strlen(prompt);
    return (t->text[0].prompt != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a text");
}

/* ---- the tokenizer: as options say, or as the net of the run does */

static char *copy(const char *text)
{
    return (text != NULL) ? strdup(text) : NULL;
}

/* Its first data layer of phase TEST says what made its ids. */
static ct_status take_layer(texts *t, const Ct__LayerParameter *l)
{
    const char *run = ct_options_text(t->call->options, "run");
    const Ct__TokenDataParameter *tokens = l->token_data_param;
    const Ct__TextDataParameter *words = l->text_data_param;

    if ((words != NULL) != t->of_words)
        return CT_FAIL(CT_ERR_CONFIG, "--run=%s: the net reads %s, and has %s", run,
                       t->of_words ? "tokens (TokenData)" : "words (TextData)",
                       t->of_words ? "LSTM or RNN layers, which go on with words"
                                   : "neither LSTM nor RNN layers to go on with them");
    if (t->of_words) {
        t->tokenizer = copy(words->source);
        return CT_OK;
    }
    t->tokenizer = copy(tokens->tokenizer);
    t->pattern = copy(tokens->pattern);
    return CT_OK;
}

static ct_status read_run(texts *t)
{
    const char *run = ct_options_text(t->call->options, "run");
    ct_net_options phase = { .phase = CT_TEST };
    Ct__NetParameter *net = NULL;
    ct_text path = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&path, "%s/" CT_RUN_NET, run);
    if (path.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", run);
    if (status == CT_OK) status = ct_net_read(path.text, NULL, &net);
    for (size_t i = 0; (status == CT_OK) && (i < net->n_layer); i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (((l->token_data_param == NULL) && (l->text_data_param == NULL)) ||
            !ct_graph_includes(net, &phase, l))
            continue;
        status = take_layer(t, l);
        break;
    }
    if (net != NULL) ct__net_parameter__free_unpacked(net, NULL);
    ct_text_destroy(&path);
    return status;
}

static ct_status open_with(texts *t, const char *tokenizer, const char *pattern)
{
    const ct_options *o = t->call->options;

    if (!t->of_words) return ct_continuation_open(o, tokenizer, pattern, &t->c);
    if (pattern == NULL) return ct_continuation_open_words(o, tokenizer, &t->c);
    return CT_FAIL(CT_ERR_CONFIG, "--pattern=%s: the net takes words, which blanks split", pattern);
}

static ct_status open_tokenizer(texts *t)
{
    const ct_options *o = t->call->options;
    const char *given = ct_options_text(o, "tokenizer"), *run = ct_options_text(o, "run");

    if (given != NULL) return open_with(t, given, ct_options_text(o, "pattern"));
    if (run != NULL) CT_TRY(read_run(t));
    if (t->tokenizer != NULL)
        return open_with(t, t->tokenizer, t->of_words ? ct_options_text(o, "pattern") : t->pattern);
    if (t->of_words)
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado predict needs --tokenizer=vocabulary.txt: the net takes words, and "
                       "%s",
                       (run != NULL) ? "no TextData in " CT_RUN_NET " names its source"
                                     : "without --run nothing says what they are");
    return CT_FAIL(CT_ERR_CONFIG, "cortado predict needs --tokenizer: the net takes tokens, and %s",
                   (run != NULL) ? "its TokenData in " CT_RUN_NET " names no tokenizer"
                                 : "without --run nothing says what made them");
}

/* ---- the net */

static bool is_mine(const texts *t, int64_t i)
{
    return i % t->call->job->size == t->call->job->rank;
}

static ct_status encode(texts *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        job_text *x = &t->text[i];

        CT_TRY(ct_continuation_encode(&t->c, x->prompt, x->n,
                                      (x->name != NULL) ? x->name : "--prompt", &x->ids));
    }
    return CT_OK;
}

static ct_status open_word_net(texts *t)
{
    const ct_options *o = t->call->options;

    CT_TRY(ct_word_net_make(ct_options_text(o, "model"), &t->words));
    CT_TRY(ct_word_net_check_ids(t->words, ct_tokenizer_size(t->c.tokenizer),
                                 ct_tokenizer_source(t->c.tokenizer)));
    return ct_word_net_load(t->words, ct_options_text(o, "weights"));
}

static ct_status open_token_net(texts *t)
{
    const ct_options *o = t->call->options;
    ct_deployed_options options = { .model = ct_options_text(o, "model"),
                                    .weights = ct_options_text(o, "weights"),
                                    .most_tokens = CT_CONTINUATION_CHUNK,
                                    .most = 1 };

    for (int64_t i = 0; i < t->n; i++) {
        int64_t most = ct_continuation_most(&t->c, &t->text[i].ids, 1);

        if (most > options.cached) options.cached = most;
    }
    CT_TRY(ct_deployed_make(&options, &t->net));
    for (int64_t i = 0; i < t->n; i++)
        CT_TRY(ct_continuation_check(&t->c, ct_deployed_net(t->net), &t->text[i].ids));
    return ct_deployed_load(t->net, options.weights);
}

static ct_status keep(void *ctx, const char *text, size_t n)
{
    ct_text *made = ctx;

    ct_text_add_bytes(made, text, n);
    return made->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a text") : CT_OK;
}

/* A single text is printed while it is made. */
static ct_status show(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    if ((fwrite(text, 1, n, stdout) == n) && (fflush(stdout) == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

static ct_status run_texts(texts *t, bool streams)
{
    ct_continuation_put put = streams ? show : keep;

    for (int64_t i = 0; i < t->n; i++) {
        job_text *x = &t->text[i];

        if (!is_mine(t, i)) continue;
        if (t->of_words)
            CT_TRY(ct_continuation_run_words(&t->c, t->words, &x->ids, put, &x->made));
        else
            CT_TRY(ct_continuation_run(&t->c, ct_deployed_net(t->net), &x->ids, put, &x->made));
        x->tokens = (double)t->c.made.n;
        x->ended = t->c.ended ? 1.0 : 0.0;
    }
    return CT_OK;
}

/* ---- what the ranks have made: the others have nothing of a text, so sums are what one has */

static ct_status gather(texts *t)
{
    const ct_group *g = &t->call->job->group.job;

    for (int64_t i = 0; (i < t->n) && (g->size > 1); i++) {
        job_text *x = &t->text[i];
        double about[3] = { (double)x->made.length, x->tokens, x->ended }, *byte;
        size_t n;
        ct_status status;

        CT_TRY(ct_group_sum(g, about, 3));
        x->tokens = about[1];
        x->ended = about[2];
        n = (size_t)about[0];
        byte = calloc(n + 1, sizeof(*byte));
        if (byte == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a text");
        for (size_t k = 0; k < x->made.length; k++) byte[k] = (double)(uint8_t)x->made.text[k];
        status = ct_group_sum(g, byte, (int)n);
        x->made.length = 0;
        for (size_t k = 0; k < n; k++) {
            char c = (char)(uint8_t)byte[k];

            ct_text_add_bytes(&x->made, &c, 1);
        }
        free(byte);
        CT_TRY(status);
        if (x->made.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a text");
    }
    return CT_OK;
}

/* ---- printing */

static const char *text_of(const job_text *x)
{
    return (x->made.text != NULL) ? x->made.text : "";
}

static void print_csv(const texts *t)
{
    printf("file,text\n");
    for (int64_t i = 0; i < t->n; i++) {
        const job_text *x = &t->text[i];

        if (x->name != NULL) ct_predict_put_csv(x->name, strlen(x->name));
        putchar(',');
        ct_predict_put_csv(text_of(x), x->made.length);
        putchar('\n');
    }
}

static ct_status print_json(const texts *t)
{
    ct_text out = { 0 };
    ct_json_writer w = ct_json_into(&out);
    bool made;

    ct_json_begin_object(&w, NULL);
    ct_json_begin_list(&w, "continuations");
    for (int64_t i = 0; i < t->n; i++) {
        const job_text *x = &t->text[i];

        ct_json_break(&w);
        ct_json_begin_object(&w, NULL);
        ct_json_add_text(&w, "file", x->name);
        ct_json_add_bytes(&w, "prompt", x->prompt, x->n);
        ct_json_add_bytes(&w, "text", text_of(x), x->made.length);
        ct_json_add_integer(&w, "prompt_tokens", x->ids.n);
        ct_json_add_decimals(&w, "tokens", x->tokens, 0);
        ct_json_add_bool(&w, "ended", x->ended > 0.0);
        ct_json_end(&w);
    }
    ct_json_break(&w);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&out, "\n");
    made = !out.failed;
    if (made) fputs(out.text, stdout);
    ct_text_destroy(&out);
    return made ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
}

/* As head(1) does of several files. */
static void print_plain(const texts *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        printf("%s==> %s <==\n", (i > 0) ? "\n" : "", t->text[i].name);
        fwrite(text_of(&t->text[i]), 1, t->text[i].made.length, stdout);
        putchar('\n');
    }
}

static ct_status print(const texts *t, const char *format, bool streams)
{
    if (t->call->job->rank != 0) return CT_OK;
    if (streams)
        putchar('\n');
    else if (strcmp(format, "json") == 0)
        CT_TRY(print_json(t));
    else if (strcmp(format, "csv") == 0)
        print_csv(t);
    else
        print_plain(t);
    if ((fflush(stdout) == 0) && !ferror(stdout)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

static ct_status run(texts *t)
{
    ct_job *job = t->call->job;
    const char *format = ct_options_text(t->call->options, "format");
    bool streams;

    if (format == NULL) format = "table";
    CT_TRY(read_texts(t));
    CT_TRY(open_tokenizer(t));
    CT_TRY(encode(t));
    CT_TRY(t->of_words ? open_word_net(t) : open_token_net(t));
    streams = (t->n == 1) && (strcmp(format, "table") == 0);
    CT_TRY(ct_job_share(job, run_texts(t, streams)));
    if (!streams) CT_TRY(gather(t));
    return print(t, format, streams);
}

ct_status ct_predict_texts(ct_call *call, bool of_words)
{
    texts t = { .call = call, .of_words = of_words };
    ct_status status;

    if (ct_options_text(call->options, "crops") != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--crops is of nets of pictures, and %s takes texts",
                       ct_options_text(call->options, "model"));
    status = run(&t);

    ct_deployed_close(t.net);
    ct_word_net_destroy(t.words);
    ct_continuation_close(&t.c);
    for (int64_t i = 0; i < t.n; i++) {
        free(t.text[i].prompt);
        ct_ids_destroy(&t.text[i].ids);
        ct_text_destroy(&t.text[i].made);
    }
    free(t.text);
    free(t.tokenizer);
    free(t.pattern);
    return status;
}
