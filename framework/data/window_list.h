/** @file window_list.h  WindowData: its files of windows, which of them are drawn, and what becomes
 * of one.
 *
 * Caffe's WindowData layer (Girshick's R-CNN): a window of an image is widened by its context, and
 * what lies beyond the image is left out. The rest is resized so that window and context would fill
 * crop x crop. The mean is taken off, and the values are scaled. Places beyond the image are 0.
 */
#ifndef CT_WINDOW_LIST_H
#define CT_WINDOW_LIST_H

#include "framework/data/image.h"
#include "framework/data/image_list.h"

typedef struct ct_window_rule {
    float fg_threshold,
        bg_threshold;          /* overlap: at least that, foreground; below that, background */
    float fg_fraction;         /* of a global batch                                       */
    int64_t crop, context_pad; /* context_pad < crop / 2                                  */
    bool square;               /* widened to a square first, instead of stretched         */
    bool mirror;               /* half of the windows                                     */
    bool cache;                /* the files stay in memory                                */
    float scale;
    const char *mean_file;   /* NULL: none */
    const float *mean_value; /* one, or one a channel */
    size_t n_mean_value;
} ct_window_rule;

/** Pixels x1 to x2 and y1 to y2, both included. */
typedef struct ct_box {
    int32_t x1, y1, x2, y2;
} ct_box;

/** Where a window comes from and goes to: `from` of the image is resized to height x width,
 * mirrored if the window is, and put at (top, left) of the crop; the rest stays 0. height or width
 * 0: nothing is left. */
typedef struct ct_warp {
    ct_box from;
    int64_t height, width, top, left;
} ct_warp;

/** The warp of a window of an image of height x width. Quiet: CT_ERR_DATA where it lies outside. */
ct_status ct_window_warp(const ct_window_rule *rule, const ct_box *box, int64_t height,
                         int64_t width, bool mirrored, ct_warp *warp_p, ct_why *why);

/* ---- Caffe's window files: images, each with its windows.
 *
 * Words between blanks and line ends. For each image: `# NUMBER`, from 0 on; its path; channels,
 * height, width; how many windows follow; of each, `class overlap x1 y1 x2 y2`, pixels from 0, both
 * corners within the window.
 */

typedef struct ct_window {
    int32_t image, label;
    ct_box box;
    int64_t line;
} ct_window;

typedef struct ct_windows {
    ct_window *window;
    int64_t n, capacity;
} ct_windows;

typedef struct ct_window_list {
    ct_image_list images;
    ct_windows back, fore; /* label 0; by class, above 0 */
    int64_t n_between;     /* windows whose overlap makes them neither */
    int channels;          /* 1 or 3, of all images */
} ct_window_list;

/** Reads a window file. CT_ERR_IO, CT_ERR_DATA (line, what is wrong), logged with who in front. */
ct_status ct_window_list_read(ct_window_list *list, const char *path, const char *root,
                              const ct_window_rule *rule, const char *who);
/** The same of a text of `size` bytes and a NUL, from malloc: taken over. `path` for messages. */
ct_status ct_window_list_parse(ct_window_list *list, char *text, size_t size, const char *path,
                               const char *root, const ct_window_rule *rule, const char *who);
void ct_window_list_release(ct_window_list *list);

#endif
