/* Files of tokenizers and of GGUF: any bytes end in a tokenizer that encodes and decodes, or in a
 * message. Each input is taken for a tokenizer.json, a file of ranks or a GGUF, as its bytes say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static void use(const ct_tokenizer *t, const uint8_t *data, size_t size)
{
    ct_ids ids = { 0 };
    ct_text back = { 0 };

    if (ct_tokenizer_encode(t, (const char *)data, size, size % 2 == 0, "fuzz", &ids) == CT_OK) {
        if (ct_tokenizer_decode(t, ids.id, ids.n, &back) != CT_OK) abort();
        if ((size % 2 != 0) && ct_tokenizer_is_exact(t) && (size > 0) &&
            ((back.length != size) || (memcmp(back.text, data, size) != 0)))
            abort();
    }
    ct_ids_destroy(&ids);
    ct_text_destroy(&back);
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pattern[] = { NULL, "o200k", "gpt2", "cl100k", "llama3" };
    enum { N_PATTERN = sizeof(pattern) / sizeof(pattern[0]) };
    char path[64];
    ct_tokenizer *t = NULL;
    ct_status status;
    FILE *f;

    if (size > 65536) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(path, sizeof(path), "/tmp/fuzz_tokenizer.%d", (int)getpid());
    f = fopen(path, "wb");
    if ((f == NULL) || (fwrite(data, 1, size, f) != size) || (fclose(f) != 0)) abort();
    for (int i = 0; i < N_PATTERN; i++) { /* without one, and of a file of ranks with each */
        status = ct_tokenizer_open(path, pattern[i], &t);
        if ((status != CT_OK) && (status != CT_ERR_DATA) && (status != CT_ERR_CONFIG)) abort();
        if ((status != CT_OK) && (i > 0)) break;
        if (status != CT_OK) continue;
        use(t, data, size);
        ct_tokenizer_close(t);
        if (i == 0) break;
    }
    unlink(path);
    return 0;
}
