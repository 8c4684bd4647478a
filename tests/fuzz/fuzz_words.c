/* Texts and what stands in lines: texts that become word or token files, vocabularies, names of
 * classes, token files, keys of clients, label maps and lists of annotated images, lists of shards.
 * Any bytes end in what they are, or in an error. The first byte says which kind the rest is. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/data/class_names.h"
#include "framework/data/convert.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/loader.h"
#include "framework/data/stripes.h"
#include "framework/data/token_file.h"
#include "framework/data/words.h"
#include "framework/text/tokenizer.h"
#include "serve/api/keys.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

typedef struct input {
    const char *folder;
    char path[128]; /* of the file that has the bytes */
    const uint8_t *data;
    size_t size;
} input;

static void text_to_words(const input *in)
{
    char to[128];
    ct_convert_options o = { .from = in->path, .to = to, .force = true };

    o.count = (int64_t)(in->size % 7);
    snprintf(to, sizeof(to), "%s/words.h5", in->folder);
    if (ct_convert_text(&o) == CT_OK) {
        ct_words w = { 0 };

        if ((ct_words_open(to, "fuzz", &w) != CT_OK) || (w.count < 1)) abort();
        ct_words_close(&w);
    }
}

/* Back again, by the tokenizer that was made for them. */
static void tokens_to_text(const input *in, const char *tokens, bool made)
{
    char back[128], tokenizer[128], *text = NULL;
    ct_convert_options o = { .from = tokens, .to = back, .tokenizer = "bytes", .force = true };
    size_t size = 0;

    snprintf(back, sizeof(back), "%s/back.txt", in->folder);
    snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer.json", in->folder);
    if (made || (in->size % 3 == 1)) o.tokenizer = tokenizer;
    if (ct_convert_from_tokens(&o) != CT_OK) return;
    if (ct_file_read(back, &text, &size) != CT_OK) abort();
    free(text);
}

/* A folder of texts: train is the input, the others are good. */
static void texts_to_words(const input *in)
{
    char from[128], to[128], path[160];
    ct_convert_options o = { .from = from, .to = to, .force = true };

    snprintf(from, sizeof(from), "%s/texts", in->folder);
    snprintf(to, sizeof(to), "%s/made", in->folder);
    (void)mkdir(from, 0700);
    snprintf(path, sizeof(path), "%s/a_train.txt", from);
    fuzz_write(path, in->data, in->size);
    snprintf(path, sizeof(path), "%s/test.txt", from);
    fuzz_write(path, "the cat\n", 8);
    snprintf(path, sizeof(path), "%s/%s.txt", from, (in->size % 5 == 0) ? "train_2" : "dev");
    fuzz_write(path, "the dog\n", 8);
    if (in->size % 4 == 0) o.tokenizer = "char";
    (void)ct_convert_text(&o);
    fuzz_empty(from);
    fuzz_empty(to);
}

static void text_to_tokens(const input *in)
{
    char to[128];
    ct_convert_options o = { .from = in->path, .to = to, .force = true };

    snprintf(to, sizeof(to), "%s/tokens.bin", in->folder);
    if (in->size % 3 == 0)
        o.train_bpe = 256 + (int64_t)(in->size % 50);
    else
        o.tokenizer = (in->size % 3 == 1) ? "char" : "bytes";
    if (ct_convert_text(&o) == CT_OK) tokens_to_text(in, to, o.train_bpe > 0);
}

static void vocabulary(const input *in)
{
    ct_vocabulary v = { 0 };
    ct_tokenizer *t = NULL;
    ct_ids ids = { 0 };
    ct_text back = { 0 };

    if (ct_vocabulary_parse(&v, (const char *)in->data, in->size, "fuzz") == CT_OK) {
        for (int64_t i = 0; i < v.n; i++)
            if (ct_vocabulary_find(&v, v.word[i].text, v.word[i].length) != i) abort();
    }
    ct_vocabulary_destroy(&v);
    if (ct_tokenizer_words((const char *)in->data, in->size, "fuzz", &t) != CT_OK) return;
    if (ct_tokenizer_encode(t, (const char *)in->data, in->size, false, "fuzz", &ids) == CT_OK)
        (void)ct_tokenizer_decode(t, ids.id, ids.n, &back);
    ct_ids_destroy(&ids);
    ct_text_destroy(&back);
    ct_tokenizer_close(t);
}

static void class_names(const input *in)
{
    ct_class_names l = { 0 };

    if (ct_class_names_read(in->path, "fuzz", (int64_t)(in->size % 5), &l) == CT_OK) {
        for (int64_t i = 0; i < l.n; i++)
            if (l.name[i][0] == '\0') abort();
    }
    ct_class_names_release(&l);
}

static void token_file(const input *in)
{
    for (int width = 0; width <= 4; width += 2) {
        ct_token_file f = { 0 };
        int32_t id[64];

        if (ct_token_file_open(in->path, width, &f) == CT_OK) {
            for (int64_t at = 0; at < f.count; at += 64)
                (void)ct_token_file_get(&f, at, (f.count - at < 64) ? f.count - at : 64, id);
            if (ct_token_file_get(&f, f.count, 1, id) == CT_OK) abort();
            (void)ct_token_file_find_large(&f, 1000);
        }
        ct_token_file_close(&f);
    }
}

static void keys(const input *in)
{
    ct_api_keys *k = NULL;

    if (ct_api_keys_read(in->path, &k) != CT_OK) return;
    if (ct_api_keys_allow(k, NULL) || ct_api_keys_allow(k, "Bearer ")) abort();
    ct_api_keys_destroy(k);
}

/* What is listed is not there, but for the list itself. */
static void annotated(const input *in, bool is_map)
{
    char to[128], list[128];
    ct_convert_options o = { .list = list, .to = to, .force = true };

    snprintf(to, sizeof(to), "%s/boxes", in->folder);
    snprintf(list, sizeof(list), "%s/list", in->folder);
    if (is_map) {
        fuzz_write(list, "a.jpg a.xml\n", 12);
        o.labelmap = in->path;
    } else {
        fuzz_write(list, in->data, in->size);
    }
    if (ct_convert_annotated(&o) == CT_OK) abort();
    fuzz_empty(to);
}

static void shards(const input *in)
{
    char folder[128], path[160];
    ct_shards s, again;
    int64_t n = 0;

    snprintf(folder, sizeof(folder), "%s/set", in->folder);
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/shards.txt", folder);
    fuzz_write(path, in->data, in->size);
    if (ct_shards_read(folder, "fuzz", &s) != CT_OK) return;
    for (int i = 0; i < s.n_file; i++) n += s.count[i];
    if (n != s.n) abort();
    for (int64_t i = 0; i < 40; i++) {
        int64_t sample = s.n * i / 40, k = ct_stripe_of(s.n, s.stripes, sample);

        if ((ct_stripe_first(s.n, s.stripes, k) > sample) ||
            (ct_stripe_first(s.n, s.stripes, k + 1) <= sample))
            abort();
        if (ct_shards_touched(&s, i + 1) > s.n_file) abort();
        if (ct_shards_readers(&s, i, 3) > 3) abort();
        sample = ct_sample_at(7, s.stripes, s.n * 2 + i, s.n);
        if ((sample < 0) || (sample >= s.n)) abort();
    }
    if ((ct_shards_write(folder, &s) != CT_OK) || !ct_shards_is_set(folder) ||
        (ct_shards_read(folder, "fuzz", &again) != CT_OK))
        abort();
    if ((again.n != s.n) || (again.n_file != s.n_file)) abort();
}

FUZZ_TOKENS(1, &ct__label_map__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { .folder = fuzz_folder_path(), .data = data + 1, .size = size - 1 };

    if ((size == 0) || (size > 1 << 15)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(in.path, sizeof(in.path), "%s/in.txt", in.folder);
    fuzz_write(in.path, in.data, in.size);
    switch (data[0] % 10) {
    case 0:
        text_to_words(&in);
        break;
    case 1:
        text_to_tokens(&in);
        break;
    case 2:
        vocabulary(&in);
        break;
    case 3:
        class_names(&in);
        break;
    case 4:
        token_file(&in);
        break;
    case 5:
        keys(&in);
        break;
    case 6:
        annotated(&in, false);
        break;
    case 7:
        annotated(&in, true);
        break;
    case 9:
        texts_to_words(&in);
        break;
    default:
        shards(&in);
        break;
    }
    return 0;
}
