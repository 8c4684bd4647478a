#include <string.h>

#include "framework/tools/config.h"

ct_status ct_config_compression(Ct__SolverParameter *solver, const char *spec, const char *who)
{
    size_t n = strcspn(spec, ":");
    char type[16], path[64], field[32], value[48];
    static const char *const known[] = { "none", "bf16", "topk" };

    snprintf(type, sizeof(type), "%.*s", (int)n, spec);
    if ((strcmp(type, "none") != 0) && (strcmp(type, "bf16") != 0) && (strcmp(type, "topk") != 0)) {
        const char *near = ct_text_nearest(type, known, 3);

        return CT_FAIL(CT_ERR_CONFIG,
                       "%s=%s: unknown type \"%s\"; expected none, bf16 or topk%s%s%s", who, spec,
                       type, (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                       (near != NULL) ? "\"?" : "");
    }
    for (char *c = type; *c != '\0'; c++) *c = (char)((*c >= 'a') && (*c <= 'z') ? *c - 32 : *c);
    CT_TRY(ct_prototxt_set(&solver->base, "compression.type", type, who));
    for (const char *at = spec + n; *at != '\0';) {
        size_t name = strcspn(++at, "=,"), end;

        if ((at[name] != '=') || (name == 0) || (name >= sizeof(field))) {
            return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected TYPE:FIELD=VALUE,FIELD=VALUE", who,
                           spec);
        }
        snprintf(field, sizeof(field), "%.*s", (int)name, at);
        at += name + 1;
        end = strcspn(at, ",");
        snprintf(value, sizeof(value), "%.*s", (int)end, at);
        snprintf(path, sizeof(path), "compression.%s", field);
        CT_TRY(ct_prototxt_set(&solver->base, path, value, who));
        at += end;
    }
    return CT_OK;
}
