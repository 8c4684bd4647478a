/** @file window_list.h  Caffe's window files: images, each with its windows; private to
 * framework/data.
 *
 * Words between blanks and line ends. For each image: `# NUMBER`, from 0 on; its path; channels,
 * height, width; how many windows follow; of each, `class overlap x1 y1 x2 y2`, pixels from 0, both
 * corners within the window.
 */
#ifndef CT_WINDOW_LIST_H
#define CT_WINDOW_LIST_H

#include "framework/data/image_list.h"
#include "framework/data/window_rule.h"

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
