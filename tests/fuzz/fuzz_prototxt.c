/* libFuzzer's way into the prototxt reader: any bytes are taken for a net, and for a solver. Run by
 * `make fuzz`. */
#include "tests/fuzz/prototxt_once.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_log_set_sink(fuzz_drop, NULL);
    for (int is_solver = 0; is_solver < 2; is_solver++) {
        bool is_good;
        const char *wrong = prototxt_once((const char *)data, size, is_solver != 0, &is_good);

        if (wrong != NULL) {
            fprintf(stderr, "%s\n", wrong);
            abort();
        }
    }
    return 0;
}
