/* Reads and writes beside the caller: what was written is read again, whatever moves it, and each
 * error is that of its request. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/async_io.h"

/* More at once than a ring of answers has places. */
enum { MANY = 300, BYTES = 4096 + 24 };

static const char *const forms[] = { "threads", "io_uring" };
enum { N_FORM = sizeof(forms) / sizeof(forms[0]) };

/* NULL: this kernel does not have it. */
static ct_io *open_form(int form)
{
    ct_io *io = NULL;
    ct_status status = ct_io_open_as(forms[form], &io);

    if (status == CT_UNSUPPORTED) {
        print_message("%s: not to be had here\n", forms[form]);
        assert_int_not_equal(form, 0);
        return NULL;
    }
    assert_int_equal(status, CT_OK);
    assert_string_equal(ct_io_name(io), forms[form]);
    return io;
}

static int open_file(void)
{
    char name[] = "/tmp/ct_async_io_XXXXXX";
    int fd = mkstemp(name);

    assert_true(fd >= 0);
    assert_int_equal(unlink(name), 0);
    return fd;
}

static unsigned char byte_of(int64_t at)
{
    return (unsigned char)((at * 37 + at / 251) & 255);
}

static void run_all(ct_io *io, ct_io_request *r, int n)
{
    for (int i = 0; i < n; i++) ct_io_submit(io, &r[i]);
    if (n > 0)
        while (!ct_io_done(io, &r[0])) sched_yield();
    for (int i = n - 1; i >= 0; i--) ct_io_wait(io, &r[i]);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r[i].error, 0);
        assert_int_equal(r[i].moved, r[i].bytes);
    }
}

static void test_all_comes_back(void **state)
{
    unsigned char *data = malloc((size_t)MANY * BYTES), *back = calloc(MANY, BYTES);
    ct_io_request r[MANY];

    (void)state;
    assert_true((data != NULL) && (back != NULL));
    for (int64_t i = 0; i < (int64_t)MANY * BYTES; i++) data[i] = byte_of(i);
    for (int f = 0; f < N_FORM; f++) {
        ct_io *io = open_form(f);
        int fd = open_file();

        for (int i = 0; i < MANY; i++) /* the last first */
            r[i] = (ct_io_request){ .fd = fd,
                                    .write = true,
                                    .data = data + (int64_t)(MANY - 1 - i) * BYTES,
                                    .at = (int64_t)(MANY - 1 - i) * BYTES,
                                    .bytes = BYTES };
        if (io != NULL) run_all(io, r, MANY);
        for (int i = 0; i < MANY; i++)
            r[i] = (ct_io_request){ .fd = fd,
                                    .data = back + (int64_t)i * BYTES,
                                    .at = (int64_t)i * BYTES,
                                    .bytes = BYTES };
        if (io != NULL) run_all(io, r, MANY);
        if (io != NULL) assert_memory_equal(data, back, (size_t)MANY * BYTES);
        memset(back, 0, (size_t)MANY * BYTES);
        ct_io_close(io);
        close(fd);
    }
    free(data);
    free(back);
}

static void test_errors_are_of_their_request(void **state)
{
    char data[64] = "", other[64] = "";

    (void)state;
    for (int f = 0; f < N_FORM; f++) {
        ct_io *io = open_form(f);
        int fd = open_file(), null = open("/dev/null", O_RDONLY);
        ct_io_request good = { .fd = fd, .write = true, .data = data, .bytes = sizeof(data) };
        ct_io_request end = { .fd = fd, .data = other, .at = 40, .bytes = 60 };
        ct_io_request closed = { .fd = null, .write = true, .data = other, .bytes = 1 };

        if (io != NULL) {
            run_all(io, &good, 1);
            ct_io_submit(io, &closed);
            ct_io_submit(io, &end);
            good.write = false;
            run_all(io, &good, 1);
            ct_io_wait(io, &closed);
            ct_io_wait(io, &end);
            assert_int_equal(closed.error, EBADF);
            assert_int_equal(end.error, -1); /* the file ends before */
            assert_int_equal(end.moved, 24);
        }
        ct_io_close(io);
        close(fd);
        close(null);
    }
}

static void test_the_best_there_is(void **state)
{
    ct_io *io = NULL;

    (void)state;
    assert_int_equal(ct_io_open_as("pigeons", &io), CT_UNSUPPORTED);
    assert_int_equal(ct_io_open(&io), CT_OK);
    ct_io_close(io);
    ct_io_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_comes_back),
        cmocka_unit_test(test_errors_are_of_their_request),
        cmocka_unit_test(test_the_best_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
