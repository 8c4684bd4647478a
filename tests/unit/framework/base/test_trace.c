/* Traces: the window, the fixed buffer, what is written, clocks laid over each other. */
#include "tests/test.h"

#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "framework/base/trace.h"

static ct_trace *make(int64_t first, int64_t last, int64_t capacity)
{
    ct_trace *t = NULL;

    assert_int_equal(ct_trace_create(first, last, false, &t), CT_OK);
    assert_int_equal(ct_trace_reserve(t, capacity), CT_OK);
    return t;
}

static void add(ct_trace *t, ct_trace_kind kind, int number, double start, double end)
{
    ct_trace_add(t, &(ct_trace_span){ .kind = kind,
                                      .number = number,
                                      .name = (kind == CT_TRACE_FORWARD) ? "conv \"1\"" : NULL,
                                      .detail = (kind == CT_TRACE_BUCKET) ? "ring" : NULL,
                                      .bytes = 4096,
                                      .iteration = 7,
                                      .start_s = start,
                                      .end_s = end });
}

/* The events of a trace, with what the program puts around them. */
static json_t *write(ct_trace *t, const ct_trace_clock *clock, double zero)
{
    ct_text text = { 0 };
    json_error_t error;
    json_t *all;

    ct_text_add(&text, "[");
    assert_int_equal(ct_trace_write(t, 3, "host", clock, zero, &text), CT_OK);
    ct_text_add(&text, "{}]");
    all = json_loads(text.text, 0, &error);
    if (all == NULL) fail_msg("%s at %d: %s", error.text, error.position, text.text);
    ct_text_destroy(&text);
    return all;
}

static const char *text_of(const json_t *event, const char *member)
{
    const char *s = json_string_value(json_object_get(event, member));

    return (s != NULL) ? s : "";
}

/* The first span of a kind; NULL: none. */
static json_t *find(json_t *all, const char *kind)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *e = json_array_get(all, i);

        if (strcmp(text_of(json_object_get(e, "args"), "kind"), kind) == 0) return e;
    }
    return NULL;
}

static double number(const json_t *event, const char *member)
{
    const json_t *v = json_object_get(event, member);

    assert_non_null(v);
    return json_number_value(v);
}

static void test_off(void **state)
{
    (void)state;
    assert_true(ct_trace_start(NULL) == 0);
    ct_trace_begin(NULL, 1);
    ct_trace_stop(NULL);
    ct_trace_end(NULL, 0, CT_TRACE_UPDATE, NULL, NULL); /* nothing began */
    ct_trace_destroy(NULL);
}

static void test_window(void **state)
{
    ct_trace *t = make(2, 3, 10);
    int64_t lost = 0;

    (void)state;
    for (int64_t i = 0; i < 6; i++) {
        double start;

        ct_trace_begin(t, i);
        start = ct_trace_start(t);
        assert_int_equal(start > 0, (i == 2) || (i == 3));
        ct_trace_end(t, start, CT_TRACE_ITERATION, NULL, NULL);
    }
    assert_int_equal(ct_trace_count(t, &lost), 2);
    assert_int_equal(lost, 0);
    ct_trace_begin(t, 2);
    ct_trace_stop(t);
    assert_true(ct_trace_start(t) == 0);
    ct_trace_destroy(t);

    assert_int_equal(ct_trace_create(1, 1, true, &t), CT_OK); /* the second of the run */
    assert_int_equal(ct_trace_reserve(t, 1), CT_OK);
    ct_trace_begin(t, 100);
    assert_true(ct_trace_start(t) == 0);
    ct_trace_begin(t, 101);
    assert_true(ct_trace_start(t) > 0);
    ct_trace_destroy(t);
}

/* Spans of many threads are all kept, up to the buffer's end, and those beyond are counted. */
static void test_full(void **state)
{
    enum { ROOM = 100, EACH = 50, TEAM = 4 };
    ct_trace *t = make(0, 0, ROOM);
    int64_t lost = 0;
    int seen[TEAM * EACH] = { 0 }, n = 0;

    (void)state;
#pragma omp parallel for num_threads(TEAM)
    for (int i = 0; i < TEAM * EACH; i++) add(t, CT_TRACE_BUCKET, i, 1 + i, 2 + i);
    assert_int_equal(ct_trace_count(t, &lost), ROOM);
    assert_int_equal(lost, TEAM * EACH - ROOM);
    for (int i = 0; i < ROOM; i++) n += (seen[t->span[i].number]++ == 0);
    assert_int_equal(n, ROOM); /* none twice */
    ct_trace_destroy(t);
}

static void test_events(void **state)
{
    const ct_trace_clock clock = { .at_s = { 0, 100 }, .offset_s = { 0, 0 }, .error_s = 2e-6 };
    ct_trace *t = make(7, 7, 20);
    json_t *all, *e;
    int tid[2];

    (void)state;
    add(t, CT_TRACE_DECODE, 1, 12.5, 12.75);
    add(t, CT_TRACE_BUCKET, 1, 11.5, 12.75);
    add(t, CT_TRACE_BUCKET, 0, 11, 12);
    add(t, CT_TRACE_ENCODE, 0, 11, 11.25); /* starts with its bucket */
    add(t, CT_TRACE_FORWARD, 0, 10.5, 10.75);
    add(t, CT_TRACE_ITERATION, 0, 10.5, 13);
    all = write(t, &clock, 10);
    e = find(all, "forward");
    assert_non_null(e);
    assert_string_equal(text_of(e, "name"), "conv \"1\"");
    assert_string_equal(text_of(e, "ph"), "X");
    assert_true((number(e, "pid") == 3) && (number(e, "tid") == 0));
    assert_true((number(e, "ts") == 0.5e6) && (number(e, "dur") == 0.25e6));
    assert_true(number(json_object_get(e, "args"), "iteration") == 7);
    /* overlapping buckets are in rows of their own, with what was computed for them */
    for (size_t i = 0, k = 0; i < json_array_size(all); i++) {
        json_t *b = json_array_get(all, i);

        if (strcmp(text_of(b, "cat"), "bucket") != 0) continue;
        assert_true(k < 2);
        tid[k++] = (int)number(b, "tid");
        assert_string_equal(text_of(json_object_get(b, "args"), "algorithm"), "ring");
        assert_true(number(json_object_get(b, "args"), "bytes") == 4096);
    }
    assert_true((tid[0] == 1) && (tid[1] == 2));
    assert_true(number(find(all, "encode"), "tid") == 1);
    assert_true(number(find(all, "decode"), "tid") == 2);
    json_decref(all);
    ct_trace_destroy(t);
}

/* This rank's clock is 5 s ahead at first, and 5.1 s after 100 s. */
static void test_clock(void **state)
{
    const ct_trace_clock clock = { .at_s = { 1000, 1100 },
                                   .offset_s = { 5, 5.1 },
                                   .error_s = 1e-6 };
    ct_trace *t = make(7, 7, 20);
    json_t *all;

    (void)state;
    add(t, CT_TRACE_ITERATION, 0, 1050, 1051);
    all = write(t, &clock, 990);
    /* half a nanosecond is what is written, and a double has of a thousand seconds */
    assert_true(fabs(number(find(all, "iteration"), "ts") - 1e6 * (1050 - 5.05 - 990)) < 0.001);
    assert_true(fabs(number(find(all, "iteration"), "dur") - (1e6 - 1e3)) < 0.002);
    json_decref(all);
    ct_trace_destroy(t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),    cmocka_unit_test(test_window), cmocka_unit_test(test_full),
        cmocka_unit_test(test_events), cmocka_unit_test(test_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
