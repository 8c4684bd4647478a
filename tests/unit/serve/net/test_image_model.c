/* Nets of pictures: what the server makes of a file has the bits of the same net behind ImageData;
 * with `deterministic` a picture has the same bits alone and beside others, on any number of
 * threads; batches of any size; nets that cannot be served are refused with their layer. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/proto/upgrade.h"
#include "serve/net/image_model.h"
#include "serve/net/deployed.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 20, CLASSES = 6, SIDE = 24, VALUES = 3 * SIDE * SIDE };

static const char *const files[] = { "plain.jpg", "gray.jpg",  "cmyk.jpg", "progressive.jpg",
                                     "exif6.jpg", "exif3.jpg", "rgba.png", "palette.png",
                                     "bits.png",  "rgb16.png" };
enum { FILES = sizeof(files) / sizeof(files[0]) };
static char images[1024]; /* their folder */

/* The last convolution has so few places that "auto" goes by the number of samples. */
static const char layers[] =
    "layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'\n"
    "  convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } "
    "}\n"
    "layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1' }\n"
    "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1'\n"
    "  pooling_param { pool: MAX kernel_size: 3 stride: 3 } }\n"
    "layer { name: 'norm' type: 'LRN' bottom: 'pool1' top: 'norm' }\n"
    "layer { name: 'conv2' type: 'Convolution' bottom: 'norm' top: 'conv2'\n"
    "  convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } "
    "}\n"
    "layer { name: 'conv3' type: 'Convolution' bottom: 'conv2' top: 'conv3'\n"
    "  convolution_param { num_output: 48 kernel_size: 1 weight_filler { type: 'msra' } } }\n"
    "layer { name: 'conv4' type: 'Convolution' bottom: 'conv3' top: 'conv4'\n"
    "  convolution_param { num_output: 32 kernel_size: 5 pad: 2 weight_filler { type: 'msra' } } "
    "}\n"
    "layer { name: 'each' type: 'Convolution' bottom: 'conv4' top: 'each'\n"
    "  convolution_param { num_output: 32 kernel_size: 3 group: 32\n"
    "    weight_filler { type: 'msra' } } }\n"
    /* a net of a fixed batch may take BLAS here, whose sums are others */
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'each' top: 'fc' ct_kernel { forward: "
    "'packed' }\n"
    "  inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'prob' type: 'Softmax' bottom: 'fc' top: 'prob' }\n";

static const char transform[] =
    "transform_param { crop_size: 24 mean_value: 100 mean_value: 110 mean_value: 120 scale: 0.02 }";

static const char *write_text(const char *name, const ct_text *t)
{
    assert_false(t->failed);
    assert_int_equal(ct_file_write(name, t->text, t->length), CT_OK);
    return name;
}

static const char *write_deploy(const char *name, const char *serve, const char *input,
                                const char *body)
{
    ct_text t = { 0 };

    ct_text_add(&t, "name: 'Pictures'\n%s\n", serve);
    ct_text_add(&t,
                "layer { name: 'in' type: 'Input' top: 'data' input_param { shape { %s } } }\n%s",
                input, body);
    (void)write_text(name, &t);
    ct_text_destroy(&t);
    return name;
}

static const char *deploy(void)
{
    char serve[300];

    snprintf(serve, sizeof(serve), "serve { new_height: 30 new_width: 28 %s }", transform);
    return write_deploy("deploy.prototxt", serve, "dim: 1 dim: 3 dim: 24 dim: 24", layers);
}

static ct_deployed *open_served(const ct_deployed_options *o)
{
    ct_deployed *s = NULL;

    assert_int_equal(ct_deployed_open(o, &s), CT_OK);
    assert_non_null(ct_deployed_samples(s));
    assert_null(ct_deployed_net(s));
    return s;
}

static ct_image_model *open_model(ct_deployed *s, const char *labels)
{
    ct_image_model *m = NULL;
    ct_pictures *p;

    assert_int_equal(ct_deployed_make_pictures(s, &p), CT_OK);
    assert_int_equal(ct_image_model_create(ct_deployed_samples(s), p, "m", labels, "--labels", &m),
                     CT_OK);
    return m;
}

/* ---- the same bits as behind ImageData */

static void image_data_rows(float *to)
{
    const ct_net_options o = { .phase = CT_TEST,
                               .env = { .n_rank = 1, .seed = 1 },
                               .forward_only = true };
    Ct__NetParameter *param;
    ct_net *net = NULL;
    ct_text t = { 0 };

    for (int i = 0; i < N; i++) ct_text_add(&t, "%s/%s %d\n", images, files[i % FILES], i);
    (void)write_text("list", &t);
    ct_text_destroy(&t);
    ct_text_add(
        &t,
        "name: 'Pictures' layer { name: 'in' type: 'ImageData' top: 'data' top: 'label' %s\n"
        "  image_data_param { source: 'list' batch_size: %d new_height: 30 new_width: 28 } }\n"
        "layer { name: 'none' type: 'Silence' bottom: 'label' }\n%s",
        transform, N, layers);
    (void)write_text("data.prototxt", &t);
    ct_text_destroy(&t);
    assert_int_equal(ct_net_read("data.prototxt", NULL, &param), CT_OK);
    assert_int_equal(ct_net_create(param, &o, &net), CT_OK);
    assert_int_equal(ct_pass_forward(net->pass, NULL), CT_OK);
    memcpy(to, ct_blob_data(net->pass->blob[ct_net_find_blob(net, "prob")]),
           N * CLASSES * sizeof(float));
    ct_net_destroy(net);
    ct__net_parameter__free_unpacked(param, NULL);
}

static void decode(const ct_served_model *m, int i, float *to)
{
    char path[1200], why[256];
    char *data;
    size_t size;

    snprintf(path, sizeof(path), "%s/%s", images, files[i % FILES]);
    assert_int_equal(ct_file_read(path, &data, &size), CT_OK);
    assert_int_equal(m->decode(m->ctx, data, size, to, why, sizeof(why)), CT_OK);
    free(data);
}

/* Rows of n pictures in one batch, as one work each. */
static void classify(const ct_served_model *m, const float *values, int n, float *to)
{
    ct_served_values in[N], out[N];
    ct_work work[N], *each[N];

    memset(work, 0, sizeof(work));
    for (int i = 0; i < n; i++) {
        in[i] = (ct_served_values){ .n_dim = 4,
                                    .dim = { 1, 3, SIDE, SIDE },
                                    .data = (float *)(uintptr_t)values + i * VALUES };
        work[i] =
            (ct_work){ .kind = CT_WORK_INFER, .tokens = 1, .input = &in[i], .output = &out[i] };
        each[i] = &work[i];
    }
    assert_int_equal(m->infer(m->ctx, each, n), CT_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(out[i].n_dim, 2);
        assert_int_equal(out[i].dim[0], 1);
        assert_int_equal(out[i].dim[1], CLASSES);
        memcpy(to + i * CLASSES, out[i].data, CLASSES * sizeof(float));
        free(out[i].data);
    }
}

static void files_have_the_bits_of_image_data(void **state)
{
    static float values[N * VALUES], got[N * CLASSES], wanted[N * CLASSES];
    ct_deployed *s = open_served(&(ct_deployed_options){ .model = deploy() });
    ct_image_model *m = open_model(s, NULL);
    const ct_served_model *served = ct_image_model_served(m);

    (void)state;
    assert_int_equal(served->n_class, CLASSES);
    assert_true(served->is_probability);
    assert_string_equal(served->output[0].name, "prob");
    image_data_rows(wanted);
    for (int i = 0; i < N; i++) decode(served, i, values + i * VALUES);
    classify(served, values, N, got);
    test_same(got, wanted, N * CLASSES, "rows");
    ct_image_model_destroy(m);
    ct_deployed_close(s);
}

/* ---- alone and beside others */

static void compare_beside_others(bool bf16)
{
    static const int n_thread[] = { 1, 2, 4 };
    static float values[N * VALUES], alone[N * CLASSES], got[N * CLASSES];

    for (int k = 0; k < 3; k++) {
        ct_image_model *m;
        ct_deployed *s;

        omp_set_num_threads(n_thread[k]);
        s = open_served(
            &(ct_deployed_options){ .model = deploy(), .deterministic = true, .bf16 = bf16 });
        m = open_model(s, NULL);
        for (int i = 0; i < N; i++) {
            float row[CLASSES];

            decode(ct_image_model_served(m), i, values + i * VALUES);
            classify(ct_image_model_served(m), values + i * VALUES, 1, row);
            if (k > 0) test_same(row, alone + i * CLASSES, CLASSES, "threads");
            memcpy(alone + i * CLASSES, row, sizeof(row));
        }
        for (int n = 2; n <= N; n++) {
            classify(ct_image_model_served(m), values, n, got);
            test_same(got, alone, n * CLASSES, "rows");
        }
        ct_image_model_destroy(m);
        ct_deployed_close(s);
    }
}

static void a_picture_has_its_bits_beside_others(void **state)
{
    int threads = omp_get_max_threads();

    (void)state;
    compare_beside_others(false);
    compare_beside_others(true);
    omp_set_num_threads(threads);
}

/* ---- what is refused */

static void refused(const char *model, const char *part)
{
    ct_deployed *s = NULL;
    log_capture log;
    ct_status status;

    log_capture_start(&log);
    status = ct_deployed_open(&(ct_deployed_options){ .model = model }, &s);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    if (strstr(log.error, part) == NULL) fail_msg("no \"%s\" in %s", part, log.error);
}

static void nets_are_refused(void **state)
{
    (void)state;
    refused(write_deploy("two.prototxt", "", "dim: 1 dim: 3 dim: 8 dim: 8",
                         "layer { name: 'more' type: 'Input' top: 'x' input_param { shape { dim: 1 "
                         "dim: 3 } } }\n"),
            "layer \"more\" (Input): a net of pictures that is served has one Input");
    refused(write_deploy("mean.prototxt", "", "dim: 1 dim: 3 dim: 8 dim: 8",
                         "layer { name: 'sum' type: 'Reduction' bottom: 'data' top: 'sum' }\n"),
            "layer \"sum\" (Reduction): output \"sum\" of shape");
    refused(write_deploy("shape.prototxt", "", "dim: 1 dim: 3 dim: 8 dim: 8",
                         "layer { name: 'flat' type: 'Reshape' bottom: 'data' top: 'flat'\n"
                         "  reshape_param { shape { dim: 1 dim: -1 } } }\n"),
            "layer \"flat\" (Reshape)");
}

static void other_nets_are_not_taken(void **state)
{
    ct_deployed *s = open_served(&(ct_deployed_options){ .model = deploy() });
    ct_image_model *m = open_model(s, NULL);
    ct_deployed *other = open_served(&(ct_deployed_options){
        .model = write_deploy("other.prototxt", "", "dim: 1 dim: 3 dim: 24 dim: 24",
                              "layer { name: 'fc' type: 'InnerProduct' bottom: 'data' top: 'prob'\n"
                              "  inner_product_param { num_output: 7 } }\n") });
    ct_deployed *scores = open_served(&(ct_deployed_options){
        .model = write_deploy("scores.prototxt", "", "dim: 1 dim: 3 dim: 24 dim: 24",
                              "layer { name: 'fc' type: 'InnerProduct' bottom: 'data' top: 'prob'\n"
                              "  inner_product_param { num_output: 6 } }\n") });
    log_capture log;

    (void)state;
    assert_int_equal(ct_image_model_accepts(m, ct_deployed_samples(s)), CT_OK);
    log_capture_start(&log);
    assert_int_equal(ct_image_model_accepts(m, ct_deployed_samples(scores)), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "the net ends without a Softmax"));
    ct_deployed_close(scores);
    log_capture_start(&log);
    assert_int_equal(ct_image_model_accepts(m, ct_deployed_samples(other)), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(log.error, "another blob than \"prob\""));
    ct_deployed_close(other);
    ct_image_model_destroy(m);
    ct_deployed_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_the_bits_of_image_data),
        cmocka_unit_test(a_picture_has_its_bits_beside_others),
        cmocka_unit_test(nets_are_refused),
        cmocka_unit_test(other_nets_are_not_taken),
    };
    char folder[] = "/tmp/cortado-pictures.XXXXXX", command[64], here[900];
    int failed;

    if (getcwd(here, sizeof(here)) == NULL) return 1;
    snprintf(images, sizeof(images), "%s/tests/golden/images", here);
    if ((mkdtemp(folder) == NULL) || (chdir(folder) != 0)) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return ((system(command) != 0) || (failed != 0)) ? 1 : 0;
}
