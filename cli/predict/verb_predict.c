/* cortado predict: what a trained net says of pictures, by name, on standard output; or how texts
 * go on (predict_texts.c). The ranks of a job share the files; rank 0 prints, in the files' order.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/generate/word_net.h"
#include "cli/predict/predict.h"
#include "framework/base/json.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/data/image_list.h"
#include "framework/proto/upgrade.h"
#include "runtime/run_folder.h"
#include "serve/net/deployed.h"

typedef struct predicting {
    ct_call *call;
    ct_deployed *net;
    ct_pictures *pictures;
    int64_t n_class, width; /* numbers of a file: one a class, then 1 where it was read */
    char *const *name;      /* of classes; NULL: they have numbers */
    const char *measure;    /* "probability", or "score" */
    char *paths;            /* of all files, each with its NUL */
    const char **file;
    int64_t n_file, n_bad;
    int crops;        /* of each picture, at least 1 */
    double *row;      /* of the files of a round */
    ct_text json;     /* what is not yet on standard output */
    ct_json_writer w; /* into it */
} predicting;

/* How results are written. */
typedef struct format {
    const char *name;
    void (*begin)(predicting *p);
    void (*add)(predicting *p, const char *file, const double *row);
    void (*end)(predicting *p);
} format;

static int64_t best_of(const predicting *p, const double *row)
{
    int64_t best = 0;

    for (int64_t c = 1; c < p->n_class; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

/* The name of a class, or its number, in `room`. */
static const char *class_name(const predicting *p, int64_t c, char room[24])
{
    if (p->name != NULL) return p->name[c];
    snprintf(room, 24, "%" PRId64, c);
    return room;
}

/* ---- CSV, as RFC 4180 has it */

void ct_predict_put_csv(const char *text, size_t n)
{
    bool plain = true;

    for (size_t i = 0; i < n; i++)
        if ((text[i] != '\0') && (strchr(",\"\r\n", text[i]) != NULL)) plain = false;
    if (plain) {
        fwrite(text, 1, n, stdout);
        return;
    }
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') putchar('"');
        putchar(text[i]);
    }
    putchar('"');
}

static void begin_csv(predicting *p)
{
    printf("file,class,%s\n", p->measure);
}

static void add_csv(predicting *p, const char *file, const double *row)
{
    char room[24];
    int64_t best = best_of(p, row);
    const char *class = class_name(p, best, room);

    ct_predict_put_csv(file, strlen(file));
    putchar(',');
    ct_predict_put_csv(class, strlen(class));
    printf(",%.9g\n", row[best]);
}

static void end_nothing(predicting *p)
{
    (void)p;
}

/* ---- JSON */

/* What is there so far goes out; more follows in the same text. */
static void put_json(predicting *p)
{
    if (p->json.text != NULL) fputs(p->json.text, stdout);
    p->json.length = 0;
}

static void begin_json(predicting *p)
{
    char room[24];

    p->w = ct_json_into(&p->json);
    ct_json_begin_object(&p->w, NULL);
    ct_json_begin_list(&p->w, "classes");
    for (int64_t c = 0; c < p->n_class; c++) ct_json_add_text(&p->w, NULL, class_name(p, c, room));
    ct_json_end(&p->w);
    ct_json_begin_list(&p->w, "predictions");
    put_json(p);
}

static void add_json(predicting *p, const char *file, const double *row)
{
    char room[24];
    int64_t best = best_of(p, row);

    ct_json_break(&p->w);
    ct_json_begin_object(&p->w, NULL);
    ct_json_add_text(&p->w, "file", file);
    ct_json_add_text(&p->w, "class", class_name(p, best, room));
    ct_json_add_number(&p->w, p->measure, row[best]);
    ct_json_begin_list(&p->w, "all");
    for (int64_t c = 0; c < p->n_class; c++) ct_json_add_number(&p->w, NULL, row[c]);
    ct_json_end(&p->w);
    ct_json_end(&p->w);
    put_json(p);
}

static void end_json(predicting *p)
{
    ct_json_break(&p->w);
    ct_json_end(&p->w);
    ct_json_end(&p->w);
    ct_text_add(&p->json, "\n");
    put_json(p);
}

/* ---- a table for people */

static void begin_table(predicting *p)
{
    printf("%-11s  %-20s  file\n", p->measure, "class");
}

static void add_table(predicting *p, const char *file, const double *row)
{
    int64_t best = best_of(p, row);
    char room[24];

    printf("%11.4f  %-20s  %s\n", row[best], class_name(p, best, room), file);
}

static const format formats[] = { { "table", begin_table, add_table, end_nothing },
                                  { "csv", begin_csv, add_csv, end_nothing },
                                  { "json", begin_json, add_json, end_json } };

static const format *find_format(const ct_options *o)
{
    const char *name = ct_options_text(o, "format");
    int i = 0;

    while ((name != NULL) && (strcmp(formats[i].name, name) != 0)) i++; /* one of them */
    return &formats[i];
}

/* ---- the files */

static ct_status add_path(const char *path, ct_text *paths)
{
    size_t before = paths->length;
    struct stat st;

    if (stat(path, &st) != 0) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        CT_TRY(ct_image_files_add(path, paths));
        if (paths->failed || (paths->length > before)) return CT_OK;
        return CT_FAIL(CT_ERR_DATA,
                       "%s: no image in it, expected files *.jpg, *.jpeg, *.png, *.webp, *.tif or "
                       "*.tiff",
                       path);
    }
    ct_text_add_bytes(paths, path, strlen(path) + 1);
    return CT_OK;
}

/* On rank 0. */
static ct_status collect(const ct_options *o, ct_text *paths)
{
    int n = ct_options_n(o, "files");

    if (n == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "cortado predict: give files, or folders of files, behind the "
                       "options");
    for (int i = 0; i < n; i++) CT_TRY(add_path(ct_options_entry(o, "files", i, NULL), paths));
    return paths->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the names of files") : CT_OK;
}

static ct_status find_files(predicting *p)
{
    ct_job *job = p->call->job;
    ct_text paths = { 0 };
    void *text = NULL;
    size_t size = 0;
    int64_t n = 0;
    ct_status status = CT_OK;

    if (job->rank == 0) {
        status = collect(p->call->options, &paths);
        text = paths.text;
        size = paths.length;
    }
    status = ct_job_share(job, status);
    if (status == CT_OK) status = ct_job_broadcast(job, &text, &size);
    p->paths = text;
    CT_TRY(status);
    for (size_t i = 0; i < size; i++) n += (p->paths[i] == '\0');
    p->file = calloc((size_t)n + 1, sizeof(p->file[0]));
    if (p->file == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of files");
    for (const char *at = p->paths; p->n_file < n; at += strlen(at) + 1) p->file[p->n_file++] = at;
    return CT_OK;
}

/* ---- the net */

static ct_status take_classes(predicting *p)
{
    const ct_net *net = ct_deployed_whole(p->net);
    const ct_sample_net *samples = ct_deployed_samples(p->net);
    const char *name;
    const ct_shape *shape = ct_sample_net_output(samples, 0, &name);

    p->n_class = ct_shape_count(shape, 1, -1);
    p->width = p->n_class + 1;
    p->measure = ct_sample_net_is_softmax(samples, 0) ? "probability" : "score";
    if ((shape->ndim < 2) || (shape->dim[1] != p->n_class))
        return CT_FAIL(CT_ERR_CONFIG,
                       "output \"%s\" of net \"%s\" has shape %s: expected a number for each class "
                       "of a picture",
                       name, net->name, ct_shape_str(shape).text);
    if ((net->n_class_name != 0) && (net->n_class_name != p->n_class))
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\" has %" PRId64 " class_name, expected %" PRId64
                       ", one for each class",
                       net->name, net->n_class_name, p->n_class);
    if (net->n_class_name > 0) p->name = net->class_name;
    return CT_OK;
}

static ct_status open_net(predicting *p)
{
    const ct_options *o = p->call->options;
    ct_deployed_options options = { .model = ct_options_text(o, "model"),
                                    .weights = ct_options_text(o, "weights") };

    CT_TRY(ct_deployed_open(&options, &p->net));
    CT_TRY(ct_deployed_make_pictures(p->net, &p->pictures));
    if (p->pictures == NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the net's Input has neither 1 nor 3 channels, so it takes no pictures",
                       options.model);
    p->crops = (int)ct_options_count(o, "crops", 1);
    CT_TRY(ct_pictures_check_crops(p->pictures, p->crops));
    return take_classes(p);
}

/* ---- a round: as many files for each rank as a batch has room for, with all their crops */

static ct_status read_picture(const predicting *p, const char *path, float *to)
{
    char *data = NULL;
    size_t size = 0;
    ct_why why;
    ct_status status;

    CT_TRY(ct_file_read(path, &data, &size));
    status = ct_pictures_read_crops(p->pictures, data, size, p->crops, to, &why);
    free(data);
    if ((status == CT_OK) || (status == CT_ERR_NOMEM)) return status;
    return CT_FAIL(status, "%s: %s", path, why.text);
}

/* What the net says of n samples: their rows are added to those of the samples' files, of which
 * file[] has the number. values: of all samples. */
static ct_status run_samples(predicting *p, const float *values, const int64_t *file, int64_t n,
                             double *row)
{
    ct_sample_net *s = ct_deployed_samples(p->net);
    int64_t each = ct_shape_count(ct_sample_net_shape(s), 1, -1), most = ct_sample_net_most(s);

    for (int64_t at = 0; at < n; at += most) {
        int64_t now = (n - at < most) ? n - at : most;
        const float *out;
        float *to;

        CT_TRY(ct_sample_net_begin(s, now, &to));
        memcpy(to, values + at * each, (size_t)(now * each) * sizeof(float));
        CT_TRY(ct_sample_net_run(s));
        out = ct_sample_net_rows(s, 0);
        for (int64_t i = 0; i < now * p->n_class; i++)
            row[file[at + i / p->n_class] * p->width + i % p->n_class] += (double)out[i];
    }
    return CT_OK;
}

/* Files [first, first + n) into rows. */
static ct_status run_files(predicting *p, int64_t first, int64_t n, double *row)
{
    ct_sample_net *s = ct_deployed_samples(p->net);
    int64_t each = ct_shape_count(ct_sample_net_shape(s), 1, -1) * p->crops, good = 0;
    float *values = malloc((size_t)(n * each) * sizeof(float) + 1);
    int64_t *file = malloc((size_t)(n * p->crops) * sizeof(*file) + 1);
    ct_status *read = calloc((size_t)n + 1, sizeof(*read)), status = CT_OK;

    if ((values == NULL) || (file == NULL) || (read == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " pictures", n * p->crops);
        n = 0;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++)
        read[i] = read_picture(p, p->file[first + i], values + i * each);
    for (int64_t i = 0; i < n; i++) {
        if (read[i] != CT_OK) continue;
        memmove(values + good / p->crops * each, values + i * each, (size_t)each * sizeof(float));
        for (int k = 0; k < p->crops; k++) file[good++] = i;
        row[i * p->width + p->n_class] = 1.0;
    }
    if (good > 0) status = run_samples(p, values, file, good, row);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < p->n_class; c++) row[i * p->width + c] /= p->crops;
    free(values);
    free(file);
    free(read);
    return status;
}

/* Files of a rank in a round. */
static int64_t most_files(const predicting *p)
{
    int64_t most = ct_sample_net_most(ct_deployed_samples(p->net)) / p->crops;

    return (most > 1) ? most : 1;
}

/* Rank r has the r-th run of `most` files. The others' rows are 0, so the sum has all. */
static ct_status run_round(predicting *p, int64_t first, int64_t n)
{
    const ct_group *g = &p->call->job->group.job;
    int64_t most = most_files(p), own = g->rank * most, mine;

    memset(p->row, 0, (size_t)(n * p->width) * sizeof(p->row[0]));
    mine = (n - own < most) ? n - own : most;
    if (mine > 0) CT_TRY(run_files(p, first + own, mine, p->row + own * p->width));
    return ct_group_sum(g, p->row, (int)(n * p->width));
}

static ct_status predict(predicting *p)
{
    const format *f = find_format(p->call->options);
    bool speaks = (p->call->job->rank == 0);
    int64_t round = most_files(p) * p->call->job->size;

    p->row = malloc((size_t)(round * p->width) * sizeof(p->row[0]));
    if (p->row == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " pictures", round);
    if (speaks) f->begin(p);
    for (int64_t first = 0; first < p->n_file; first += round) {
        int64_t n = (p->n_file - first < round) ? p->n_file - first : round;

        CT_TRY(run_round(p, first, n));
        for (int64_t i = 0; i < n; i++) {
            const double *row = p->row + i * p->width;

            if (row[p->n_class] != 1.0)
                p->n_bad++;
            else if (speaks)
                f->add(p, p->file[first + i], row);
        }
    }
    if (speaks) f->end(p);
    if (p->json.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the result");
    if (speaks && ((fflush(stdout) != 0) || ferror(stdout)))
        return CT_FAIL(CT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    return CT_OK;
}

static ct_status predict_pictures(ct_call *call)
{
    static const char *const of_texts[] = { "prompt", "max_tokens", "temperature", "top_p",
                                            "seed",   "tokenizer",  "pattern" };
    predicting p = { .call = call };
    ct_status status;

    for (size_t i = 0; i < sizeof(of_texts) / sizeof(of_texts[0]); i++)
        if (ct_options_origin(call->options, of_texts[i]) == CT_ORIGIN_COMMAND)
            return CT_FAIL(CT_ERR_CONFIG, "--%s is of nets of texts, and %s takes pictures",
                           of_texts[i], ct_options_text(call->options, "model"));
    status = find_files(&p);
    if (status == CT_OK) status = open_net(&p);
    if (status == CT_OK) status = predict(&p);
    if ((status == CT_OK) && (p.n_bad > 0))
        status = CT_FAIL(CT_ERR_DATA, "%" PRId64 " of %" PRId64 " files could not be read", p.n_bad,
                         p.n_file);
    ct_text_destroy(&p.json);
    free(p.row);
    ct_pictures_destroy(p.pictures);
    ct_deployed_close(p.net);
    free(p.file);
    free(p.paths);
    return status;
}

/* What the net takes. */
static ct_status find_kind(const ct_options *o, bool *pictures_p, bool *words_p)
{
    const char *model = ct_options_text(o, "model");
    Ct__NetParameter *net = NULL;

    if ((model == NULL) || (ct_options_text(o, "weights") == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "cortado predict needs --run=DIR, or --model=FILE and "
                                      "--weights=FILE");
    CT_TRY(ct_net_read(model, NULL, &net));
    *words_p = ct_is_word_net(net);
    *pictures_p = !*words_p && ct_is_sample_net(net);
    ct__net_parameter__free_unpacked(net, NULL);
    return CT_OK;
}

ct_status ct_verb_predict(ct_call *call)
{
    bool pictures = false, words = false;

    CT_TRY(ct_run_folder_take(call, CT_RUN_DEPLOY));
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(call->options, "threads", 0)));
    CT_TRY(ct_job_connect(call->job, "auto"));
    CT_TRY(find_kind(call->options, &pictures, &words));
    return pictures ? predict_pictures(call) : ct_predict_texts(call, words);
}
