#include "cli/serve/serve_options.h"

#include <stdio.h>
#include <string.h>

#include "cli/generate/word_net.h"
#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

/* Fields that say what becomes of pictures are no options. */
static bool is_option(const ProtobufCFieldDescriptor *f)
{
    return (f->type != PROTOBUF_C_TYPE_MESSAGE) && (strncmp(f->name, "new_", 4) != 0);
}

static ct_status take_field(ct_options *o, const Ct__ServeParameter *s, const ct_source_map *map,
                            const ProtobufCFieldDescriptor *f)
{
    const void *value = ct_field_at(&s->base, f, 0);
    char number[40], place[480];
    const char *text = number;

    if (f->type == PROTOBUF_C_TYPE_STRING)
        text = *(char *const *)value;
    else if (f->type == PROTOBUF_C_TYPE_DOUBLE)
        snprintf(number, sizeof(number), "%.17g", *(const double *)value);
    else
        snprintf(number, sizeof(number), "%u", (unsigned)*(const uint32_t *)value);
    snprintf(place, sizeof(place), "%s: serve.%s",
             ct_source_map_where(map, s, CT_CONST_MEMBER(char, s, f->offset), "").text, f->name);
    return ct_options_take(o, "serve", f->name, text, place);
}

static ct_status take_fields(ct_options *o, const Ct__ServeParameter *s, const ct_source_map *map)
{
    const ProtobufCMessageDescriptor *type = s->base.descriptor;

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];

        if (is_option(f) && (ct_field_count(&s->base, f) > 0)) CT_TRY(take_field(o, s, map, f));
    }
    return CT_OK;
}

/* What clients call it where `serve` says nothing. */
static ct_status take_name(ct_options *o, const Ct__NetParameter *net, const ct_source_map *map)
{
    char place[480];

    if ((net->name == NULL) || (net->name[0] == '\0')) return CT_OK;
    snprintf(place, sizeof(place), "%s: name", ct_source_map_where(map, net, &net->name, "").text);
    return ct_options_take(o, "serve", "name", net->name, place);
}

/* Requests run side by side in one pass; such a net reads one text, word by word. */
static ct_status refuse_words(const Ct__NetParameter *net, const char *model)
{
    if (!ct_is_word_net(net)) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "%s: a net with LSTM or RNN layers reads one text after the other, word by word, "
        "and requests run side by side: such a net is not served; cortado generate and "
        "cortado predict go on with texts by it",
        model);
}

ct_status ct_serve_options_take(ct_options *o, const char *model)
{
    Ct__NetParameter *net = NULL;
    ct_source_map *map;
    ct_status status;

    CT_TRY(ct_source_map_create(&map));
    status = ct_net_read(model, map, &net);
    if (status == CT_OK) status = refuse_words(net, model);
    if (status == CT_OK) status = ct_net_find_served(net, model);
    if ((status == CT_OK) && (net->serve != NULL)) status = take_fields(o, net->serve, map);
    if (status == CT_OK) status = take_name(o, net, map);
    if (net != NULL) ct__net_parameter__free_unpacked(net, NULL);
    ct_source_map_destroy(map);
    return status;
}
