#include "cli/new/new.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/data/augment/boxes.h"
#include "framework/data/convert.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/data/reader.h"
#include "framework/data/token_file.h"
#include "framework/data/words.h"
#include "framework/net/layer.h"
#include "framework/text/tokenizer.h"

/* What of a folder a set is; with it, its files and how it is made. */
typedef struct set_kind {
    const char *layer, *samples, *what;
    const char *train, *test, *other_test, *beside; /* beside: a file that must be there, too */
    const char *made;
    bool boxes; /* of two kinds with the same files, the one whose records have boxes */
} set_kind;

static const set_kind kinds[CT_NEW_N_KIND] = {
    { "Data", "pictures", "pictures", "train_lmdb", "test_lmdb", NULL, NULL,
      "cortado convert images", false },
    { "AnnotatedData", "images with boxes", "images with boxes", "train_lmdb", "test_lmdb", NULL,
      NULL, "cortado convert annotated", true },
    { "TokenData", "windows of tokens", "tokens", "train.bin", "valid.bin", "test.bin", NULL,
      "cortado convert text --tokenizer=FILE", false },
    { "TextData", "runs of words", "words", "train.h5", "valid.h5", "test.h5", "vocabulary.txt",
      "cortado convert text", false },
};

enum { MOST_BOXES = 65536 /* of a record */ };

const char *ct_new_kind_layer(ct_new_kind kind)
{
    return kinds[kind].layer;
}

const char *ct_new_kind_samples(ct_new_kind kind)
{
    return kinds[kind].samples;
}

ct_status ct_new_kind_of(const Ct__NetParameter *net, ct_new_kind *kind_p)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        for (int k = 0; k < CT_NEW_N_KIND; k++) {
            if (!ct_layer_param_is(net->layer[i], kinds[k].layer)) continue;
            *kind_p = (ct_new_kind)k;
            return CT_OK;
        }
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "net \"%s\" has no layer of type Data, AnnotatedData, TokenData or TextData: "
                   "cortado new fits nets of pictures, boxes, tokens or words alone",
                   (net->name != NULL) ? net->name : "");
}

/* "FOLDER/NAME" where that is there; NULL: it is not. */
static ct_status find(const char *folder, const char *name, char **path_p)
{
    ct_text t = { 0 };

    *path_p = NULL;
    ct_text_add(&t, "%s/%s", folder, name);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder);
    if (access(t.text, R_OK) == 0)
        *path_p = t.text;
    else
        ct_text_destroy(&t);
    return CT_OK;
}

static ct_status open_set(const char *path, ct_new_kind kind, ct_reader **r_p)
{
    ct_reader_options o = {
        .who = "--data", .source = path, .n_field = 2, .max_boxes = MOST_BOXES
    };

    return ct_reader_open(kinds[kind].boxes ? "annotated" : "lmdb", &o, r_p);
}

/* Its label, or those of its boxes. */
static ct_status count_sample(const ct_reader *r, const ct_sample *s, int64_t *n_p)
{
    int64_t step = (s->boxes > 0) ? CT_BOX_ROW : 1;
    int64_t n = (s->boxes > 0) ? ct_boxes_of(s->rest, s->boxes).n : 1;

    for (int64_t i = 0; i < n; i++) {
        float label = s->rest[i * step + ((s->boxes > 0) ? 1 : 0)];

        if ((label < 0.0f) || (label > 1e6f))
            return CT_FAIL(CT_ERR_DATA, "%s: label %g is no class", r->source, (double)label);
        if ((int64_t)label >= *n_p) *n_p = (int64_t)label + 1;
    }
    return CT_OK;
}

/* The largest label of a set without names, and one more. */
static ct_status count_classes(const ct_reader *r, int64_t *n_p)
{
    ct_sample sample = { .rest = calloc((size_t)ct_reader_rest_count(r) + 1, sizeof(float)) };
    void *local = NULL;
    ct_status status;

    if (sample.rest == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for labels");
    status = ct_reader_local(r, &local);
    for (int64_t i = 0; (i < r->count) && (status == CT_OK); i++) {
        status = r->ops->read(r, local, i, &sample);
        if (status == CT_OK) status = count_sample(r, &sample, n_p);
    }
    ct_reader_local_release(r, local);
    free(sample.rest);
    return status;
}

static ct_status read_train(const char *classes, ct_new_set *s)
{
    ct_reader *r = NULL;
    ct_status status;

    CT_TRY(open_set(s->train, s->kind, &r));
    s->n_train = r->count;
    s->shape = r->field[0];
    if (classes != NULL)
        status = ct_class_names_read(classes, "--data", 0, &s->names);
    else
        status = count_classes(r, &s->n_class);
    ct_reader_close(r);
    CT_TRY(status);
    if (classes != NULL) s->n_class = s->names.n;
    if ((s->shape.ndim == 3) && (s->n_class >= 2)) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: samples of shape %s and %" PRId64
                   " classes; expected pictures of two classes at least%s",
                   s->train, ct_shape_str(&s->shape).text, s->n_class,
                   kinds[s->kind].boxes ? ", of which the background is one" : "");
}

static ct_status read_test(ct_new_set *s)
{
    ct_reader *r = NULL;

    if (s->test == NULL) return CT_OK;
    CT_TRY(open_set(s->test, s->kind, &r));
    s->n_test = r->count;
    ct_reader_close(r);
    return CT_OK;
}

static ct_status read_pictures(const char *folder, ct_new_set *s)
{
    char *classes = NULL;
    ct_status status;

    CT_TRY(find(folder, CT_MEAN_FILE, &s->mean));
    CT_TRY(find(folder, CT_CLASS_FILE, &classes));
    status = read_train(classes, s);
    free(classes);
    return (status == CT_OK) ? read_test(s) : status;
}

/* ---- texts */

static ct_status count_tokens(const char *path, int64_t n_id, int64_t *n_p)
{
    ct_token_file f;

    CT_TRY(ct_token_file_open(path, ct_token_width(n_id), &f));
    *n_p = f.count;
    ct_token_file_close(&f);
    return CT_OK;
}

/* What made the tokens: as told, or the file beside them. */
static ct_status find_tokenizer(const char *folder, const char *given, const char *tokenizer,
                                ct_new_set *s)
{
    if ((tokenizer != NULL) && (strcmp(tokenizer, "bytes") == 0)) {
        s->tokenizer = strdup(tokenizer);
        return (s->tokenizer != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    }
    if (tokenizer != NULL) {
        s->tokenizer = realpath(tokenizer, NULL);
        if (s->tokenizer != NULL) return CT_OK;
        return CT_FAIL(CT_ERR_IO, "--tokenizer=%s: %s", tokenizer,
                       ct_path_why(tokenizer, errno).text);
    }
    CT_TRY(find(folder, "tokenizer.json", &s->tokenizer));
    if (s->tokenizer != NULL) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--data=%s: no tokenizer.json in it; give what made the tokens by --tokenizer",
                   given);
}

static ct_status read_tokens(const char *folder, const char *given, const char *tokenizer,
                             ct_new_set *s)
{
    ct_tokenizer *t = NULL;

    CT_TRY(find_tokenizer(folder, given, tokenizer, s));
    CT_TRY(ct_tokenizer_open(s->tokenizer, s->pattern, &t));
    s->n_class = ct_tokenizer_size(t);
    ct_tokenizer_close(t);
    CT_TRY(count_tokens(s->train, s->n_class, &s->n_train));
    return (s->test != NULL) ? count_tokens(s->test, s->n_class, &s->n_test) : CT_OK;
}

static ct_status read_words(ct_new_set *s)
{
    ct_words w;

    CT_TRY(ct_words_open(s->train, "--data", &w));
    s->n_train = w.count;
    s->n_class = w.n_vocabulary;
    ct_words_close(&w);
    if (s->test == NULL) return CT_OK;
    CT_TRY(ct_words_open(s->test, "--data", &w));
    s->n_test = w.count;
    ct_words_close(&w);
    return CT_OK;
}

/* ---- any */

static bool has_records(const set_kind *k)
{
    return (k == &kinds[CT_NEW_PICTURES]) || (k == &kinds[CT_NEW_BOXES]);
}

static ct_status is_there(const char *folder, const set_kind *k, bool *there_p)
{
    char *train = NULL, *beside = NULL;
    bool boxes = false;
    ct_status status = find(folder, k->train, &train);

    if ((status == CT_OK) && (k->beside != NULL)) status = find(folder, k->beside, &beside);
    *there_p = (train != NULL) && ((k->beside == NULL) || (beside != NULL));
    if ((status == CT_OK) && *there_p && has_records(k)) {
        status = ct_lmdb_has_boxes(train, "--data", &boxes);
        *there_p = (boxes == k->boxes);
    }
    free(train);
    free(beside);
    return status;
}

/* Whether it is the LMDB of a set's pictures, in place of the set. */
static bool is_part(const char *folder)
{
    ct_text file = { 0 };
    bool there;

    ct_text_add(&file, "%s/data.mdb", folder);
    there = !file.failed && (access(file.text, F_OK) == 0);
    ct_text_destroy(&file);
    return there;
}

/* The set that the net reads is not there; another one may be. */
static ct_status fail_kind(const char *folder, const char *given, const set_kind *wanted)
{
    for (int k = 0; k < CT_NEW_N_KIND; k++) {
        bool there;

        CT_TRY(is_there(folder, &kinds[k], &there));
        if (there)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--data=%s: a set of %s, and the net reads %s (%s): give a set that %s "
                           "made, or another --from",
                           given, kinds[k].what, wanted->what, wanted->layer, wanted->made);
    }
    if (is_part(folder))
        return CT_FAIL(CT_ERR_CONFIG, "--data=%s: one part of a set; give the folder above it",
                       given);
    return CT_FAIL(CT_ERR_IO, "--data=%s: no %s in it; expected a folder that %s made", given,
                   wanted->train, wanted->made);
}

static ct_status read_all(const char *folder, const char *given, const char *tokenizer,
                          ct_new_set *s)
{
    const set_kind *k = &kinds[s->kind];
    bool there;

    CT_TRY(is_there(folder, k, &there));
    if (!there) return fail_kind(folder, given, k);
    if ((s->kind != CT_NEW_TOKENS) && ((tokenizer != NULL) || (s->pattern != NULL)))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--tokenizer and --pattern are of tokens, and the net reads "
                       "%s",
                       k->what);
    CT_TRY(find(folder, k->train, &s->train));
    CT_TRY(find(folder, k->test, &s->test));
    if ((s->test == NULL) && (k->other_test != NULL)) CT_TRY(find(folder, k->other_test, &s->test));
    if (s->kind == CT_NEW_TOKENS) return read_tokens(folder, given, tokenizer, s);
    return (s->kind == CT_NEW_WORDS) ? read_words(s) : read_pictures(folder, s);
}

ct_status ct_new_set_read(const char *folder, ct_new_kind kind, const char *tokenizer,
                          const char *pattern, ct_new_set *s)
{
    char *absolute = realpath(folder, NULL);
    ct_status status;

    *s = (ct_new_set){ .kind = kind, .pattern = pattern };
    if (absolute == NULL)
        return CT_FAIL(CT_ERR_IO, "--data=%s: %s", folder, ct_path_why(folder, errno).text);
    status = read_all(absolute, folder, tokenizer, s);
    free(absolute);
    if (status != CT_OK) ct_new_set_release(s);
    return status;
}

void ct_new_set_release(ct_new_set *s)
{
    free(s->train);
    free(s->test);
    free(s->mean);
    free(s->tokenizer);
    ct_class_names_release(&s->names);
    *s = (ct_new_set){ 0 };
}
