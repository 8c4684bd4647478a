/* A list of image files: lines "path label". */
#include "framework/data/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/data/image_list.h"

typedef struct images_state {
    ct_image_list list;
    ct_color color;
    int64_t height, width; /* 0: as they are */
} images_state;

typedef struct images_local {
    ct_image_buffer room;
} images_local;

static void images_name(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const images_state *s = r->state;

    snprintf(text, size, "%s", ct_image_list_path(&s->list, id));
}

static void images_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const images_state *s = r->state;

    snprintf(text, size, "%s (line %lld of %s)", ct_image_list_path(&s->list, id),
             (long long)s->list.entry[id].line, r->source);
}

static ct_status images_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const images_state *s = r->state;
    images_local *l = local;
    ct_image image;
    ct_why why;
    ct_status status =
        ct_image_load(&s->list, id, s->color, s->height, s->width, &l->room, &image, &why);

    if (status != CT_OK) return ct_reader_bad(r, id, sample, status, &why);
    CT_TRY(ct_sample_buffer_reserve(&l->room.planes,
                                    (size_t)(image.height * image.width * image.channels)));
    ct_image_to_planes(&image, l->room.planes.data);
    sample->u8 = l->room.planes.data;
    sample->f32 = NULL;
    sample->shape = (ct_shape){ 3, { image.channels, image.height, image.width } };
    if (r->n_field > 1) sample->rest[0] = (float)s->list.entry[id].label;
    return CT_OK;
}

/* Classes without samples are seen here, before training. */
static void log_labels(const ct_reader *r)
{
    const images_state *s = r->state;
    ct_label_count c = { 0 };

    for (int64_t i = 0; i < s->list.count; i++) ct_label_count_add(&c, s->list.entry[i].label);
    ct_label_count_report(&c, r->source, false);
    ct_label_count_release(&c);
}

static ct_status images_open(ct_reader *r, const ct_reader_options *o)
{
    images_state *s = r->state;

    if (o->n_field > 2) {
        return CT_READER_FAIL(r, CT_ERR_CONFIG, "images give data and label, not %d tops",
                              o->n_field);
    }
    if (access(r->source, R_OK) != 0)
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", r->source,
                              ct_path_why(r->source, errno).text);
    CT_TRY(ct_image_list_read(&s->list, r->source, o->root_folder, r->who));
    r->count = s->list.count;
    r->n_field = o->n_field;
    s->color = o->color;
    s->height = o->new_height;
    s->width = o->new_width;
    if (r->count == 0) return CT_READER_FAIL(r, CT_ERR_DATA, "%s lists no image", r->source);
    if (o->n_field > 1) log_labels(r);
    return CT_OK;
}

static void images_close(ct_reader *r)
{
    images_state *s = r->state;

    ct_image_list_release(&s->list);
}

static void images_local_release(void *local)
{
    images_local *l = local;

    ct_image_room_release(&l->room);
}

const ct_reader_ops ct_reader_images = {
    .name = "images",
    .open = images_open,
    .close = images_close,
    .local_size = sizeof(images_local),
    .local_release = images_local_release,
    .read = images_read,
    .describe = images_describe,
    .name_of = images_name,
    .state_size = sizeof(images_state),
    .probes = true,
};
