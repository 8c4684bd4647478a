/* ONNX files: any bytes become a net and weights, or an error. Nothing is written. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/onnx/onnx.h"
#include "framework/base/log.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ct_onnx_target to = { .sizes = "n:2,t:3" };
    char path[64];

    ct_log_set_sink(fuzz_drop, NULL);
    if (fd < 0) return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size) (void)ct_onnx_convert(path, &to);
    close(fd);
    return 0;
}
