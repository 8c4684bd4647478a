/* Messages of binary files: what small files may not ask for is refused, and all else is what
 * protobuf-c makes of it. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/message.h"

typedef struct wire {
    uint8_t *at; /* the last bytes of room */
    size_t n, room;
} wire;

static void front(wire *w, const uint8_t *bytes, size_t n)
{
    assert_true(w->n + n <= w->room);
    w->n += n;
    w->at -= n;
    memcpy(w->at, bytes, n);
}

/* Puts a field of that number around all that is there. */
static void wrap(wire *w, unsigned number)
{
    uint8_t head[20];
    size_t n = 0;

    for (uint64_t v = (number << 3) | 2; n == 0 || v > 0; v >>= 7)
        head[n++] = (uint8_t)((v & 127) | ((v > 127) ? 128 : 0));
    for (uint64_t v = w->n, first = 1; first || v > 0; v >>= 7, first = 0)
        head[n++] = (uint8_t)((v & 127) | ((v > 127) ? 128 : 0));
    front(w, head, n);
}

static wire start(size_t room)
{
    uint8_t *bytes = calloc(room, 1);

    assert_non_null(bytes);
    return (wire){ .at = bytes + room, .room = room };
}

static void end(wire *w)
{
    free(w->at + w->n - w->room);
}

static void unpacks(const wire *w, const char *why)
{
    const char *said = NULL;
    ProtobufCMessage *m = ct_message_unpack(&ct__net_parameter__descriptor, w->at, w->n, &said);

    if (why == NULL) {
        assert_non_null(m);
        protobuf_c_message_free_unpacked(m, NULL);
    } else {
        assert_null(m);
        assert_string_equal(said, why);
    }
}

/* count, bottom and top of a repeat, which must be there */
static const uint8_t of_repeat[] = { 0x08, 1, 0x1A, 1, 'a', 0x22, 1, 'b' };

/* A net in which that many repeats are nested. */
static void nested(int n, const char *why)
{
    wire w = start((size_t)n * 32 + 32);

    for (int i = 0; i < n; i++) {
        front(&w, of_repeat, sizeof(of_repeat));
        wrap(&w, (i == n - 1) ? 20002 : 5);
    }
    unpacks(&w, why);
    end(&w);
}

static void test_nested(void **state)
{
    (void)state;
    nested(1, NULL);
    nested(99, NULL);
    nested(100, "messages are nested more than 100 deep");
    nested(100000, "messages are nested more than 100 deep");
}

static void test_long_string(void **state)
{
    size_t most = (size_t)1 << 24;

    (void)state;
    for (size_t more = 0; more < 2; more++) {
        wire w = start(most + 32);

        w.n = most + more;
        w.at -= w.n;
        memset(w.at, 'a', w.n);
        wrap(&w, 1); /* the net's name */
        unpacks(&w, (more == 0) ? NULL : "a string is longer than 16 MiB");
        end(&w);
    }
}

/* Empty layers: two bytes each, and a struct. */
static void test_many_messages(void **state)
{
    int n = (1 << 28) / (int)sizeof(Ct__LayerParameter) + 1;
    wire w = start((size_t)n * 3);
    static const uint8_t layer[] = { 0xA2, 0x06, 0 };

    (void)state;
    for (int i = 0; i < n; i++) front(&w, layer, sizeof(layer));
    unpacks(&w, "its messages would take more than 256 MiB");
    w.at += 3 * (size_t)(n - 1000);
    w.n -= 3 * (size_t)(n - 1000);
    unpacks(&w, NULL);
    w.at -= 3 * (size_t)(n - 1000);
    w.n += 3 * (size_t)(n - 1000);
    end(&w);
}

/* Whatever bytes there are, the same comes out as without a look at them before. */
static void test_as_protobuf(void **state)
{
    static const uint8_t good[] = { 0x0A, 1,    'n',  0x20, 2,   0xA2, 0x06, 14,   0x0A, 2,
                                    'i',  'p',  0x12, 1,    'T', 0x3A, 5,    0x2A, 3,    1,
                                    2,    0x80, 0x3D, 1,    2,   3,    4,    0x28, 1 };
    uint64_t x = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[sizeof(good)];
        size_t n = sizeof(good) - (size_t)(i % 3 == 0) * (x % sizeof(good));
        ProtobufCMessage *want, *got;
        const char *why = NULL;

        memcpy(bytes, good, sizeof(good));
        for (int k = 0; k < i % 4; k++) {
            x = ct_rng_key(x, (uint64_t)i, (uint64_t)k);
            bytes[x % sizeof(good)] = (uint8_t)(x >> 32);
        }
        want = protobuf_c_message_unpack(&ct__net_parameter__descriptor, NULL, n, bytes);
        got = ct_message_unpack(&ct__net_parameter__descriptor, bytes, n, &why);
        assert_int_equal(got == NULL, want == NULL);
        if (got == NULL) {
            assert_string_equal(why, "truncated, or of another kind");
            continue;
        }
        assert_int_equal(protobuf_c_message_get_packed_size(got),
                         protobuf_c_message_get_packed_size(want));
        protobuf_c_message_free_unpacked(got, NULL);
        protobuf_c_message_free_unpacked(want, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_long_string),
        cmocka_unit_test(test_many_messages),
        cmocka_unit_test(test_as_protobuf),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
