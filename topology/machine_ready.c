/* Machines by file or by name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "topology/machine.h"

bool ct_machine_is_path(const char *text)
{
    size_t n = strlen(text), k = strlen(".prototxt");
    struct stat st;

    if ((strchr(text, '/') != NULL) || ((n > k) && (strcmp(text + n - k, ".prototxt") == 0)))
        return true;
    return (stat(text, &st) == 0) && S_ISREG(st.st_mode);
}

const char *ct_machine_ready(const char *name)
{
    for (const ct_ready_machine *m = ct_ready_machine_table; m->name != NULL; ++m) {
        if (strcmp(m->name, name) == 0) return m->text;
    }
    return NULL;
}

ct_status ct_machine_fail_unknown(const char *name)
{
    const char *known[64], *near = NULL;
    ct_text list = { 0 };
    ct_status status = CT_ERR_CONFIG;
    int n = 0;

    for (; (ct_ready_machine_table[n].name != NULL) && (n < 64); ++n) {
        known[n] = ct_ready_machine_table[n].name;
        ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", known[n]);
    }
    near = ct_text_nearest(name, known, n);
    if (near != NULL)
        status = CT_FAIL(status, "no machine file or ready machine \"%s\"; did you mean \"%s\"?",
                         name, near);
    else
        status = CT_FAIL(status, "no machine file \"%s\"; ready machines: %s", name,
                         (list.text != NULL) ? list.text : "none");
    ct_text_destroy(&list);
    return status;
}

ct_status ct_machine_read(const char *path_or_name, ct_machine **machine_p)
{
    const char *ready = ct_machine_ready(path_or_name);
    char *text = NULL;
    size_t size = 0;
    ct_status status = CT_OK;

    if (!ct_machine_is_path(path_or_name)) {
        if (ready == NULL) return ct_machine_fail_unknown(path_or_name);
        return ct_machine_parse(path_or_name, ready, strlen(ready), machine_p);
    }
    CT_TRY(ct_file_read(path_or_name, &text, &size));
    status = ct_machine_parse(path_or_name, text, size, machine_p);
    free(text);
    return status;
}
