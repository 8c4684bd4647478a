/* Requests and their replies without a network: every route, what each refuses and with which
 * words, and what comes of the queue. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/api/transaction.h"
#include "tests/log_capture.h"
#include "tests/served_fake.h"

static served_fake fake;
static ct_api *api;
static ct_api_keys *keys;
static log_capture captured;

static void note_done(void *ctx)
{
    *(bool *)ctx = true;
}

/* ---- asking */

typedef struct reply {
    int status;
    char type[64], body[32768];
    size_t size;
    int64_t json_length, retry_s;
} reply;

static reply out;

static void keep(ct_transaction *x)
{
    memset(&out, 0, sizeof(out));
    out.status = x->reply.status;
    snprintf(out.type, sizeof(out.type), "%s", x->reply.type);
    out.size = x->reply.body.length;
    assert_true(out.size < sizeof(out.body));
    if (out.size > 0) memcpy(out.body, x->reply.body.text, out.size);
    out.json_length = x->reply.json_length;
    out.retry_s = x->reply.retry_s;
}

/* A body that goes once it has been read, and nothing else keeps what it said. */
static int ask_all(const char *method, const char *path, const char *authorization,
                   const char *json_length, const char *body, size_t size)
{
    char *sent = malloc(size + 1);
    ct_transaction x;
    bool done = false, ready;

    assert_non_null(sent);
    memcpy(sent, body, size);
    ct_transaction_init(&x, api);
    x.request = (ct_http_request){ .method = method,
                                   .path = path,
                                   .authorization = authorization,
                                   .json_length = json_length,
                                   .body = sent,
                                   .size = size };
    x.set.done = note_done;
    x.set.ctx = &done;
    ready = ct_transaction_meet(&x) || ct_transaction_begin(&x);
    memset(sent, '?', size);
    free(sent);
    assert_null(x.root);
    if (!ready && !ct_transaction_submit(&x)) {
        for (int i = 0; (i < 100) && !done; i++) ct_dispatch_step(fake.dispatch);
        assert_true(done);
        ct_transaction_answer(&x);
    }
    keep(&x);
    ct_transaction_end(&x);
    return out.status;
}

static int get(const char *path)
{
    return ask_all("GET", path, NULL, NULL, "", 0);
}

static int post(const char *path, const char *body)
{
    return ask_all("POST", path, NULL, NULL, body, strlen(body));
}

static void expect_body(const char *expected)
{
    assert_string_equal(out.body, expected);
}

static void expect_in_body(const char *part)
{
    if (strstr(out.body, part) == NULL) fail_msg("no %s in %s", part, out.body);
}

/* Every reply that says so is JSON. */
static json_t *parsed(void)
{
    size_t n = (out.json_length >= 0) ? (size_t)out.json_length : out.size;
    json_t *j = json_loadb(out.body, n, 0, NULL);

    assert_non_null(j);
    return j;
}

/* ---- a key, a name */

static void start(double deadline_s)
{
    ct_api_options o = { .model = &fake.model,
                         .keys = keys,
                         .version = "1.2.3",
                         .deadline_s = deadline_s,
                         .most_inputs = 6 };

    served_fake_open(&fake);
    assert_int_equal(ct_api_create(&o, fake.dispatch, &api), CT_OK);
}

static void stop(void)
{
    ct_api_destroy(api);
    served_fake_close(&fake);
}

static int set_up(void **state)
{
    (void)state;
    start(INFINITY);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stop();
    return 0;
}

static void test_what_is_here(void **state)
{
    (void)state;
    assert_int_equal(get("/"), 200);
    assert_string_equal(out.type, "text/html; charset=utf-8");
    expect_in_body("<title>Cortado</title>");
    assert_int_equal(get("/v1/models"), 200);
    expect_body("{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\","
                "\"created\":0,\"owned_by\":\"cortado\"}]}\n");
    assert_int_equal(get("/v1/models/fake"), 200);
    assert_int_equal(get("/v2"), 200);
    expect_body("{\"name\":\"cortado\",\"version\":\"1.2.3\",\"extensions\":"
                "[\"binary_tensor_data\"]}\n");
    assert_int_equal(get("/v2/health/live"), 200);
    assert_int_equal(get("/v2/health/ready"), 200);
    assert_int_equal(get("/v2/models/fake/ready"), 200);
    assert_int_equal(get("/v2/models/fake/versions/1/ready"), 200);
    assert_int_equal(get("/v2/models/fake"), 200);
    expect_body("{\"name\":\"fake\",\"versions\":[\"1\"],\"platform\":\"cortado\",\"inputs\":["
                "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,3]},"
                "{\"name\":\"ids\",\"datatype\":\"INT32\",\"shape\":[-1,-1]}],\"outputs\":["
                "{\"name\":\"sum\",\"datatype\":\"FP32\",\"shape\":[-1]},"
                "{\"name\":\"twice\",\"datatype\":\"FP32\",\"shape\":[-1,3]}]}\n");
    assert_int_equal(get("/v2/models/fake/versions/1"), 200);
}

static void test_what_is_not(void **state)
{
    (void)state;
    assert_int_equal(get("/v1/elsewhere"), 404);
    expect_body("{\"error\":{\"message\":\"there is nothing at /v1/elsewhere\",\"type\":"
                "\"invalid_request_error\",\"param\":null,\"code\":\"not_found\"}}\n");
    assert_int_equal(get("/v2/elsewhere"), 404);
    expect_body("{\"error\":\"there is nothing at /v2/elsewhere\"}\n");
    assert_int_equal(get("/v2x"), 404);
    expect_in_body("\"message\"");
    assert_int_equal(get(""), 404);
    assert_int_equal(get("/v1/models/"), 404);
    assert_int_equal(get("/v1/models/other"), 404);
    expect_in_body("the model of /v1/models/other is not here; this server has fake");
    expect_in_body("model_not_found");
    assert_int_equal(post("/v2/models/fak/infer", "{}"), 404);
    assert_int_equal(get("/v2/models/fake/versions/2"), 404);
    assert_int_equal(get("/v1/embeddings"), 405);
    expect_in_body("/v1/embeddings is for POST, not for GET");
    assert_int_equal(ask_all("DELETE", "/v1/models", NULL, NULL, "", 0), 405);
    assert_int_equal(get("/\xff\xfe"), 404); /* the reply is JSON in any case */
    json_decref(parsed());
    assert_int_equal(get("/v1/models/\xe4\xb8"), 404);
    json_decref(parsed());
}

/* ---- embeddings */

static void test_embeddings(void **state)
{
    json_t *j;

    (void)state;
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"abcde\"}"), 200);
    expect_body("{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,"
                "\"embedding\":[0,1,0,0]}],\"model\":\"fake\",\"usage\":{\"prompt_tokens\":5,"
                "\"total_tokens\":5}}\n");
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"user\":\"u\",\"dimensions\":4,"
                                            "\"encoding_format\":\"float\","
                                            "\"input\":[\"ab\",\"\\u00e9\\u0000x\"]}"),
                     200);
    j = parsed();
    assert_int_equal(json_array_size(json_object_get(j, "data")), 2);
    json_decref(j);
    expect_in_body("\"index\":1,\"embedding\":[1,0,0,0]"); /* 4 bytes: é, a zero, x */
    expect_in_body("\"prompt_tokens\":6");
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":[1,2,255]}"), 200);
    expect_in_body("[0,0,0,1]");
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":[[0],[0,0]]}"), 200);
    expect_in_body("[0,-1,0,0]");
    expect_in_body("[0,0,-1,0]");
}

/* 16 bytes of four floats: 0, 1.0 (00 00 80 3f), 0, 0. */
static void test_base64(void **state)
{
    (void)state;
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"encoding_format\":\"base64\","
                                            "\"input\":\"a\"}"),
                     200);
    expect_in_body("\"embedding\":\"AAAAAAAAgD8AAAAAAAAAAA==\"");
}

static void test_wrong_embeddings(void **state)
{
    static const struct {
        int status;
        const char *body, *says;
    } wrong[] = {
        { 400, "", "the body is not JSON" },
        { 400, "{\"model\":", "the body is not JSON: line 1, column 9" },
        { 400, "{\"model\":\"fake\",\"model\":\"fake\",\"input\":\"a\"}", "duplicate object key" },
        { 400, "[1]", "the body is JSON, but no object" },
        { 400, "{\"input\":\"a\"}", "model is missing: expected \\\"fake\\\"" },
        { 400, "{\"model\":3,\"input\":\"a\"}", "model is no text" },
        { 404, "{\"model\":\"gpt\",\"input\":\"a\"}", "the model gpt is not here" },
        { 400, "{\"model\":\"fake\"}", "input is missing" },
        { 400, "{\"model\":\"fake\",\"input\":\"\"}", "input is empty" },
        { 400, "{\"model\":\"fake\",\"input\":[]}", "input is empty" },
        { 400, "{\"model\":\"fake\",\"input\":\"~~\"}", "input is empty: it has no tokens" },
        { 400, "{\"model\":\"fake\",\"input\":[\"a\",\"~\"]}",
          "input[1] is empty: it has no tokens" },
        { 400, "{\"model\":\"fake\",\"input\":[\"a\",\"\"]}", "input[1] is empty" },
        { 400, "{\"model\":\"fake\",\"input\":[[1],[]]}", "input[1] is empty" },
        { 400, "{\"model\":\"fake\",\"input\":3}",
          "input is neither a text nor a list of ids of tokens" },
        { 400, "{\"model\":\"fake\",\"input\":[\"a\",3]}",
          "input[1] is neither a text nor a list of ids of tokens" },
        { 400, "{\"model\":\"fake\",\"input\":[1,\"a\"]}",
          "entry 1 of input is no whole number, as ids of tokens are" },
        { 422, "{\"model\":\"fake\",\"input\":[[1],[7,256]]}",
          "entry 1 of input[1] is 256, ids are 0 to 255" },
        { 422, "{\"model\":\"fake\",\"input\":[-1]}", "entry 0 of input is -1, ids are 0 to 255" },
        { 422, "{\"model\":\"fake\",\"input\":[4294967297]}", "is 4294967297, ids are 0 to 255" },
        { 422, "{\"model\":\"fake\",\"input\":\"a!\"}", "input: line 1: no token for '!'" },
        { 422,
          "{\"model\":\"fake\",\"input\":\"01234567890123456789012345678901234567890123456789"
          "012345678901234\"}",
          "input has 65 tokens, the model takes at most 64" },
        { 422, "{\"model\":\"fake\",\"input\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\"]}",
          "input has 7 entries, a request may have at most 6" },
        { 400, "{\"model\":\"fake\",\"input\":\"a\",\"encoding_format\":\"int8\"}",
          "encoding_format is neither \\\"float\\\" nor \\\"base64\\\"" },
        { 400, "{\"model\":\"fake\",\"input\":\"a\",\"encoding_format\":1}", "encoding_format is" },
        { 400, "{\"model\":\"fake\",\"input\":\"a\",\"dimensions\":2}",
          "dimensions: the model's embeddings have 4, and no other number" },
        { 400, "{\"model\":\"fake\",\"input\":\"a\",\"user\":7}", "user is no text" },
        { 400, "{\"model\":\"fake\",\"imput\":\"a\"}",
          "imput is no field of this request; did you mean input?" },
        { 400, "{\"model\":\"fake\",\"input\":\"a\",\"zzz\":1}",
          "zzz is no field of this request" },
    };

    (void)state;
    log_capture_start(&captured); /* of '!' */
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(post("/v1/embeddings", wrong[i].body), wrong[i].status);
        expect_in_body(wrong[i].says);
        json_decref(parsed());
    }
    log_capture_stop();
    {
        static char body[64 * 256 + 64]; /* refused by its bytes alone */

        memset(body, ' ', sizeof(body) - 1);
        memcpy(body, "{\"model\":\"fake\",\"input\":\"", 25);
        memcpy(body + 25 + 64 * 256, "\"}", 3);
        assert_int_equal(post("/v1/embeddings", body), 422);
        expect_in_body("input has 16384 bytes, too many for 64 tokens");
    }
    assert_int_equal(fake.n_embedded, 0);
    fake.model.encode = NULL;
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"a\"}"), 400);
    expect_in_body("input is a text, and the server has no tokenizer: expected ids of tokens");
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":[1]}"), 200);
    fake.model.embedding_size = 0;
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":[1]}"), 404);
    expect_in_body("the model fake makes no embeddings");
}

/* ---- infer */

#define INFER "/v2/models/fake/infer"
#define X     "{\"name\":\"x\",\"shape\":[2,3],\"datatype\":\"FP32\",\"data\":[[1,2,3],[4,5,6.5]]}"
#define IDS   "{\"name\":\"ids\",\"shape\":[2,1],\"datatype\":\"INT64\",\"data\":[10,20]}"

static void test_infer(void **state)
{
    (void)state;
    assert_int_equal(post(INFER, "{\"id\":\"q\",\"inputs\":[" X "," IDS "]}"), 200);
    expect_body("{\"model_name\":\"fake\",\"model_version\":\"1\",\"id\":\"q\",\"outputs\":["
                "{\"name\":\"sum\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[16,35.5]},"
                "{\"name\":\"twice\",\"datatype\":\"FP32\",\"shape\":[2,3],"
                "\"data\":[2,4,6,8,10,13]}]}");
    assert_int_equal(fake.samples, 2);
    assert_int_equal(post("/v2/models/fake/versions/1/infer",
                          "{\"inputs\":[" IDS "," X "],\"outputs\":[{\"name\":\"sum\"}]}"),
                     200);
    expect_body("{\"model_name\":\"fake\",\"model_version\":\"1\",\"outputs\":["
                "{\"name\":\"sum\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[16,35.5]}]}");
    assert_int_equal(out.json_length, -1);
}

/* JSON with what is binary behind it. */
static int post_binary(const char *json, const void *data, size_t n, const char *length)
{
    char body[2048], own[24];
    size_t at = strlen(json);

    memcpy(body, json, at);
    memcpy(body + at, data, n);
    snprintf(own, sizeof(own), "%zu", at);
    return ask_all("POST", INFER, NULL, (length != NULL) ? length : own, body, at + n);
}

#define BINARY_X                                                                                   \
    "{\"name\":\"x\",\"shape\":[1,3],\"datatype\":\"FP32\","                                       \
    "\"parameters\":{\"binary_data_size\":12}}"
#define BINARY_IDS                                                                                 \
    "{\"name\":\"ids\",\"shape\":[1,2],\"datatype\":\"INT64\","                                    \
    "\"parameters\":{\"binary_data_size\":16}}"

static void test_infer_binary(void **state)
{
    struct {
        float x[3];
        int64_t ids[2];
    } __attribute__((packed)) data = { { 1, 2, 4.25f }, { 100, 200 } };
    float values[3];

    (void)state;
    assert_int_equal(post_binary("{\"inputs\":[" BINARY_X "," BINARY_IDS "],\"parameters\":"
                                 "{\"binary_data_output\":true},\"outputs\":[{\"name\":\"twice\"},"
                                 "{\"name\":\"sum\",\"parameters\":{\"binary_data\":false}}]}",
                                 &data, sizeof(data), NULL),
                     200);
    assert_string_equal(out.type, "application/octet-stream");
    json_decref(parsed());
    expect_in_body("\"shape\":[1,3],\"parameters\":{\"binary_data_size\":12}}");
    expect_in_body("\"data\":[307.25]");
    assert_int_equal(out.size, out.json_length + 12);
    memcpy(values, out.body + out.json_length, 12);
    assert_true((values[0] == 2) && (values[1] == 4) && (values[2] == 8.5f));
    /* INT32 */
    {
        struct {
            int32_t ids[1];
            float x[3];
        } narrow = { { 7 }, { 1, 1, 1 } };

        assert_int_equal(post_binary("{\"inputs\":[{\"name\":\"ids\",\"shape\":[1,1],\"datatype\":"
                                     "\"INT32\",\"parameters\":{\"binary_data_size\":4}}," BINARY_X
                                     "]}",
                                     &narrow, sizeof(narrow), NULL),
                         200);
        expect_in_body("\"data\":[10]");
    }
}

static void test_wrong_binary(void **state)
{
    static const float data[8] = { 1, 2, 3 };
    static const struct {
        size_t n;
        const char *length, *json, *says;
    } wrong[] = {
        { 8, NULL, "{\"inputs\":[" BINARY_X "," IDS "]}",
          "input x: the body has fewer bytes than binary_data_size says" },
        { 16, NULL,
          "{\"inputs\":[" BINARY_X ",{\"name\":\"ids\",\"shape\":[1,1],\"datatype\":\"INT32\","
          "\"data\":[1]}]}",
          "4 bytes behind the inputs belong to none" },
        { 12, NULL,
          "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,3],\"datatype\":\"FP32\","
          "\"parameters\":{\"binary_data_size\":8}}]}",
          "input x: binary_data_size is not 12, the bytes that its shape has" },
        { 12, "x", "{}", "Inference-Header-Content-Length is x, expected 0 to 14" },
        { 12, "15", "{}", "Inference-Header-Content-Length is 15, expected 0 to 14" },
        { 12, "99999999999999999999", "{}", "expected 0 to 14" },
        { 12, "-1", "{}", "expected 0 to 14" },
        { 12, "", "{}", "expected 0 to 14" },
        { 0, "0", "{}", "the body is not JSON" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(post_binary(wrong[i].json, data, wrong[i].n, wrong[i].length), 400);
        expect_in_body(wrong[i].says);
        json_decref(parsed());
    }
}

#define BAD_X(_rest) "{\"inputs\":[{\"name\":\"x\"," _rest "}," IDS "]}"
#define FP32         "\"datatype\":\"FP32\","

static void test_wrong_infer(void **state)
{
    static const struct {
        int status;
        const char *body, *says;
    } wrong[] = {
        { 400, "{}", "inputs is no list" },
        { 400, "{\"inputs\":[3]}", "inputs[0]: the model has no input without a name" },
        { 400, "{\"inputs\":[{\"name\":\"y\"}]}", "inputs[0]: the model has no input y" },
        { 400, "{\"inputs\":[" X "]}", "input ids: is missing" },
        { 400, "{\"inputs\":[" X "," X "]}", "input x: is there twice" },
        { 400, BAD_X("\"shape\":[2,3],\"data\":[]"),
          "input x: datatype is missing, expected FP32" },
        { 400, BAD_X("\"datatype\":\"FP64\",\"shape\":[2,3],\"data\":[]"),
          "input x: datatype is FP64, expected FP32" },
        { 400, BAD_X(FP32 "\"shape\":3,\"data\":[]"), "input x: shape is no list of 2 numbers" },
        { 400, BAD_X(FP32 "\"shape\":[6],\"data\":[]"), "input x: shape is no list of 2 numbers" },
        { 400, BAD_X(FP32 "\"shape\":[0,3],\"data\":[]"),
          "input x: shape[0] is no number above 0" },
        { 400, BAD_X(FP32 "\"shape\":[1,4],\"data\":[]"), "input x: shape[1] is 4, expected 3" },
        { 422, BAD_X(FP32 "\"shape\":[17,3],\"data\":[]"),
          "input x: shape[0] is 17, at most 16 is planned" },
        { 422, BAD_X(FP32 "\"shape\":[4611686018427387904,3],\"data\":[]"), "at most 16" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[1,2]"),
          "input x: data has 2 values, its shape has 3" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[1,2,3,4]"),
          "input x: data has 4 values, its shape has 3" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[1,\"2\",3]"),
          "input x: data has other things than numbers" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[[[1,2,3]]]"), "other things than numbers" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":7"), "input x: data is no list of numbers" },
        { 400, BAD_X(FP32 "\"shape\":[1,3]"), "input x: expected either data or binary_data_size" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[],\"parameters\":{\"binary_data_size\":12}"),
          "input x: expected either data or binary_data_size" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[],\"parameters\":1"),
          "inputs[].parameters is no object" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"dat\":[]"), "inputs[].dat is no field" },
        { 400, BAD_X(FP32 "\"shape\":[1,3],\"data\":[],\"parameters\":{\"a\":1}"),
          "inputs[].parameters.a is no field" },
        { 400,
          "{\"inputs\":[{\"name\":\"ids\",\"shape\":[1,1],\"datatype\":\"INT32\",\"data\":[1.5]}]}",
          "input ids: data has other things than whole numbers" },
        { 422,
          "{\"inputs\":[{\"name\":\"ids\",\"shape\":[1,2],\"datatype\":\"INT32\","
          "\"data\":[1,256]}]}",
          "input ids: value 1 is 256, expected 0 to 255" },
        { 400, "{\"inputs\":[],\"outputs\":3}", "outputs is no list" },
        { 400, "{\"inputs\":[],\"outputs\":[{}]}",
          "outputs[0]: the model has no output without a name" },
        { 400, "{\"inputs\":[],\"outputs\":[{\"name\":\"sum\"},{\"name\":\"sum\"}]}",
          "output sum is there twice" },
        { 400,
          "{\"inputs\":[],\"outputs\":[{\"name\":\"sum\",\"parameters\":{\"classification\":1}}]}",
          "outputs[].parameters.classification is no field" },
        { 400, "{\"inputs\":[],\"parameters\":{\"binary_data_output\":1}}",
          "binary_data_output is neither true nor false" },
        { 400, "{\"inputs\":[],\"parameters\":[]}", "parameters is no object" },
        { 400, "{\"id\":3,\"inputs\":[]}", "id is no text" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(post(INFER, wrong[i].body), wrong[i].status);
        expect_in_body(wrong[i].says);
        assert_memory_equal(out.body, "{\"error\":\"", 10);
        json_decref(parsed());
    }
    fake.model.n_input = 0;
    assert_int_equal(post(INFER, "{}"), 404);
    expect_in_body("the model fake takes no blobs");
}

/* ---- the queue */

static void test_queue(void **state)
{
    ct_transaction x[FAKE_QUEUE];
    const char *one = "{\"model\":\"fake\",\"input\":\"abcdefgh\"}";
    bool done[FAKE_QUEUE] = { false };

    (void)state;
    for (int i = 0; i < FAKE_QUEUE; i++) {
        ct_transaction_init(&x[i], api);
        x[i].request = (ct_http_request){
            .method = "POST", .path = "/v1/embeddings", .body = one, .size = strlen(one)
        };
        x[i].set.done = note_done;
        x[i].set.ctx = &done[i];
        assert_false(ct_transaction_meet(&x[i]));
        assert_false(ct_transaction_begin(&x[i]));
        assert_false(ct_transaction_submit(&x[i]));
    }
    assert_int_equal(post("/v1/embeddings", one), 429);
    expect_in_body("the queue is full");
    /* nobody reads its body */
    assert_int_equal(post("/v1/embeddings", "{"), 429);
    expect_in_body("rate_limit_error");
    assert_int_equal(out.retry_s, 1);
    ct_transaction_cancel(&x[3]);
    ct_api_drain(api);
    assert_int_equal(post("/v1/embeddings", one), 503);
    expect_in_body("the server is going to end");
    assert_int_equal(get("/v2/health/ready"), 503);
    expect_body("{\"ready\":false}\n");
    assert_int_equal(get("/v2/health/live"), 200);
    for (int i = 0; i < 10; i++) ct_dispatch_step(fake.dispatch);
    assert_true(ct_dispatch_is_idle(fake.dispatch));
    for (int i = 0; i < FAKE_QUEUE; i++) {
        assert_true(done[i]);
        ct_transaction_cancel(&x[i]); /* too late: nothing */
        ct_transaction_answer(&x[i]);
        assert_int_equal(x[i].reply.status, (i == 3) ? 503 : 200);
        ct_transaction_end(&x[i]);
    }
    assert_int_equal(fake.n_embedded, FAKE_QUEUE - 1);
}

static void test_failure(void **state)
{
    (void)state;
    fake.fails = true;
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"a\"}"), 500);
    expect_in_body("the model failed; the server's log says why");
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"a\"}"), 200);
}

static void test_deadline(void **state)
{
    (void)state;
    stop();
    start(5e-5); /* less than any batch takes by its costs */
    assert_int_equal(post("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"a\"}"), 429);
    expect_in_body("the server is too busy to answer within its deadline of 0.05 ms");
    stop();
    start(0.02);
    {
        const char *body = "{\"model\":\"fake\",\"input\":\"a\"}";
        ct_transaction x;
        bool done = false;

        ct_transaction_init(&x, api);
        x.request = (ct_http_request){
            .method = "POST", .path = "/v1/embeddings", .body = body, .size = strlen(body)
        };
        x.set.done = note_done;
        x.set.ctx = &done;
        assert_false(ct_transaction_meet(&x));
        assert_false(ct_transaction_begin(&x));
        assert_false(ct_transaction_submit(&x));
        (void)usleep(30000); /* nobody runs batches meanwhile */
        ct_dispatch_step(fake.dispatch);
        assert_true(done);
        ct_transaction_answer(&x);
        assert_int_equal(x.reply.status, 504);
        assert_non_null(strstr(x.reply.body.text, "not answered within the deadline of 20 ms"));
        ct_transaction_end(&x);
    }
}

static void test_metrics(void **state)
{
    (void)state;
    (void)post("/v1/embeddings", "{\"model\":\"fake\",\"input\":[\"abc\",\"d\"]}");
    (void)post("/v1/embeddings", "{}");
    (void)get("/nothing");
    assert_int_equal(get("/metrics"), 200);
    assert_string_equal(out.type, "text/plain; version=0.0.4; charset=utf-8");
    expect_in_body("cortado_replies_total{route=\"/v1/embeddings\",status=\"200\"} 1\n");
    expect_in_body("cortado_replies_total{route=\"/v1/embeddings\",status=\"400\"} 1\n");
    expect_in_body("cortado_replies_total{route=\"none\",status=\"404\"} 1\n");
    expect_in_body("# TYPE cortado_request_seconds histogram\n");
    expect_in_body("cortado_ready 1\n");
    expect_in_body("cortado_admitted_total 2\n");
    expect_in_body("cortado_ended_total{how=\"done\"} 2\n");
    expect_in_body("cortado_batch_tokens_total 4\n");
    expect_in_body("cortado_budget_tokens 64\n");
}

/* ---- keys */

static void write_keys(const char *text)
{
    FILE *f = fopen("test_transaction.keys", "w");

    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_keys(void **state)
{
    (void)state;
    stop();
    write_keys("# those of the team\nsecret-1\r\n\nsecret-2");
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &keys), CT_OK);
    start(INFINITY);
    assert_int_equal(get("/v1/models"), 401);
    expect_in_body("no key: expected the header Authorization: Bearer KEY");
    expect_in_body("invalid_api_key");
    assert_int_equal(get("/elsewhere"), 401); /* not even what is there */
    assert_int_equal(get("/metrics"), 401);
    assert_int_equal(get("/v2/health/live"), 200);
    assert_int_equal(get("/v2/health/ready"), 200);
    assert_int_equal(get("/"), 200);
    assert_int_equal(ask_all("GET", "/v1/models", "Bearer secret-1", NULL, "", 0), 200);
    assert_int_equal(ask_all("GET", "/v1/models", "bearer secret-2", NULL, "", 0), 200);
    assert_int_equal(ask_all("GET", "/v1/models", "Bearer secret-3", NULL, "", 0), 401);
    expect_in_body("the key of the header Authorization is none of this server's");
    assert_int_equal(ask_all("GET", "/v1/models", "Bearer secret-", NULL, "", 0), 401);
    assert_int_equal(ask_all("GET", "/v1/models", "Bearer secret-11", NULL, "", 0), 401);
    assert_int_equal(ask_all("GET", "/v1/models", "Bearer ", NULL, "", 0), 401);
    assert_int_equal(ask_all("GET", "/v1/models", "Basic secret-1", NULL, "", 0), 401);
    ct_api_keys_destroy(keys);
    keys = NULL;
    (void)unlink("test_transaction.keys");
}

static void test_wrong_keys(void **state)
{
    char longest[CT_KEY_BYTES + 2];
    ct_api_keys *none = NULL;

    (void)state;
    memset(longest, 'k', sizeof(longest));
    longest[CT_KEY_BYTES + 1] = '\0';
    log_capture_start(&captured);
    write_keys("# nothing\n\n");
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &none), CT_ERR_CONFIG);
    assert_string_equal(captured.error, "test_transaction.keys: has no key, expected one a line");
    write_keys("a\nb c\n");
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &none), CT_ERR_CONFIG);
    assert_string_equal(captured.error,
                        "test_transaction.keys:2: byte 2 of the key is no visible ASCII");
    write_keys(longest);
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &none), CT_ERR_CONFIG);
    assert_string_equal(captured.error,
                        "test_transaction.keys:1: a key of 257 bytes, expected at most 256");
    longest[CT_KEY_BYTES] = '\0';
    write_keys(longest);
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &none), CT_OK);
    ct_api_keys_destroy(none);
    (void)unlink("test_transaction.keys");
    assert_int_equal(ct_api_keys_read("test_transaction.keys", &none), CT_ERR_IO);
    log_capture_stop();
}

int main(void)
{
#define TEST(_f) cmocka_unit_test_setup_teardown(_f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_here),     TEST(test_what_is_not),
        TEST(test_embeddings),       TEST(test_base64),
        TEST(test_wrong_embeddings), TEST(test_infer),
        TEST(test_infer_binary),     TEST(test_wrong_binary),
        TEST(test_wrong_infer),      TEST(test_queue),
        TEST(test_failure),          TEST(test_deadline),
        TEST(test_metrics),          TEST(test_keys),
        TEST(test_wrong_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
