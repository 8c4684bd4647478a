/** @file voc.h  Annotations of images as PASCAL VOC's XML files: objects with names and boxes.
 *
 * Such a file is an <annotation> with <filename>, <size> and one <object> for each thing that can
 * be seen: <name>, <difficult> and <bndbox>. Corners count pixels from the image's upper left
 * corner; whether they begin at 0 or 1 is not said, and Caffe-SSD takes them as they stand. Files
 * come from anywhere, so nothing in one is trusted.
 */
#ifndef CT_VOC_H
#define CT_VOC_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

/** One thing in the image. */
typedef struct ct_voc_object {
    char *name;
    double corner[4]; /* xmin ymin xmax ymax, in pixels */
    bool difficult;
    int64_t line; /* of <object> */
} ct_voc_object;

/** What a file says, in its order; zero-initialise. Names and texts are without blanks around
 *  them. */
typedef struct ct_voc {
    char *filename;       /* of the image; NULL: it names none */
    double height, width; /* that it says of the image; 0: nothing */
    ct_voc_object *object;
    int64_t n;
} ct_voc;

/** Reads a file. Parts of objects and whatever else it says are passed over. CT_ERR_IO,
 *  CT_ERR_DATA with file and line, logged. */
ct_status ct_voc_read(const char *path, ct_voc *v);
/** The same of a text of n bytes and a NUL, which is changed. path: for messages. */
ct_status ct_voc_parse(char *text, size_t n, const char *path, ct_voc *v);
/** Frees what v holds, and empties it. */
void ct_voc_release(ct_voc *v);

#endif
