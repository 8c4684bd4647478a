/* Blocks: aligned, zeroed, and as long as was asked for, which AddressSanitizer watches. */
#include "tests/test.h"

#include <stdint.h>

#include "framework/base/memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static const size_t sizes[] = { 0, 1, 63, 64, 65, 4097, (8 << 20) - 1, 8 << 20, (8 << 20) + 3 };

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        unsigned char *block = ct_mem_acquire(sizes[i]), any = 0;

        assert_non_null(block);
        assert_int_equal((uintptr_t)block % CT_ALIGN, 0);
        for (size_t k = 0; k < sizes[i]; ++k) any |= block[k];
        assert_int_equal(any, 0);
        ct_mem_release(block);
    }
}

static void none_is_longer_than_memory(void **state)
{
    (void)state;
    assert_null(ct_mem_acquire(SIZE_MAX));
    assert_null(ct_mem_acquire(SIZE_MAX - CT_ALIGN + 2));
}

/* The padding to a cache line hides nothing: the first byte past the end is watched. */
static void the_end_is_watched(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        char *block = ct_mem_acquire(sizes[i]);

        assert_non_null(block);
        assert_int_equal(__asan_address_is_poisoned(block + sizes[i] - 1), 0);
        assert_int_equal(__asan_address_is_poisoned(block + sizes[i]), 1);
        ct_mem_release(block);
    }
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(none_is_longer_than_memory),
        cmocka_unit_test(the_end_is_watched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
