#include <ctype.h>
#include <string.h>

#include "runtime/config/config.h"

enum { MOST_TYPES = 16 };

static void copy_cased(char *to, size_t size, const char *from, size_t n, int (*as)(int))
{
    size_t k = 0;

    for (; (k < n) && (k + 1 < size); ++k) to[k] = (char)as((unsigned char)from[k]);
    to[k] = '\0';
}

static ct_status check_type(const char *type, const char *spec, const char *who)
{
    const ProtobufCEnumDescriptor *all = &ct__compression_parameter__type__descriptor;
    char lower[MOST_TYPES][16];
    const char *known[MOST_TYPES], *near = NULL;
    ct_text list = { .text = NULL };
    int n = 0;
    ct_status status = CT_OK;

    for (unsigned i = 0; (i < all->n_values) && (n < MOST_TYPES); ++i) {
        const char *name = all->values[i].name;

        copy_cased(lower[n], sizeof(lower[n]), name, strlen(name), tolower);
        if (strcmp(lower[n], type) == 0) {
            ct_text_destroy(&list);
            return CT_OK;
        }
        ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", lower[n]);
        known[n] = lower[n];
        n += 1;
    }
    near = ct_text_nearest(type, known, n);
    status = CT_FAIL(CT_ERR_CONFIG, "%s=%s: unknown type \"%s\"; expected one of %s%s%s%s", who,
                     spec, type, (list.text != NULL) ? list.text : "",
                     (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "");
    ct_text_destroy(&list);
    return status;
}

static const ProtobufCFieldDescriptor *find_field(const char *field)
{
    return protobuf_c_message_descriptor_get_field_by_name(&ct__compression_parameter__descriptor,
                                                           field);
}

/* The names of an enum's values are upper case in the schema. */
static bool is_enum(const char *field)
{
    const ProtobufCFieldDescriptor *f = find_field(field);

    return (f != NULL) && (f->type == PROTOBUF_C_TYPE_ENUM);
}

/* FIELD=A,FIELD=B: the values up to here, with commas. */
static void collect(ct_text *list, const char *field, char *value, size_t size)
{
    const ProtobufCFieldDescriptor *f = find_field(field);

    if ((f == NULL) || (f->label != PROTOBUF_C_LABEL_REPEATED)) return;
    ct_text_add(list, "%s%s", (list->length > 0) ? "," : "", value);
    if (list->text != NULL) snprintf(value, size, "%s", list->text);
}

static int as_it_is(int c)
{
    return c;
}

ct_status ct_config_compression(Ct__SolverParameter *solver, const char *spec, const char *who)
{
    size_t n = strcspn(spec, ":");
    char type[16], path[64], field[32], value[160];
    ct_text list = { .text = NULL }; /* of the one field that may be there more than once */
    ct_status status = CT_OK;

    copy_cased(type, sizeof(type), spec, n, as_it_is);
    CT_TRY(check_type(type, spec, who));
    copy_cased(type, sizeof(type), spec, n, toupper);
    CT_TRY(ct_prototxt_set(&solver->base, "compression.type", type, who));
    for (const char *at = spec + n; (status == CT_OK) && (*at != '\0');) {
        size_t name = strcspn(++at, "=,"), end;

        if ((at[name] != '=') || (name == 0) || (name >= sizeof(field))) {
            status =
                CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected TYPE:FIELD=VALUE,FIELD=VALUE", who, spec);
            break;
        }
        copy_cased(field, sizeof(field), at, name, as_it_is);
        at += name + 1;
        end = strcspn(at, ",");
        copy_cased(value, sizeof(value), at, end, is_enum(field) ? toupper : as_it_is);
        collect(&list, field, value, sizeof(value));
        snprintf(path, sizeof(path), "compression.%s", field);
        status = ct_prototxt_set(&solver->base, path, value, who);
        at += end;
    }
    if (list.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", who);
    ct_text_destroy(&list);
    return status;
}
