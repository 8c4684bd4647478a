/* cortado convert: data, weights and old prototxts, each kind with its own way. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/onnx/onnx.h"
#include "cli/verb.h"
#include "framework/base/file_lock.h"
#include "framework/base/option.h"
#include "framework/base/file.h"
#include "framework/base/number.h"
#include "framework/base/text.h"
#include "framework/data/convert.h"
#include "framework/data/convert_sink.h"
#include "framework/data/reader.h"
#include "framework/data/writer.h"
#include "framework/net/net.h"
#include "framework/proto/message.h"
#include "framework/proto/prototxt.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/hf_config.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

/* ---- `convert net` and `convert solver`: old forms written anew */

static ct_status check_target(const ct_convert_options *o)
{
    CT_TRY(ct_path_check_free(o->to, o->force));
    return ct_file_check_writable(o->to);
}

/* Text has no control characters but those that end lines and set tabs; a message has one within
 * its first few tags and lengths. */
static bool is_binary(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)data[i];

        if ((c < 0x20) && ((c < '\t') || (c > '\r'))) return true;
    }
    return false;
}

static ct_status write_text(const ProtobufCMessage *m, const char *to)
{
    ct_text t = { 0 };
    ct_status status = ct_prototxt_write(m, &t);

    if (status == CT_OK) status = ct_file_write(to, (t.text != NULL) ? t.text : "", t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status write_binary(const ProtobufCMessage *m, const char *to)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *data = malloc(size + 1);
    ct_status status;

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of %s", size, to);
    protobuf_c_message_pack(m, data);
    status = ct_file_write(to, data, size);
    free(data);
    return status;
}

static ct_status convert_binary(const ct_convert_options *o, const char *data, size_t size)
{
    const char *why;
    Ct__NetParameter *net = (Ct__NetParameter *)(void *)ct_message_unpack(
        &ct__net_parameter__descriptor, data, size, &why);
    ct_status status;

    if (net == NULL) return CT_FAIL(CT_ERR_DATA, "%s: no net, or a damaged file: %s", o->from, why);
    status = ct_net_upgrade(net, o->from, NULL);
    if (status == CT_OK) status = write_binary(&net->base, o->to);
    ct__net_parameter__free_unpacked(net, NULL);
    return status;
}

/* upgrade: of a message of this type. */
static ct_status convert_text(const ct_convert_options *o, const ProtobufCMessageDescriptor *type,
                              ct_status (*upgrade)(ProtobufCMessage *m, const char *file,
                                                   ct_source_map *map))
{
    ProtobufCMessage *m = NULL;
    ct_source_map *map = NULL;
    ct_status status = ct_source_map_create(&map);

    if (status == CT_OK) status = ct_prototxt_read(type, o->from, map, &m);
    if (status == CT_OK) status = upgrade(m, o->from, map);
    if (status == CT_OK) status = write_text(m, o->to);
    if (m != NULL) protobuf_c_message_free_unpacked(m, NULL);
    ct_source_map_destroy(map);
    return status;
}

static ct_status upgrade_net(ProtobufCMessage *m, const char *file, ct_source_map *map)
{
    return ct_net_upgrade((Ct__NetParameter *)(void *)m, file, map);
}

static ct_status upgrade_solver(ProtobufCMessage *m, const char *file, ct_source_map *map)
{
    return ct_solver_upgrade((Ct__SolverParameter *)(void *)m, file, map);
}

/* Reads a net of any age, a prototxt or a binary file such as a .caffemodel (known by its bytes),
 *  and writes it in today's form to `to`: as text, or binary where `from` is. CT_ERR_CONFIG,
 *  CT_ERR_IO, CT_ERR_DATA. */
/* The net for use that belongs to a net for training. */
static ct_status convert_deploy(const ct_convert_options *o)
{
    Ct__NetParameter *net = NULL, *deploy = NULL;
    ct_why why = { "in phase TEST it needs layers that work on samples alone" };
    ct_shape sample, input;
    ct_status status = ct_net_read(o->from, NULL, &net);

    if (status == CT_OK) status = ct_net_sample_shape(net, &sample, &input, &why);
    if (status == CT_OK) status = ct_net_make_deploy(net, &sample, &input, &deploy);
    if (status == CT_OK) status = write_text(&deploy->base, o->to);
    if (status == CT_UNSUPPORTED)
        status =
            CT_FAIL(CT_ERR_CONFIG, "%s: no net for use can be made of it: %s", o->from, why.text);
    if (net != NULL) ct__net_parameter__free_unpacked(net, NULL);
    if (deploy != NULL) ct__net_parameter__free_unpacked(deploy, NULL);
    return status;
}

/* An ONNX file as a net for use, and its weights. */
static ct_status convert_onnx(const ct_convert_options *o)
{
    const ct_model_format *format;
    ct_onnx_target to = { .net = o->to, .weights = o->weights, .sizes = o->sizes };

    if (o->deploy) return CT_FAIL(CT_ERR_CONFIG, "--deploy: an ONNX file becomes a net for use");
    if (o->weights != NULL) {
        CT_TRY(ct_model_format_of(o->weights, &format));
        CT_TRY(ct_path_check_free(o->weights, o->force));
        CT_TRY(ct_file_check_writable(o->weights));
    }
    return ct_onnx_convert(o->from, &to);
}

static ct_status convert_net(const ct_convert_options *o)
{
    char *data;
    size_t size;
    ct_status status;

    CT_TRY(check_target(o));
    if (ct_text_ends_with(o->from, ".onnx")) return convert_onnx(o);
    if ((o->weights != NULL) || (o->sizes != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--weights_to and --sizes: %s is no .onnx file", o->from);
    if (o->deploy) return convert_deploy(o);
    CT_TRY(ct_file_read(o->from, &data, &size));
    status = is_binary(data, size) ? convert_binary(o, data, size)
                                   : convert_text(o, &ct__net_parameter__descriptor, upgrade_net);
    free(data);
    return status;
}

/* The same of a solver prototxt: solver_type becomes type, nets within it come up to date. */
static ct_status convert_solver(const ct_convert_options *o)
{
    CT_TRY(check_target(o));
    return convert_text(o, &ct__solver_parameter__descriptor, upgrade_solver);
}

/* ---- `convert model`: weights from one format to another */

static void list(const ct_model *m)
{
    int64_t total = 0;

    printf("%s: %s%s%s\n", m->file, m->format->name, (m->name != NULL) ? ", net " : "",
           (m->name != NULL) ? m->name : "");
    for (int l = 0; l < m->n_layer; l++) {
        const ct_model_layer *layer = &m->layer[l];

        for (int i = 0; i < layer->n_array; i++) {
            if (!layer->array[i].present) continue;
            printf("  %s/%d  %s%s\n", layer->name, i, ct_shape_str(&layer->array[i].shape).text,
                   layer->array[i].shared ? ", shared" : "");
            if (!layer->array[i].shared) total += ct_shape_count(&layer->array[i].shape, 0, -1);
        }
    }
    printf("%" PRId64 " values\n", total);
}

/* Layer l of the net gives the file's layer its fields and shapes: those of old files have four
 * dimensions. */
static ct_status fit_layer(const ct_net *net, int l, const ct_model *m, ct_model_layer *to)
{
    const ct_layer *layer = net->layer[l];

    to->param = layer->param;
    if ((to->n_array != layer->n_weight) && (to->n_array > 0))
        return CT_FAIL(CT_ERR_SHAPE, "%s: layer \"%s\" has %d blobs in the file, %d in the net",
                       m->file, to->name, to->n_array, layer->n_weight);
    for (int i = 0; i < to->n_array; i++) {
        const ct_shape *shape = &layer->weight[i].shape;

        if (!to->array[i].present) continue; /* another layer's, which the file has once */
        if (!ct_shapes_fit(&to->array[i].shape, shape))
            return CT_FAIL(CT_ERR_SHAPE,
                           "%s: blob %d of layer \"%s\" has shape %s in the file, %s in the net",
                           m->file, i, to->name, ct_shape_str(&to->array[i].shape).text,
                           ct_shape_str(shape).text);
        to->array[i].shape = *shape;
    }
    return CT_OK;
}

static ct_status fit(const ct_net *net, ct_model *m)
{
    for (int l = 0; l < m->n_layer; l++) {
        int k = ct_net_find_layer(net, m->layer[l].name);

        if (k >= 0)
            CT_TRY(fit_layer(net, k, m, &m->layer[l]));
        else if (m->layer[l].n_array > 0)
            CT_WARN("%s: the net has no layer \"%s\"; it is written as it is", m->file,
                    m->layer[l].name);
    }
    return CT_OK;
}

typedef struct fitted {
    ct_source_map *map;
    Ct__NetParameter *param;
    ct_net *net;
} fitted;

static ct_status open_net(const char *file, fitted *f)
{
    ct_net_options o = { .phase = CT_TEST,
                         .env = { .n_rank = 1, .no_data = true },
                         .no_data = true };

    CT_TRY(ct_source_map_create(&f->map));
    CT_TRY(ct_net_read(file, f->map, &f->param));
    o.map = f->map;
    return ct_net_create(f->param, &o, &f->net);
}

/* Hugging Face's loaders look for a file of this name, and for config.json beside it: a language
 * model of that name has the names of tensors that they know. */
static ct_status choose_names(const ct_convert_options *o, ct_model *m)
{
    char *config = NULL;
    ct_status status;

    if (strcmp(ct_path_base(o->to), "model.safetensors") != 0) return CT_OK;
    if (!ct_model_write_as_hf(m)) {
        CT_INFO("%s: no GPT-2, Llama or BERT by the names of its layers, which are kept", m->file);
        return CT_OK;
    }
    CT_TRY(ct_hf_config_path(o->to, &config));
    status = ct_path_check_free(config, o->force);
    free(config);
    return status;
}

static ct_status save(const ct_convert_options *o, const fitted *f, ct_model *m)
{
    ct_onnx_source s = { .net = f->net, .param = f->param, .model = m };

    if (ct_text_ends_with(o->to, ".onnx")) {
        s.fixed_batch = o->fixed_batch;
        s.beside = o->external_data;
        s.force = o->force;
        CT_TRY(ct_model_load(m));
        return ct_onnx_write(&s, o->to);
    }
    CT_TRY(choose_names(o, m));
    CT_TRY(ct_model_save(m, o->to));
    if (m->written_as != 0) CT_TRY(ct_hf_config_write(m, f->net, o->to));
    CT_INFO("wrote %s", o->to);
    return CT_OK;
}

static ct_status convert(const ct_convert_options *o, ct_model *m)
{
    fitted f = { .map = NULL };
    ct_status status = CT_OK;

    if (o->net != NULL) {
        status = open_net(o->net, &f);
        if (status == CT_OK) status = fit(f.net, m);
    }
    if ((status == CT_OK) && (o->to == NULL)) list(m);
    if ((status == CT_OK) && (o->to != NULL)) status = save(o, &f, m);
    ct_net_destroy(f.net);
    if (f.param != NULL) ct__net_parameter__free_unpacked(f.param, NULL);
    ct_source_map_destroy(f.map);
    return status;
}

/* Reads the weights of `from`, in whatever format, and writes them to `to` in the format that its
 *  name says; without `to` lists them on stdout. net: takes shapes and layers' fields from this
 *  prototxt. CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA, CT_ERR_SHAPE. */
static ct_status convert_model(const ct_convert_options *o)
{
    const ct_model_format *format;
    ct_model *m = NULL;
    ct_status status;

    if (o->to != NULL) {
        if (!ct_text_ends_with(o->to, ".onnx")) {
            if (o->fixed_batch || o->external_data)
                return CT_FAIL(CT_ERR_CONFIG,
                               "--fixed_batch and --external_data: %s is no .onnx "
                               "file",
                               o->to);
            CT_TRY(ct_model_format_of(o->to, &format));
        } else if (o->net == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "%s: ONNX holds the net too: give its --net", o->to);
        CT_TRY(ct_path_check_free(o->to, o->force));
    }
    CT_TRY(ct_model_open(o->from, &m));
    status = convert(o, m);
    ct_model_close(m);
    return status;
}

#define MNIST   "convert mnist"
#define CIFAR10 "convert cifar10"
#define DIGITS  "convert digits"
#define IMAGES  "convert images"
#define BOXES   "convert annotated"
#define TEXT    "convert text"
#define TOKENS  "convert tokens"
#define MEAN    "convert mean"
#define NET     "convert net"
#define SOLVER  "convert solver"
#define MODEL   "convert model"
#define SETS    MNIST " " CIFAR10 " " DIGITS " " IMAGES
#define ALL     SETS " " BOXES " " TEXT " " TOKENS " " MEAN " " NET " " SOLVER " " MODEL

static const ct_option table[] = {
    { "from", CT_OPTION_TEXT, MNIST " " CIFAR10, "DIR", "the folder of the source files" },
    { "from", CT_OPTION_TEXT, TEXT, "PATH",
      "a folder with *train*.txt, *valid*.txt, *test*.txt, or one text" },
    { "to", CT_OPTION_TEXT, TEXT, "PATH",
      "the folder for train.h5, valid.h5, test.h5 and vocabulary.txt; of one text, the file; with "
      "a "
      "tokenizer .bin in place of .h5" },
    { "tokenizer", CT_OPTION_TEXT, TEXT, "FILE",
      "tokens in place of words: a tokenizer.json, tiktoken's ranks, a .gguf, or char or bytes" },
    { "tokenizer", CT_OPTION_TEXT, TOKENS, "FILE",
      "a tokenizer.json, tiktoken's ranks, a .gguf, or bytes" },
    { "pattern", CT_OPTION_TEXT, TEXT " " TOKENS, "NAME",
      "how a file of ranks splits texts: gpt2, cl100k, o200k or llama3" },
    { "special", CT_OPTION_FLAG, TEXT, NULL,
      "names of special tokens become their ids; else they are text" },
    { "train_bpe", CT_OPTION_SOME, TEXT, "N",
      "train byte-level BPE of N tokens, written to --tokenizer, or tokenizer.json beside --to" },
    { "from", CT_OPTION_TEXT, TOKENS, "FILE", "ids of tokens, raw or with llm.c's head" },
    { "to", CT_OPTION_TEXT, TOKENS, "FILE", "the text" },
    { "from", CT_OPTION_TEXT, IMAGES, "DIR", "a folder for each class, with its images" },
    { "validation", CT_OPTION_TEXT, IMAGES, "SHARE",
      "with --from: this share of each class, drawn by --seed, becomes test_lmdb; none if not "
      "given" },
    { "from", CT_OPTION_TEXT, BOXES, "DIR",
      "a folder as PASCAL VOC's: Annotations, JPEGImages, and ImageSets/Main if it is there" },
    { "list", CT_OPTION_TEXT, BOXES, "FILE", "lines \"image annotation\"; annotations are XML" },
    { "root", CT_OPTION_TEXT, BOXES, "DIR", "the folder that the listed paths start from" },
    { "labelmap", CT_OPTION_TEXT, BOXES, "FILE",
      "numbers of the classes: SSD's labelmap.prototxt, or a name a line, the background first; "
      "those that occur, by name, from 1 on if not given" },
    { "to", CT_OPTION_TEXT, BOXES, "PATH",
      "the folder for train_lmdb and test_lmdb; of --list, the data set itself" },
    { "from", CT_OPTION_TEXT, MEAN, "SET", "a data set of images of one size" },
    { "to", CT_OPTION_TEXT, MEAN, "FILE", "its mean image, as .binaryproto" },
    { "backend", CT_OPTION_CHOICE, MEAN, "lmdb|hdf5", "the set's format; lmdb if not given" },
    { "from", CT_OPTION_TEXT, NET, "FILE",
      "a prototxt of any age, a binary .caffemodel, or an .onnx file" },
    { "weights_to", CT_OPTION_OUT, NET, "FILE",
      "of an .onnx file: its weights, as .caffemodel.h5, .npz or .safetensors" },
    { "sizes", CT_OPTION_TEXT, NET, "NAME:N,...",
      "of an .onnx file: sizes of the inputs' axes that have names; 1 for the first if not given" },
    { "from", CT_OPTION_TEXT, SOLVER, "FILE", "a solver prototxt" },
    { "to", CT_OPTION_TEXT, NET " " SOLVER, "FILE", "the same in today's form: text, or binary" },
    { "from", CT_OPTION_TEXT, MODEL, "FILE",
      "weights: .caffemodel of any age, .caffemodel.h5, .npz, .safetensors or .gguf, known by "
      "their "
      "bytes" },
    { "to", CT_OPTION_TEXT, MODEL, "FILE",
      "the same as .caffemodel, .h5, .npz or .safetensors (model.safetensors: with Hugging Face's "
      "names), or with the net as .onnx; without it they are listed" },
    { "net", CT_OPTION_TEXT, MODEL, "FILE",
      "the net's prototxt: fields of its layers, and its shapes in place of old ones of four "
      "dimensions" },
    { "fixed_batch", CT_OPTION_FLAG, MODEL, NULL,
      "of an .onnx file: it is for the net's batch; for any, where that can be shown, if not "
      "given" },
    { "external_data", CT_OPTION_FLAG, MODEL, NULL,
      "of an .onnx file: large weights lie beside it in FILE.data; only those of more than 2 GiB "
      "if "
      "not given" },
    { "deploy", CT_OPTION_FLAG, NET, NULL,
      "the net for use: an Input in place of data layers, probabilities in place of losses" },
    { "vocabulary", CT_OPTION_TEXT, TEXT, "FILE",
      "number the words by this vocabulary.txt or .h5 instead of train's own" },
    { "words", CT_OPTION_SOME, TEXT, "N",
      "keep the N most frequent words, the others become <unk>; all if not given" },
    { "to", CT_OPTION_TEXT, SETS, "PATH",
      "the folder for train_lmdb and test_lmdb (train.h5, test.h5); of images by --list, the data "
      "set itself" },
    { "backend", CT_OPTION_CHOICE, SETS, "lmdb|hdf5", "the format written; lmdb if not given" },
    { "shards", CT_OPTION_SOME, SETS " " BOXES, "N",
      "stripe the set over N LMDB files, for storage of many disks; one if not given" },
    { "stripe", CT_OPTION_SOME, SETS " " BOXES, "RECORDS",
      "with --shards: records that lie together in a file; at least the batch of a rank; 1024 if "
      "not given" },
    { "mean", CT_OPTION_OUT, SETS, "FILE",
      "also write the mean image (of the training set), as .binaryproto" },
    { "force", CT_OPTION_FLAG, ALL, NULL, "replace what is there" },
    { "list", CT_OPTION_TEXT, IMAGES, "FILE", "lines \"path label\"" },
    { "root", CT_OPTION_TEXT, IMAGES, "DIR", "the folder that the listed paths start from" },
    { "resize", CT_OPTION_TEXT, IMAGES, "HxW", "resize to height x width" },
    { "encoded", CT_OPTION_FLAG, IMAGES, NULL, "keep images compressed" },
    { "gray", CT_OPTION_FLAG, IMAGES " " MEAN, NULL, "one channel" },
    { "skip_broken", CT_OPTION_MAYBE, IMAGES, "N",
      "list and leave out images that cannot be read, N at most, without N any number; the first "
      "one stops if not given" },
    { "shuffle", CT_OPTION_FLAG, IMAGES " " BOXES, NULL, "mix the order" },
    { "count", CT_OPTION_SOME, DIGITS, "N",
      "training images, 10000 if not given; a fifth as many for testing" },
    { "log", CT_OPTION_CHOICE, ALL, "error|warn|info|debug", "the least level logged; info" },
    { "seed", CT_OPTION_SEED, DIGITS " " IMAGES " " BOXES, "S",
      "of the random choices, 1 if not given" },
};

enum { N_OPTION = sizeof(table) / sizeof(table[0]) };

typedef struct kind {
    const char *name, *verb;
    ct_status (*run)(const ct_convert_options *o);
    const char *help;
    const char *needs[3]; /* options that must be given */
} kind;

static const kind kinds[] = {
    { "mnist",
      MNIST,
      ct_convert_mnist,
      "idx files as MNIST comes, plain or .gz",
      { "from", "to" } },
    { "cifar10",
      CIFAR10,
      ct_convert_cifar10,
      "CIFAR-10's binary batches, plain or .gz",
      { "from", "to" } },
    { "images",
      IMAGES,
      ct_convert_images,
      "image files of a folder for each class, or by a list",
      { "to" } },
    { "annotated",
      BOXES,
      ct_convert_annotated,
      "images with boxes, as PASCAL VOC's XML files have them",
      { "to" } },
    { "text",
      TEXT,
      ct_convert_text,
      "text as numbers of words, a sentence a line, or as ids of tokens",
      { "from", "to" } },
    { "tokens",
      TOKENS,
      ct_convert_from_tokens,
      "ids of tokens as text",
      { "from", "to", "tokenizer" } },
    { "model", MODEL, convert_model, "weights, from one format to another", { "from" } },
    { "mean", MEAN, ct_convert_mean, "the mean image of a data set", { "from", "to" } },
    { "net",
      NET,
      convert_net,
      "a net of an old form in today's, text or binary",
      { "from", "to" } },
    { "solver", SOLVER, convert_solver, "the same of a solver", { "from", "to" } },
    { "digits", DIGITS, ct_convert_digits, "rendered digits, made up here", { "to" } },
};

enum { N_KIND = sizeof(kinds) / sizeof(kinds[0]) };

bool ct_convert_form(int i, ct_verb_form *form_p)
{
    const kind *k = &kinds[i];

    if (i >= N_KIND) return false;
    *form_p = (ct_verb_form){ k->verb, k->help, table, N_OPTION };
    return true;
}

/* "HxW" */
static ct_status read_size(const char *text, int64_t *height, int64_t *width)
{
    char *end;
    int64_t h = 0, w = 0;

    if (text == NULL) return CT_OK;
    if (ct_number_integer(text, &end, &h) && ((*end == 'x') || (*end == 'X')))
        if (!ct_number_integer(end + 1, &end, &w) || (*end != '\0')) w = 0;
    if ((h < 1) || (w < 1) || (h > 65536) || (w > 65536)) {
        return CT_FAIL(CT_ERR_CONFIG, "--resize=%s: expected HEIGHTxWIDTH, as in 256x256", text);
    }
    *height = h;
    *width = w;
    return CT_OK;
}

/* N, or "-": any number. */
static ct_status read_skip(const char *text, int64_t *n_p)
{
    char *end;

    if (text == NULL) return CT_OK;
    if (strcmp(text, "-") == 0) {
        *n_p = INT64_MAX;
        return CT_OK;
    }
    if (ct_number_integer(text, &end, n_p) && (*end == '\0') && (*n_p >= 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--skip_broken=%s: expected a whole number, 0 or more", text);
}

static ct_status read_share(const char *text, double *share_p)
{
    char *end;

    if (text == NULL) return CT_OK;
    if (ct_number_real(text, &end, share_p) && (*end == '\0') && (*share_p > 0.0) &&
        (*share_p < 1.0))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--validation=%s: expected a share between 0 and 1, as in 0.2",
                   text);
}

/* One job at a time makes --to. */
static ct_status run_alone(const kind *k, const ct_convert_options *c)
{
    ct_lock_file lock;
    ct_status status;

    if (c->to == NULL) return k->run(c);
    if (strstr(SETS " " BOXES " " TEXT, k->verb) != NULL) CT_TRY(ct_convert_make_parent(c->to));
    CT_TRY(ct_lock_file_take(c->to, false, &lock));
    status = k->run(c);
    ct_lock_file_release(&lock);
    return status;
}

static ct_status run_kind(const kind *k, const ct_options *o)
{
    ct_convert_options c = { 0 };

    for (int i = 0; (i < 3) && (k->needs[i] != NULL); i++) {
        if (ct_options_text(o, k->needs[i]) == NULL) {
            return CT_FAIL(CT_ERR_CONFIG,
                           "cortado convert %s: --%s is missing; see cortado convert "
                           "%s --help",
                           k->name, k->needs[i], k->name);
        }
    }
    c.from = ct_options_text(o, "from");
    c.to = ct_options_text(o, "to");
    c.backend = ct_options_text(o, "backend");
    c.mean = ct_options_text(o, "mean");
    c.net = ct_options_text(o, "net");
    c.force = ct_options_flag(o, "force");
    c.list = ct_options_text(o, "list");
    c.root = ct_options_text(o, "root");
    c.labelmap = ct_options_text(o, "labelmap");
    c.encoded = ct_options_flag(o, "encoded");
    c.gray = ct_options_flag(o, "gray");
    c.shuffle = ct_options_flag(o, "shuffle");
    c.deploy = ct_options_flag(o, "deploy");
    c.fixed_batch = ct_options_flag(o, "fixed_batch");
    c.external_data = ct_options_flag(o, "external_data");
    c.weights = ct_options_text(o, "weights_to");
    c.sizes = ct_options_text(o, "sizes");
    c.count = ct_options_count(o, (k->run == ct_convert_text) ? "words" : "count", 0);
    c.shards = ct_options_count(o, "shards", 0);
    c.stripe = ct_options_count(o, "stripe", 0);
    c.vocabulary = ct_options_text(o, "vocabulary");
    c.tokenizer = ct_options_text(o, "tokenizer");
    c.pattern = ct_options_text(o, "pattern");
    c.special = ct_options_flag(o, "special");
    c.train_bpe = ct_options_count(o, "train_bpe", 0);
    c.seed = (uint64_t)ct_options_count(o, "seed", 1);
    CT_TRY(read_size(ct_options_text(o, "resize"), &c.height, &c.width));
    CT_TRY(read_skip(ct_options_text(o, "skip_broken"), &c.skip_broken));
    CT_TRY(read_share(ct_options_text(o, "validation"), &c.validation));
    return run_alone(k, &c);
}

/* The parser takes argv[0] for the verb: it is "convert KIND" in its messages. */
static ct_status parse_and_run(const kind *k, int argc, char **argv)
{
    char **own = malloc((size_t)argc * sizeof(*own));
    char *verb = strdup(k->verb);
    ct_options *o = NULL;
    ct_status status;

    if ((own == NULL) || (verb == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory");
    } else {
        memcpy(own, argv, (size_t)argc * sizeof(*own));
        own[0] = verb;
        status = ct_options_parse(table, N_OPTION, argc, own, &o);
        if (status == CT_OK) status = run_kind(k, o);
    }
    ct_options_destroy(o);
    free(verb);
    free(own);
    return status;
}

ct_status ct_verb_convert(ct_call *call)
{
    int i;

    CT_TRY(ct_help_find_kind(ct_verb_find("convert"), (call->argc > 1) ? call->argv[1] : NULL, &i));
    return parse_and_run(&kinds[i], call->argc - 1, call->argv + 1);
}
