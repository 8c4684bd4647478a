#include "cli/convert/convert_net.h"

#include <stdlib.h>
#include <string.h>

#include "framework/data/writer.h"
#include "framework/proto/upgrade.h"

static ct_status check_target(const ct_convert_options *o)
{
    CT_TRY(ct_path_check_free(o->to, o->force));
    return ct_file_check_writable(o->to);
}

/* Text has no control characters but those that end lines and set tabs; a message has one within
 * its first few tags and lengths. */
static bool is_binary(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)data[i];

        if ((c < 0x20) && ((c < '\t') || (c > '\r'))) return true;
    }
    return false;
}

static ct_status write_text(const ProtobufCMessage *m, const char *to)
{
    ct_text t = { 0 };
    ct_status status = ct_prototxt_write(m, &t);

    if (status == CT_OK) status = ct_file_write(to, (t.text != NULL) ? t.text : "", t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status write_binary(const ProtobufCMessage *m, const char *to)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *data = malloc(size + 1);
    ct_status status;

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of %s", size, to);
    protobuf_c_message_pack(m, data);
    status = ct_file_write(to, data, size);
    free(data);
    return status;
}

static ct_status convert_binary(const ct_convert_options *o, const char *data, size_t size)
{
    Ct__NetParameter *net = ct__net_parameter__unpack(NULL, size, (const uint8_t *)data);
    ct_status status;

    if (net == NULL) return CT_FAIL(CT_ERR_DATA, "%s: no net, or a damaged file", o->from);
    status = ct_net_upgrade(net, o->from, NULL);
    if (status == CT_OK) status = write_binary(&net->base, o->to);
    ct__net_parameter__free_unpacked(net, NULL);
    return status;
}

/* upgrade: of a message of this type. */
static ct_status convert_text(const ct_convert_options *o, const ProtobufCMessageDescriptor *type,
                              ct_status (*upgrade)(ProtobufCMessage *m, const char *file,
                                                   ct_source_map *map))
{
    ProtobufCMessage *m = NULL;
    ct_source_map *map = NULL;
    ct_status status = ct_source_map_create(&map);

    if (status == CT_OK) status = ct_prototxt_read(type, o->from, map, &m);
    if (status == CT_OK) status = upgrade(m, o->from, map);
    if (status == CT_OK) status = write_text(m, o->to);
    if (m != NULL) protobuf_c_message_free_unpacked(m, NULL);
    ct_source_map_destroy(map);
    return status;
}

static ct_status upgrade_net(ProtobufCMessage *m, const char *file, ct_source_map *map)
{
    return ct_net_upgrade((Ct__NetParameter *)(void *)m, file, map);
}

static ct_status upgrade_solver(ProtobufCMessage *m, const char *file, ct_source_map *map)
{
    return ct_solver_upgrade((Ct__SolverParameter *)(void *)m, file, map);
}

ct_status ct_convert_net(const ct_convert_options *o)
{
    char *data;
    size_t size;
    ct_status status;

    CT_TRY(check_target(o));
    CT_TRY(ct_file_read(o->from, &data, &size));
    status = is_binary(data, size) ? convert_binary(o, data, size)
                                   : convert_text(o, &ct__net_parameter__descriptor, upgrade_net);
    free(data);
    return status;
}

ct_status ct_convert_solver(const ct_convert_options *o)
{
    CT_TRY(check_target(o));
    return convert_text(o, &ct__solver_parameter__descriptor, upgrade_solver);
}
