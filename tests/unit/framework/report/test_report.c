#include "tests/test.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/report/report.h"

/* A net as far as a report looks at it: a loss of weight 1 and accuracies per class. */
typedef struct fake_net {
    ct_blob accuracy, loss;
    ct_blob *blob[2];
    ct_output output[2];
    ct_pass pass;
    ct_layer_ops ops;
    ct_layer layer, *layers[1];
    ct_net net;
} fake_net;

static void fake_init(fake_net *f, int64_t n_accuracy)
{
    ct_shape one = { .ndim = 0 }, classes = { .ndim = 1, .dim = { n_accuracy } };

    memset(f, 0, sizeof(*f));
    f->accuracy.name = "accuracy";
    f->loss.name = "loss";
    ct_blob_set_shape(&f->accuracy, (n_accuracy == 1) ? &one : &classes);
    ct_blob_set_shape(&f->loss, &one);
    f->blob[0] = &f->accuracy;
    f->blob[1] = &f->loss;
    f->layer.ops = &f->ops;
    f->layers[0] = &f->layer;
    f->net.layer = f->layers;
    f->output[0] = (ct_output){ .blob = 0, .is_share = true };
    f->output[1] = (ct_output){ .blob = 1, .loss_weight = 0.5f, .is_share = true };
    f->net.n_blob = f->net.n_output = 2;
    f->pass.blob = f->blob;
    f->net.pass = &f->pass;
    f->net.output = f->output;
}

static ct_text log_text;

static void keep_log(void *ctx, const char *text)
{
    (void)ctx;
    ct_text_add(&log_text, "%s", text);
}

static void assert_log(const char *pattern)
{
    regex_t re;
    int found;

    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    found = regexec(&re, (log_text.text != NULL) ? log_text.text : "", 0, NULL, 0);
    regfree(&re);
    if (found != 0) fail_msg("no line matches %s in:\n%s", pattern, log_text.text);
}

static char dir[] = "/tmp/ct_report_XXXXXX", path[64];

static int setup(void **state)
{
    (void)state;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    ct_log_set_sink(keep_log, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ct_log_set_sink(NULL, NULL);
    ct_text_destroy(&log_text);
    unlink(path);
    return rmdir(dir);
}

static void write_all(ct_report *r, const ct_net *net)
{
    const double train[] = { 0.25, 2.5 }, test[] = { 0.991, 0.0301 };
    ct_report_train_event e = { .iteration = 0,
                                .max_iteration = 200,
                                .loss = 2.5,
                                .rate = 0.01,
                                .seconds = 0.02,
                                .net = net,
                                .output = train };

    CT_INFO("Solving LeNet");
    assert_int_equal(ct_report_run(r, "\"ranks\":2"), CT_OK);
    assert_int_equal(ct_report_test_start(r, 0, 0), CT_OK);
    assert_int_equal(ct_report_test(r, 0, 0.0, 0, net, test, &(ct_text_size){ 0 }), CT_OK);
    assert_int_equal(ct_report_train(r, &e), CT_OK);
    e = (ct_report_train_event){
        .iteration = 100,
        .max_iteration = 200,
        .epoch = 1.5,
        .loss = 0.000012,
        .rate = 0.00992565,
        .iterations_per_s = 123.456789,
        .seconds = 0.81,
        .iterations = 100,
        .images_per_s = 7901.25,
        .wait_data_ms = 0.5,
        .compute_ms = 7,
        .comm_exposed_ms = 0.25,
        .bytes_sent = 1724320,
        .net = net,
        .output = train,
    };
    assert_int_equal(ct_report_train(r, &e), CT_OK);
    assert_int_equal(ct_report_test_start(r, 100, 0), CT_OK);
    assert_int_equal(ct_report_test(r, 100, 1.5, 0, net, test, &(ct_text_size){ 0 }), CT_OK);
    ct_report_final_loss(r, 200, 0.125);
    assert_int_equal(ct_report_done(r, "\"iter\":200"), CT_OK);
}

/* Cuts ,"time":T out of each line, and looks that each T is now: within a day. How many. */
static int cut_times(char *text)
{
    static const char name[] = ",\"time\":";
    int n = 0;

    for (char *at = text; (at = strstr(at, name)) != NULL; n++) {
        char *end;
        double when = strtod(at + sizeof(name) - 1, &end);

        assert_true(fabs(when - (double)time(NULL)) < 86400.0);
        assert_int_equal(*end, '}');
        memmove(at, end, strlen(end) + 1);
    }
    return n;
}

static void test_grammar_and_metrics(void **state)
{
    static const char want[] =
        "{\"event\":\"run\",\"ranks\":2}\n"
        "{\"event\":\"test\",\"iter\":0,\"net\":0,\"outputs\":{\"accuracy\":0.991,\"loss\":0.0301},"
        "\"epoch\":0}\n"
        "{\"event\":\"train\",\"iter\":0,\"loss\":2.5,\"lr\":0.01,\"images_per_s\":0,"
        "\"wait_data_ms\":0,\"compute_ms\":0,\"comm_exposed_ms\":0,\"bytes_sent\":0,"
        "\"epoch\":0}\n"
        "{\"event\":\"train\",\"iter\":100,\"loss\":1.2e-05,\"lr\":0.00992565,"
        "\"images_per_s\":7901.25,\"wait_data_ms\":0.5,\"compute_ms\":7,\"comm_exposed_ms\":0.25,"
        "\"bytes_sent\":1724320,\"epoch\":1.5}\n"
        "{\"event\":\"test\",\"iter\":100,\"net\":0,"
        "\"outputs\":{\"accuracy\":0.991,\"loss\":0.0301},\"epoch\":1.5}\n"
        "{\"event\":\"done\",\"iter\":200}\n";
    ct_report_options options = { .metrics = path };
    ct_report *r = NULL;
    fake_net f;
    char *text = NULL;
    size_t size = 0;

    (void)state;
    fake_init(&f, 1);
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    write_all(r, &f.net);
    assert_log("^I[0-9]{4} [0-9:]{8}\\.[0-9]{6} [0-9]+ report\\.c:[0-9]+\\] Iteration 100 "
               "\\(123\\.457 iter/s, 0\\.81s/100 iters\\), loss = 1\\.2e-05$");
    assert_log("\\]     Train net output #0: accuracy = 0\\.25$");
    assert_log("\\]     Train net output #1: loss = 2\\.5 \\(\\* 0\\.5 = 1\\.25 loss\\)$");
    assert_log("\\] Iteration 100, lr = 0\\.00992565$");
    assert_log("\\] Iteration 0, Testing net \\(#0\\)$");
    assert_log("\\]     Test net output #0: accuracy = 0\\.991$");
    assert_log("\\] Iteration 200, loss = 0\\.125$");
    /* every line is there before the report ends: a killed run loses none */
    assert_int_equal(ct_file_read(path, &text, &size), CT_OK);
    assert_int_equal(cut_times(text), 4);
    assert_string_equal(text, want);
    free(text);
    ct_report_destroy(r);
}

static void test_other_ranks_are_silent(void **state)
{
    ct_report_options options = { .rank = 1, .metrics = path };
    ct_report *r = NULL;
    fake_net f;

    (void)state;
    fake_init(&f, 1);
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    log_text.length = 0;
    write_all(r, &f.net);
    assert_null(strstr(log_text.text, "Iteration"));
    assert_int_not_equal(access(path, F_OK), 0);
    ct_report_destroy(r);
    assert_int_equal(ct_report_done(NULL, ""), CT_OK); /* no report at all is fine */
}

static void test_vector_outputs_and_nan(void **state)
{
    ct_report_options options = { .metrics = path };
    const double values[] = { 0.5, 1, 0, NAN };
    ct_report *r = NULL;
    fake_net f;
    char *text = NULL;
    size_t size = 0;

    (void)state;
    fake_init(&f, 3);
    assert_int_equal(ct_report_n_output(&f.net), 4);
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    assert_int_equal(ct_report_test(r, 5, NAN, 1, &f.net, values, &(ct_text_size){ 0 }), CT_OK);
    ct_report_destroy(r);
    assert_log("\\]     Test net output #2: accuracy = 0$");
    assert_log("\\]     Test net output #3: loss = -?nan \\(");
    assert_int_equal(ct_file_read(path, &text, &size), CT_OK);
    assert_int_equal(cut_times(text), 1);
    assert_string_equal(text, "{\"event\":\"test\",\"iter\":5,\"net\":1,\"outputs\":"
                              "{\"accuracy\":[0.5,1,0],\"loss\":null},\"epoch\":null}\n");
    free(text);
}

static void test_append_drops_a_cut_line(void **state)
{
    ct_report_options options = { .metrics = path, .append = true };
    ct_report *r = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *f = fopen(path, "w");

    (void)state;
    assert_non_null(f);
    fputs("{\"event\":\"run\"}\n{\"event\":\"train\",\"it", f);
    fclose(f);
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    assert_int_equal(ct_report_run(r, ""), CT_OK);
    ct_report_destroy(r);
    assert_int_equal(ct_file_read(path, &text, &size), CT_OK);
    assert_string_equal(text, "{\"event\":\"run\"}\n{\"event\":\"run\"}\n");
    free(text);
    options.append = false;
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    ct_report_destroy(r);
    assert_int_equal(ct_file_read(path, &text, &size), CT_OK);
    assert_int_equal(size, 0);
    free(text);
}

static void test_errors(void **state)
{
    ct_report_options options = { .metrics = "/nonexistent/metrics" };
    ct_report *r = NULL;

    (void)state;
    assert_int_equal(ct_report_create(&options, &r), CT_ERR_IO);
    assert_null(r);
    options.metrics = "/dev/full";
    if (access(options.metrics, W_OK) == 0) {
        assert_int_equal(ct_report_create(&options, &r), CT_OK);
        assert_int_equal(ct_report_run(r, "\"ranks\":1"), CT_ERR_IO);
        assert_log("cannot write metrics to /dev/full: No space left");
        ct_report_destroy(r);
    }
}

static void test_progress_line(void **state)
{
    ct_progress *p = (ct_progress *)path;
    char text[160];

    (void)state;
    ct_progress_format(text, sizeof(text), 1200, 10000, 0.123456, 3120.4, 192);
    assert_string_equal(text, "  1200/10000  loss 0.1235  3120 images/s  3m12s left");
    ct_progress_format(text, sizeof(text), 0, 10, 2.5, 0, -1);
    assert_string_equal(text, "  0/10  loss 2.5");
    ct_progress_format(text, sizeof(text), 1, 10, NAN, 1e300, 1e5);
    assert_non_null(strstr(text, "27h46m left"));
    if (isatty(STDERR_FILENO) == 0) {
        assert_int_equal(ct_progress_create(&p), CT_OK);
        assert_null(p);
    }
}

/* Runs Caffe's own script over our log. It is written for an older Python: its one print
 * statement is turned into a call, nothing else. */
static void test_caffe_parse_log(void **state)
{
    static const char runner[] =
        "import re,sys,os\n"
        "p=sys.argv[1]; sys.path.insert(0,os.path.dirname(p))\n"
        "t=re.sub(r\"print ('[^']*' % \\w+)\",r'print(\\1)',open(p).read())\n"
        "sys.argv=sys.argv[1:]; exec(compile(t,p,'exec'))\n";
    const char *script = getenv("CORTADO_PARSE_LOG");
    char log[64], run[96], csv[2][96], command[1024], *text = NULL;
    ct_report_options options = { 0 };
    ct_report *r = NULL;
    size_t size = 0;
    fake_net f;

    (void)state;
    if (script == NULL) {
        print_message("CORTADO_PARSE_LOG names no copy of Caffe's parse_log.py\n");
        skip();
    }
    fake_init(&f, 1);
    log_text.length = 0;
    assert_int_equal(ct_report_create(&options, &r), CT_OK);
    write_all(r, &f.net);
    ct_report_destroy(r);
    snprintf(log, sizeof(log), "%s/log", dir);
    snprintf(run, sizeof(run), "%s/run.py", dir);
    snprintf(csv[0], sizeof(csv[0]), "%s.train", log);
    snprintf(csv[1], sizeof(csv[1]), "%s.test", log);
    assert_int_equal(ct_file_write(log, log_text.text, log_text.length), CT_OK);
    assert_int_equal(ct_file_write(run, runner, sizeof(runner) - 1), CT_OK);
    snprintf(command, sizeof(command), "python3 -W ignore '%s' '%s' '%s' '%s'", run, script, log,
             dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(ct_file_read(csv[0], &text, &size), CT_OK);
    assert_non_null(strstr(text, "NumIters,Seconds,LearningRate,accuracy,loss"));
    assert_non_null(strstr(text, "\n100.0,"));
    free(text);
    assert_int_equal(ct_file_read(csv[1], &text, &size), CT_OK);
    assert_non_null(strstr(text, ",0.991,0.0301"));
    free(text);
    unlink(log);
    unlink(run);
    unlink(csv[0]);
    unlink(csv[1]);
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_grammar_and_metrics),
        TEST(test_other_ranks_are_silent),
        TEST(test_vector_outputs_and_nan),
        TEST(test_append_drops_a_cut_line),
        TEST(test_errors),
        TEST(test_progress_line),
        TEST(test_caffe_parse_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
