/* --data_shape: what samples look like whose source is not there. */
#include "runtime/call.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/number.h"

static ct_status refuse(const char *text)
{
    return CT_FAIL(CT_ERR_CONFIG,
                   "--data_shape=%s: expected CHANNELS,HEIGHT,WIDTH, or other sizes of one sample "
                   "from 1 on, at most %d, with TOP: in front for one top, as in "
                   "data:3x224x224,label:1",
                   text, CT_MAX_DIM - 1);
}

/* Behind the name: the last '=' or ':' before the next comma; `at` where there is none. */
static const char *past_name(const char *at)
{
    const char *end = at + strcspn(at, ",");

    for (const char *c = end; c > at; c--)
        if ((c[-1] == '=') || (c[-1] == ':')) return c;
    return at;
}

/* One shape; *at_p moves behind it and its comma. */
static ct_status read_shape(const char *text, const char **at_p, ct_given_shape *g)
{
    const char *at = *at_p, *sizes = past_name(at);
    char *end;

    memset(g, 0, sizeof(*g));
    if (sizes > at) {
        g->name = at;
        g->n_name = (size_t)(sizes - 1 - at);
        if (g->n_name == 0) return refuse(text);
    }
    for (at = sizes;; at = end + 1) {
        int64_t d;

        if (!ct_number_integer(at, &end, &d) ||
            ((*end != ',') && (*end != 'x') && (*end != '\0')) || (d < 1) || (d > INT32_MAX) ||
            (g->shape.ndim == CT_MAX_DIM - 1))
            return refuse(text);
        g->shape.dim[g->shape.ndim++] = d;
        if (*end == '\0') break;
        if ((*end == ',') && (past_name(end + 1) > end + 1)) {
            *at_p = end + 1;
            return CT_OK;
        }
    }
    *at_p = end;
    return CT_OK;
}

/* A text has at most one shape more than commas. */
static int most_shapes(const char *text)
{
    int n = 1;

    for (; *text != '\0'; text++) n += (*text == ',');
    return n;
}

ct_status ct_data_shapes_read(const ct_options *o, ct_data_shapes *d)
{
    int n = ct_options_n(o, "data_shape"), most = 0;
    ct_status status = CT_OK;
    ct_origin origin;

    for (int i = 0; i < n; i++) most += most_shapes(ct_options_entry(o, "data_shape", i, &origin));
    d->given = calloc((size_t)most + 1, sizeof(d->given[0]));
    d->n = 0;
    if (d->given == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
    for (int i = 0; (i < n) && (status == CT_OK); i++) {
        const char *text = ct_options_entry(o, "data_shape", i, &origin), *at = text;

        do {
            status = read_shape(text, &at, &d->given[d->n]);
            if (status == CT_OK) d->n++;
        } while ((status == CT_OK) && (*at != '\0'));
    }
    if (status != CT_OK) ct_data_shapes_destroy(d);
    return status;
}

ct_status ct_data_shapes_fill(const ct_data_shapes *d, const ct_net_options *o,
                              Ct__NetParameter *net)
{
    return ct_absent_shapes_fill(o, d->given, d->n, net);
}

void ct_data_shapes_meet(const ct_data_shapes *d, const Ct__NetParameter *net)
{
    if (net != NULL) ct_absent_shapes_meet(d->given, d->n, net);
}

ct_status ct_data_shapes_check_names(const ct_data_shapes *d)
{
    for (int i = 0; i < d->n; i++) {
        const ct_given_shape *g = &d->given[i];

        if ((g->name != NULL) && !g->met)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--data_shape: no layer that reads data is called \"%.*s\" or has a top "
                           "of that name",
                           (int)g->n_name, g->name);
    }
    return CT_OK;
}

void ct_data_shapes_destroy(ct_data_shapes *d)
{
    free(d->given);
    *d = (ct_data_shapes){ 0 };
}
