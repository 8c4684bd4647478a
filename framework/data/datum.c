#include "framework/data/datum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/augment/boxes.h"
#include "framework/proto/cortado.pb-c.h"

void ct_datum_room_release(ct_datum_buffer *room)
{
    ct_sample_buffer_release(&room->values);
    ct_sample_buffer_release(&room->decoded);
}

static ct_status take_encoded(const Ct__Datum *d, ct_color color, ct_datum_buffer *room,
                              ct_sample *sample, ct_why *why)
{
    ct_image image;

    CT_TRY(ct_image_decode(d->data.data, d->data.len, color, &room->decoded, &image, why));
    if (ct_sample_buffer_reserve(&room->values,
                                 (size_t)(image.height * image.width * image.channels)) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory");
    }
    ct_image_to_planes(&image, room->values.data);
    sample->u8 = room->values.data;
    sample->f32 = NULL;
    sample->shape = (ct_shape){ 3, { image.channels, image.height, image.width } };
    return CT_OK;
}

static ct_status take_plain(const Ct__Datum *d, ct_datum_buffer *room, ct_sample *sample,
                            ct_why *why)
{
    int64_t c = d->channels, h = d->height, w = d->width, n;
    size_t bytes;

    if ((c <= 0) || (h <= 0) || (w <= 0) || (h > CT_MAX_IMAGE_BYTES / w) ||
        (c > CT_MAX_IMAGE_BYTES / (h * w))) {
        return CT_WHY(why, CT_ERR_DATA, "impossible shape %lld x %lld x %lld", (long long)c,
                      (long long)h, (long long)w);
    }
    n = c * h * w;
    if ((d->data.len > 0) ? (d->data.len != (size_t)n) : (d->n_float_data != (size_t)n)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "shape %lld x %lld x %lld needs %lld values, the record has %zu bytes and "
                      "%zu floats",
                      (long long)c, (long long)h, (long long)w, (long long)n, d->data.len,
                      d->n_float_data);
    }
    bytes = (d->data.len > 0) ? (size_t)n : (size_t)n * sizeof(float);
    if (ct_sample_buffer_reserve(&room->values, bytes) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory");
    }
    memcpy(room->values.data, (d->data.len > 0) ? (void *)d->data.data : (void *)d->float_data,
           bytes);
    sample->u8 = (d->data.len > 0) ? room->values.data : NULL;
    sample->f32 = (d->data.len > 0) ? NULL : (const float *)(void *)room->values.data;
    sample->shape = (ct_shape){ 3, { c, h, w } };
    return CT_OK;
}

static ct_status take(const Ct__Datum *d, ct_color color, ct_datum_buffer *room, ct_sample *sample,
                      ct_why *why)
{
    return d->encoded ? take_encoded(d, color, room, sample, why)
                      : take_plain(d, room, sample, why);
}

ct_status ct_datum_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                          ct_sample *sample, float *label_p, ct_why *why)
{
    Ct__Datum *d = ct__datum__unpack(NULL, size, data);
    ct_status status;

    if (d == NULL)
        return CT_WHY(why, CT_ERR_DATA,
                      "not a Datum (%zu bytes); images with boxes are for AnnotatedData layers",
                      size);
    if ((label_p != NULL) && !d->has_label) {
        status = CT_WHY(why, CT_ERR_DATA, "the record has no label");
    } else {
        status = take(d, color, room, sample, why);
    }
    if ((status == CT_OK) && (label_p != NULL)) *label_p = (float)d->label;
    ct__datum__free_unpacked(d, NULL);
    return status;
}

/* ---- Caffe-SSD's AnnotatedDatum */

static ct_status take_box(const Ct__AnnotationGroup *g, const Ct__Annotation *a, int64_t at,
                          float *row, ct_why *why)
{
    const Ct__NormalizedBBox *b = a->bbox;

    if (b == NULL) return CT_WHY(why, CT_ERR_DATA, "annotation %lld has no bbox", (long long)at);
    if (!isfinite(b->xmin) || !isfinite(b->ymin) || !isfinite(b->xmax) || !isfinite(b->ymax))
        return CT_WHY(why, CT_ERR_DATA, "the box of annotation %lld is %g %g %g %g", (long long)at,
                      (double)b->xmin, (double)b->ymin, (double)b->xmax, (double)b->ymax);
    if ((g->group_label < 0) || (g->group_label > CT_MAX_CLASS))
        return CT_WHY(why, CT_ERR_DATA, "annotation %lld is of class %d, must be 0 to %d",
                      (long long)at, g->group_label, CT_MAX_CLASS);
    row[0] = 0;
    row[1] = (float)g->group_label;
    row[2] = (float)a->instance_id;
    row[3] = b->xmin;
    row[4] = b->ymin;
    row[5] = b->xmax;
    row[6] = b->ymax;
    row[7] = b->difficult ? 1.0f : 0.0f;
    return CT_OK;
}

static ct_status take_boxes(const Ct__AnnotatedDatum *a, int64_t room, float *row, ct_why *why)
{
    int64_t n = 0;

    for (size_t i = 0; i < a->n_annotation_group; i++) {
        const Ct__AnnotationGroup *g = a->annotation_group[i];

        if (!g->has_group_label)
            return CT_WHY(why, CT_ERR_DATA, "annotation_group %zu has no group_label", i);
        for (size_t k = 0; k < g->n_annotation; k++, n++) {
            if (n == room)
                return CT_WHY(why, CT_ERR_DATA,
                              "it has more than %lld boxes: raise annotated_data_param.max_boxes",
                              (long long)room);
            CT_TRY(take_box(g, g->annotation[k], n, row + n * CT_BOX_ROW, why));
        }
    }
    for (int64_t i = n * CT_BOX_ROW; i < room * CT_BOX_ROW; i++) row[i] = -1;
    return CT_OK;
}

bool ct_is_annotated(const void *data, size_t size)
{
    Ct__AnnotatedDatum *a = ct__annotated_datum__unpack(NULL, size, data);
    bool is = (a != NULL) && (a->datum != NULL);

    if (a != NULL) ct__annotated_datum__free_unpacked(a, NULL);
    return is;
}

ct_status ct_annotated_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                              ct_sample *sample, int64_t boxes, float *row, ct_why *why)
{
    Ct__AnnotatedDatum *a = ct__annotated_datum__unpack(NULL, size, data);
    ct_status status;

    if ((a == NULL) || (a->datum == NULL)) {
        status = CT_WHY(why, CT_ERR_DATA,
                        "not an AnnotatedDatum (%zu bytes): sets without boxes are for Data layers",
                        size);
    } else {
        status = take(a->datum, color, room, sample, why);
        if ((status == CT_OK) && (row != NULL)) status = take_boxes(a, boxes, row, why);
        sample->boxes = (row != NULL) ? boxes : 0;
    }
    if (a != NULL) ct__annotated_datum__free_unpacked(a, NULL);
    return status;
}

/* ---- records for writing */

static Ct__Datum datum_of(const ct_record *r)
{
    Ct__Datum d = CT__DATUM__INIT;

    d.has_channels = d.has_height = d.has_width = d.has_label = 1;
    d.channels = r->channels;
    d.height = (int32_t)r->height;
    d.width = (int32_t)r->width;
    d.label = r->label;
    d.has_data = 1;
    d.data.data = (uint8_t *)(uintptr_t)r->values; /* read only by pack */
    d.data.len = r->n;
    d.has_encoded = r->encoded;
    d.encoded = r->encoded;
    return d;
}

/* Messages of n boxes, each a group of its own at most. */
typedef struct annotations {
    Ct__AnnotationGroup *group, **groups;
    Ct__Annotation *box, **boxes;
    Ct__NormalizedBBox *corner;
} annotations;

static void set_box(annotations *m, int64_t i, const float *row)
{
    Ct__NormalizedBBox *b = &m->corner[i];

    *b = (Ct__NormalizedBBox)CT__NORMALIZED_BBOX__INIT;
    b->has_xmin = b->has_ymin = b->has_xmax = b->has_ymax = b->has_difficult = 1;
    b->xmin = row[3];
    b->ymin = row[4];
    b->xmax = row[5];
    b->ymax = row[6];
    b->difficult = row[7] != 0;
    m->box[i] = (Ct__Annotation)CT__ANNOTATION__INIT;
    m->box[i].has_instance_id = 1;
    m->box[i].bbox = b;
}

/* Boxes of one class stand together, in the order in which classes come first. */
static size_t group_boxes(const ct_record *r, annotations *m)
{
    size_t n_group = 0, placed = 0;

    for (int64_t i = 0; i < r->n_box; i++) {
        const float *row = r->box + i * CT_BOX_ROW;
        Ct__AnnotationGroup *g = &m->group[n_group];
        bool known = false;

        for (size_t k = 0; k < n_group; k++)
            known = known || ((float)m->group[k].group_label == row[1]);
        if (known) continue;
        *g = (Ct__AnnotationGroup)CT__ANNOTATION_GROUP__INIT;
        g->has_group_label = 1;
        g->group_label = (int32_t)row[1];
        g->annotation = m->boxes + placed;
        for (int64_t k = i; k < r->n_box; k++) {
            if (r->box[k * CT_BOX_ROW + 1] != row[1]) continue;
            set_box(m, k, r->box + k * CT_BOX_ROW);
            m->box[k].instance_id = (int32_t)g->n_annotation++;
            m->boxes[placed++] = &m->box[k];
        }
        m->groups[n_group++] = g;
    }
    return n_group;
}

static ct_status pack(const ProtobufCMessage *message, ct_sample_buffer *room, size_t *size_p)
{
    CT_TRY(ct_sample_buffer_reserve(room, protobuf_c_message_get_packed_size(message)));
    *size_p = protobuf_c_message_pack(message, room->data);
    return CT_OK;
}

static ct_status encode_annotated(const ct_record *r, Ct__Datum *d, ct_sample_buffer *room,
                                  size_t *size_p)
{
    Ct__AnnotatedDatum a = CT__ANNOTATED_DATUM__INIT;
    size_t n = (size_t)r->n_box + 1;
    annotations m = { calloc(n, sizeof(*m.group)), calloc(n, sizeof(*m.groups)),
                      calloc(n, sizeof(*m.box)), calloc(n, sizeof(*m.boxes)),
                      calloc(n, sizeof(*m.corner)) };
    ct_status status;

    if ((m.group == NULL) || (m.groups == NULL) || (m.box == NULL) || (m.boxes == NULL) ||
        (m.corner == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %lld boxes", (long long)r->n_box);
    } else {
        a.datum = d;
        a.has_type = 1;
        a.n_annotation_group = group_boxes(r, &m);
        a.annotation_group = m.groups;
        status = pack(&a.base, room, size_p);
    }
    free(m.group);
    free(m.groups);
    free(m.box);
    free(m.boxes);
    free(m.corner);
    return status;
}

ct_status ct_record_encode(const ct_record *record, ct_sample_buffer *room, size_t *size_p)
{
    Ct__Datum d = datum_of(record);

    if (record->box != NULL) return encode_annotated(record, &d, room, size_p);
    return pack(&d.base, room, size_p);
}
