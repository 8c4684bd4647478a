/* cortado predict: what a trained net says of pictures on standard output, their classes
 * (predict_classes.c) or boxes in them (predict_boxes.c); or how texts go on (predict_texts.c). The
 * ranks of a job share the files; rank 0 prints, in the files' order. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/generate/word_net.h"
#include "cli/predict/predict.h"
#include "framework/base/json.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/image_list.h"
#include "framework/proto/upgrade.h"
#include "runtime/run_folder.h"
#include "serve/net/deployed.h"

/* ---- what answers have in common */

const char *ct_predict_class(const ct_predicting *p, int64_t c, char room[24])
{
    if (p->name != NULL) return p->name[c];
    snprintf(room, 24, "%" PRId64, c);
    return room;
}

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

void ct_predict_put_json(ct_predicting *p)
{
    if (p->json.text != NULL) fputs(p->json.text, stdout);
    p->json.length = 0;
}

void ct_predict_begin_json(ct_predicting *p, int64_t but)
{
    char room[24];

    p->w = ct_json_into(&p->json);
    ct_json_begin_object(&p->w, NULL);
    ct_json_begin_list(&p->w, "classes");
    for (int64_t c = 0; c < p->n_class; c++)
        if (c != but) ct_json_add_text(&p->w, NULL, ct_predict_class(p, c, room));
    ct_json_end(&p->w);
    ct_json_begin_list(&p->w, "predictions");
    ct_predict_put_json(p);
}

void ct_predict_end_json(ct_predicting *p)
{
    ct_json_break(&p->w);
    ct_json_end(&p->w);
    ct_json_end(&p->w);
    ct_text_add(&p->json, "\n");
    ct_predict_put_json(p);
}

void ct_predict_end_nothing(ct_predicting *p)
{
    (void)p;
}

static const ct_predict_format *find_format(const ct_predicting *p)
{
    const char *name = ct_options_text(p->call->options, "format");
    int i = 0;

    while ((name != NULL) && (strcmp(p->answer->format[i].name, name) != 0)) i++; /* one of them */
    return &p->answer->format[i];
}

/* ---- the files */

static ct_status add_path(const char *path, ct_text *paths)
{
    size_t before = paths->length;
    struct stat st;

    if (stat(path, &st) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s", path, ct_path_why(path, errno).text);
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

static ct_status find_files(ct_predicting *p)
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

/* Boxes, if any output has them; else the first one is of classes. */
static ct_status take_output(ct_predicting *p)
{
    const ct_net *net = ct_deployed_whole(p->net);
    const ct_sample_net *samples = ct_deployed_samples(p->net);

    p->answer = &ct_predict_classes;
    for (int i = net->n_output; i-- > 0;) {
        if (ct_sample_net_boxes(samples, i) == NULL) continue;
        p->answer = &ct_predict_boxes;
        p->output = i;
    }
    p->measure = ct_sample_net_is_softmax(samples, p->output) ? "probability" : "score";
    CT_TRY(p->answer->take(p));
    if ((net->n_class_name != 0) && (net->n_class_name != p->n_class))
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\" has %" PRId64 " class_name, expected %" PRId64 ", %s", net->name,
                       net->n_class_name, p->n_class, p->answer->names);
    if (net->n_class_name > 0) p->name = net->class_name;
    return CT_OK;
}

static ct_status open_net(ct_predicting *p)
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
    return take_output(p);
}

/* ---- a round: as many files for each rank as a batch has room for, with all their crops */

static ct_status read_picture(const ct_predicting *p, const char *path, float *to,
                              ct_picture_frame *frame)
{
    char *data = NULL;
    size_t size = 0;
    ct_why why;
    ct_status status;

    CT_TRY(ct_settings_read(path, &data, &size));
    status = ct_pictures_read_crops(p->pictures, data, size, p->crops, to, frame, &why);
    free(data);
    if ((status == CT_OK) || (status == CT_ERR_NOMEM)) return status;
    return CT_FAIL(status, "%s: %s", path, why.text);
}

/* The good files of a rank's round. */
typedef struct good_files {
    float *values;           /* of all samples */
    int64_t *file;           /* of a sample    */
    ct_picture_frame *frame; /* of a file      */
    ct_status *read;         /* likewise       */
    int64_t n_sample;
} good_files;

static ct_status run_samples(const ct_predicting *p, const good_files *v, double *row)
{
    ct_sample_net *s = ct_deployed_samples(p->net);
    int64_t each = ct_shape_count(ct_sample_net_shape(s), 1, -1), most = ct_sample_net_most(s);

    for (int64_t at = 0; at < v->n_sample; at += most) {
        int64_t now = (v->n_sample - at < most) ? v->n_sample - at : most;
        float *to;

        CT_TRY(ct_sample_net_begin(s, now, &to));
        memcpy(to, v->values + at * each, (size_t)(now * each) * sizeof(float));
        CT_TRY(ct_sample_net_run(s));
        p->answer->add(p, v->file + at, v->frame, now, row);
    }
    return CT_OK;
}

static void read_files(const ct_predicting *p, int64_t first, int64_t n, good_files *v, double *row)
{
    int64_t each = ct_shape_count(ct_sample_net_shape(ct_deployed_samples(p->net)), 1, -1);

    each *= p->crops;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++)
        v->read[i] = read_picture(p, p->file[first + i], v->values + i * each, &v->frame[i]);
    for (int64_t i = 0; i < n; i++) {
        if (v->read[i] != CT_OK) continue;
        memmove(v->values + v->n_sample / p->crops * each, v->values + i * each,
                (size_t)each * sizeof(float));
        for (int k = 0; k < p->crops; k++) v->file[v->n_sample++] = i;
        row[i * p->width] = 1.0;
    }
}

/* Files [first, first + n) into rows. */
static ct_status run_files(const ct_predicting *p, int64_t first, int64_t n, double *row)
{
    int64_t each = ct_shape_count(ct_sample_net_shape(ct_deployed_samples(p->net)), 1, -1);
    good_files v = { .values = malloc((size_t)(n * p->crops * each) * sizeof(float) + 1),
                     .file = malloc((size_t)(n * p->crops) * sizeof(*v.file) + 1),
                     .frame = calloc((size_t)n + 1, sizeof(*v.frame)),
                     .read = calloc((size_t)n + 1, sizeof(*v.read)) };
    ct_status status = CT_OK;

    if ((v.values == NULL) || (v.file == NULL) || (v.frame == NULL) || (v.read == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " pictures", n * p->crops);
    else
        read_files(p, first, n, &v, row);
    if (v.n_sample > 0) status = run_samples(p, &v, row);
    free(v.values);
    free(v.file);
    free(v.frame);
    free(v.read);
    return status;
}

/* Files of a rank in a round. */
static int64_t most_files(const ct_predicting *p)
{
    int64_t most = ct_sample_net_most(ct_deployed_samples(p->net)) / p->crops;

    return (most > 1) ? most : 1;
}

/* Rank r has the r-th run of `most` files. The others' rows are 0, so the sum has all. */
static ct_status run_round(ct_predicting *p, int64_t first, int64_t n)
{
    const ct_group *g = &p->call->job->group.job;
    int64_t most = most_files(p), own = g->rank * most, mine;

    memset(p->row, 0, (size_t)(n * p->width) * sizeof(p->row[0]));
    mine = (n - own < most) ? n - own : most;
    if (mine > 0) CT_TRY(run_files(p, first + own, mine, p->row + own * p->width));
    for (int64_t at = 0; at < n * p->width; at += INT_MAX)
        CT_TRY(ct_group_sum(g, p->row + at,
                            (int)((n * p->width - at < INT_MAX) ? n * p->width - at : INT_MAX)));
    return CT_OK;
}

static ct_status predict(ct_predicting *p)
{
    const ct_predict_format *f = find_format(p);
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

            if (row[0] != 1.0)
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
    ct_predicting p = { .call = call };
    ct_status status;

    for (size_t i = 0; i < sizeof(of_texts) / sizeof(of_texts[0]); i++)
        if (ct_options_origin(call->options, of_texts[i]) == CT_ORIGIN_COMMAND)
            return CT_FAIL(CT_ERR_CONFIG, "--%s is of nets of texts, and %s takes pictures",
                           of_texts[i], ct_options_text(call->options, "model"));
    status = find_files(&p);
    if (status == CT_OK) status = open_net(&p);
    if (status == CT_OK) status = predict(&p);
    if ((status == CT_OK) && (p.n_bad > 0) && (p.n_file == 1))
        status = CT_ERR_DATA; /* which one was said */
    else if ((status == CT_OK) && (p.n_bad > 0))
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
    CT_TRY(ct_job_connect(call->job, "auto", false));
    CT_TRY(find_kind(call->options, &pictures, &words));
    return pictures ? predict_pictures(call) : ct_predict_texts(call, words);
}
