/* Lists of images and window files, and the geometry of windows: any bytes end in a list or in
 * CT_ERR_DATA, and any window that fits its image in a crop that is not left. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/data/image_list.h"
#include "framework/data/window_list.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static char *copy(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

static void warp_all(const ct_windows *w, const ct_window_rule *rule, int64_t n_image)
{
    for (int64_t i = 0; i < w->n; i++) {
        ct_warp warp;
        ct_why why;

        if ((w->window[i].image < 0) || (w->window[i].image >= n_image)) abort();
        if (ct_window_warp(rule, &w->window[i].box, 40, 60, i % 2 != 0, &warp, &why) != CT_OK)
            continue;
        if ((warp.from.x1 < 0) || (warp.from.y1 < 0) || (warp.from.x2 >= 60) ||
            (warp.from.y2 >= 40) || (warp.from.x1 > warp.from.x2) || (warp.from.y1 > warp.from.y2))
            abort();
        if ((warp.top < 0) || (warp.left < 0)) abort();
        if ((warp.height > 0) && (warp.top + warp.height > rule->crop)) abort();
        if ((warp.width > 0) && (warp.left + warp.width > rule->crop)) abort();
    }
}

static void windows(const uint8_t *data, size_t size)
{
    ct_window_rule rule = { .fg_threshold = 0.5f, .bg_threshold = 0.4f, .crop = 16 };
    ct_window_list list;
    ct_status status =
        ct_window_list_parse(&list, copy(data, size), size, "fuzz", "", &rule, "fuzz");

    if ((status != CT_OK) && (status != CT_ERR_DATA)) abort();
    if (status != CT_OK) return;
    for (int i = 0; i < 4; i++) {
        rule.context_pad = i * 2;
        rule.square = i % 2 != 0;
        warp_all(&list.back, &rule, list.images.count);
        warp_all(&list.fore, &rule, list.images.count);
    }
    ct_window_list_release(&list);
}

static void images(const uint8_t *data, size_t size)
{
    ct_image_list list;
    ct_label_count count = { 0 };
    ct_status status = ct_image_list_parse(&list, copy(data, size), size, "fuzz", "", "fuzz");

    if ((status != CT_OK) && (status != CT_ERR_DATA)) abort();
    if (status != CT_OK) return;
    for (int64_t i = 0; i < list.count; i++) {
        if (ct_image_list_path(&list, i)[0] == '\0') abort();
        if ((list.entry[i].line < 1) || (i > 0 && list.entry[i].line <= list.entry[i - 1].line))
            abort();
        ct_label_count_add(&count, list.entry[i].label);
    }
    ct_label_count_report(&count, "fuzz", true);
    ct_label_count_release(&count);
    ct_image_list_release(&list);
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    windows(data, size);
    images(data, size);
    (void)ct_exif_orientation(data, size);
    return 0;
}
