/** @file image_list.h  Lists of image files, "path label" a line or of folders, and how many
 * samples each label has. */
#ifndef CT_IMAGE_LIST_H
#define CT_IMAGE_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/text.h"
#include "framework/data/class_names.h"
#include "framework/data/image.h"

typedef struct ct_image_entry {
    size_t path; /* offset into text */
    int64_t line;
    int label;
} ct_image_entry;

typedef struct ct_image_list {
    char *text; /* the paths, NUL-terminated */
    char *root;
    ct_image_entry *entry;
    int64_t count;
} ct_image_list;

/** Room of one thread. */
typedef struct ct_image_buffer {
    ct_sample_buffer file, decoded, resized, planes;
} ct_image_buffer;

/** Reads a list. The label is what follows the last blank; paths may hold blanks; empty lines do
 *  not count. CT_ERR_IO, CT_ERR_DATA (which line, what is wrong), logged with who in front. */
ct_status ct_image_list_read(ct_image_list *list, const char *path, const char *root,
                             const char *who);
/** The same of a text of `size` bytes and a NUL, from malloc: taken over. `path` for messages. */
ct_status ct_image_list_parse(ct_image_list *list, char *text, size_t size, const char *path,
                              const char *root, const char *who);
/** The list of a folder that has one for each class, in the order of the bytes of their names:
 *  every file of an image's suffix in it, at any depth. Entries stand by class, then by path. Names
 *  that begin with a dot do not count; other files are told and left out. CT_ERR_IO: a folder that
 *  cannot be read. CT_ERR_DATA: fewer than two classes, one without images, folders nested too
 *  deep. Logged. Both results are the caller's to release. */
ct_status ct_image_folder_read(const char *folder, ct_image_list *list, ct_class_names *names);
/** Appends the paths of such files of a folder, at any depth, in the order of their bytes, each
 * with its NUL. CT_ERR_IO, CT_ERR_DATA. */
ct_status ct_image_files_add(const char *folder, ct_text *paths);
void ct_image_list_release(ct_image_list *list);
/** The path as listed, without the root. */
const char *ct_image_list_path(const ct_image_list *list, int64_t i);

/** Reads the file of entry i into room->file; *size_p bytes. Quiet. CT_ERR_IO. */
ct_status ct_image_list_bytes(const ct_image_list *list, int64_t i, ct_image_buffer *room,
                              size_t *size_p, ct_why *why);
/** Reads, decodes and (height > 0) resizes entry i; pixels in room. Quiet: errors fill why. */
ct_status ct_image_load(const ct_image_list *list, int64_t i, ct_color color, int64_t height,
                        int64_t width, ct_image_buffer *room, ct_image *image_p, ct_why *why);
void ct_image_room_release(ct_image_buffer *room);

/* ---- labels of a data set: what its maker should see */

/** Zero-initialise. */
typedef struct ct_label_count {
    int64_t *n; /* of labels 0 to size - 1 */
    int64_t size;
    int64_t negative, large; /* labels below 0; too large to be classes, or no memory for them */
    int64_t samples;
} ct_label_count;

void ct_label_count_add(ct_label_count *c, int64_t label);
/** Logs how many classes there are and how many samples they have. warn: warns, with the counts, of
 *  labels below 0, and of classes below the largest that have no sample. Also warns where the
 *  largest class has more than ten times the samples of the smallest. */
void ct_label_count_report(const ct_label_count *c, const char *of, bool warn);
void ct_label_count_release(ct_label_count *c);

#endif
