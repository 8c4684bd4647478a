/* libFuzzer's way into the prototxt reader: the first byte says whether the rest is a net or a
 * solver. Run by `make fuzz`. */
#include "tests/fuzz/prototxt_once.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *wrong;
    bool is_good;

    if (size == 0) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    wrong = prototxt_once((const char *)data + 1, size - 1, (data[0] & 1) != 0, &is_good);
    if (wrong != NULL) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
